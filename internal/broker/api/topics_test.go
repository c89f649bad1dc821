package api

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

func TestCreateTopics(t *testing.T) {
	for v := int16(2); v <= 7; v++ {
		w := newWorld(t)
		w.topics.entries = []ConfigEntry{{Name: "retention.ms", Value: ptr("5"), Source: SourceTopic}}
		in := kmsg.NewPtrCreateTopicsRequest()
		in.TimeoutMillis = 1000
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "t", 3, 1
		topic.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms", Value: ptr("5")}}
		in.Topics = append(in.Topics, topic)
		a := ask[*kmsg.CreateTopicsResponse](w, in, v).Topics[0]
		if a.ErrorCode != 0 || a.Topic != "t" {
			t.Fatalf("version %d: %+v", v, a)
		}
		if v >= 5 && (a.NumPartitions != 3 || a.ReplicationFactor != 1 || len(a.Configs) != 1) {
			t.Errorf("version %d: %+v", v, a)
		}
		if v >= 7 && a.TopicID != [16]byte(topicIDOf("t")) {
			t.Errorf("version %d: id %v", v, a.TopicID)
		}
		want := CreateTopic{Name: "t", Partitions: 3, ReplicationFactor: 1, Configs: map[string]*string{"retention.ms": ptr("5")}}
		if diff := cmp.Diff([]CreateTopic{want}, w.topics.created); diff != "" {
			t.Error(diff)
		}
	}
}

func TestCreateTopicsRefusals(t *testing.T) {
	type topic = kmsg.CreateTopicsRequestTopic
	assigned := []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{1}}}
	for name, tc := range map[string]struct {
		version int16
		topics  []topic
		err     error
		codes   []wire.ErrCode
		asked   int // how many reach Topics
	}{
		"bad name":              {7, []topic{{Topic: "a b", NumPartitions: 1, ReplicationFactor: 1}}, nil, []wire.ErrCode{wire.ErrInvalidTopic}, 0},
		"two dots":              {7, []topic{{Topic: "..", NumPartitions: 1, ReplicationFactor: 1}}, nil, []wire.ErrCode{wire.ErrInvalidTopic}, 0},
		"too long":              {7, []topic{{Topic: strings.Repeat("x", 250), NumPartitions: 1, ReplicationFactor: 1}}, nil, []wire.ErrCode{wire.ErrInvalidTopic}, 0},
		"twice":                 {7, []topic{{Topic: "a", NumPartitions: 1}, {Topic: "b", NumPartitions: 1}, {Topic: "a", NumPartitions: 2}}, nil, []wire.ErrCode{wire.ErrInvalidRequest, wire.None}, 1},
		"assignment and count":  {7, []topic{{Topic: "a", NumPartitions: 1, ReplicationFactor: -1, ReplicaAssignment: assigned}}, nil, []wire.ErrCode{wire.ErrInvalidRequest}, 0},
		"assignment":            {7, []topic{{Topic: "a", NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: assigned}}, nil, []wire.ErrCode{wire.None}, 1},
		"assigned twice":        {7, []topic{{Topic: "a", NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: append(assigned, assigned...)}}, nil, []wire.ErrCode{wire.ErrInvalidReplicaAssignment}, 0},
		"default count, old":    {3, []topic{{Topic: "a", NumPartitions: -1, ReplicationFactor: 1}}, nil, []wire.ErrCode{wire.ErrInvalidPartitions}, 0},
		"default factor, old":   {3, []topic{{Topic: "a", NumPartitions: 1, ReplicationFactor: -1}}, nil, []wire.ErrCode{wire.ErrInvalidReplicationFactor}, 0},
		"defaults":              {4, []topic{{Topic: "a", NumPartitions: -1, ReplicationFactor: -1}}, nil, []wire.ErrCode{wire.None}, 1},
		"config twice":          {7, []topic{{Topic: "a", Configs: []kmsg.CreateTopicsRequestTopicConfig{{Name: "x"}, {Name: "x"}}}}, nil, []wire.ErrCode{wire.ErrInvalidConfig}, 0},
		"exists, and one other": {7, []topic{{Topic: "a"}, {Topic: "b b"}}, wire.ErrTopicAlreadyExists, []wire.ErrCode{wire.ErrTopicAlreadyExists, wire.ErrInvalidTopic}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.topics.err = tc.err
			in := kmsg.NewPtrCreateTopicsRequest()
			in.TimeoutMillis, in.Topics = 1000, tc.topics
			var codes []wire.ErrCode
			for _, a := range ask[*kmsg.CreateTopicsResponse](w, in, tc.version).Topics {
				codes = append(codes, wire.ErrCode(a.ErrorCode))
				if a.ErrorCode != 0 && tc.version >= 5 && (a.NumPartitions != -1 || a.ReplicationFactor != -1) {
					t.Errorf("counts beside an error: %+v", a)
				}
			}
			if diff := cmp.Diff(tc.codes, codes); diff != "" {
				t.Error(diff)
			}
			if len(w.topics.created) != tc.asked {
				t.Errorf("%d topics asked for, want %d", len(w.topics.created), tc.asked)
			}
		})
	}
}

func TestDeleteTopics(t *testing.T) {
	w := newWorld(t)
	a := w.topic("a", topicOptions{})
	b := w.topic("b", topicOptions{})
	in := kmsg.NewPtrDeleteTopicsRequest()
	in.TimeoutMillis = 1000
	in.TopicNames = []string{"a", "nobody"}
	codes := func(version int16) (codes []wire.ErrCode) {
		for _, x := range ask[*kmsg.DeleteTopicsResponse](w, in, version).Topics {
			codes = append(codes, wire.ErrCode(x.ErrorCode))
		}
		return codes
	}
	for v := int16(1); v <= 5; v++ {
		if diff := cmp.Diff([]wire.ErrCode{wire.None, wire.ErrUnknownTopicOrPartition}, codes(v)); diff != "" {
			t.Errorf("version %d: %s", v, diff)
		}
	}
	in.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: ptr("a")}, {TopicID: b}, {TopicID: [16]byte{9}}, {Topic: ptr("x"), TopicID: b},
		{Topic: ptr("twice")}, {Topic: ptr("twice")}}
	w.topics.deleted = nil
	want := []wire.ErrCode{wire.None, wire.None, wire.ErrUnknownTopicID, wire.ErrInvalidRequest, wire.ErrInvalidRequest, wire.ErrInvalidRequest}
	if diff := cmp.Diff(want, codes(6)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]types.TopicID{a, b}, w.topics.deleted); diff != "" {
		t.Error(diff)
	}
	in.Topics, w.topics.deleted = []kmsg.DeleteTopicsRequestTopic{{Topic: ptr("a")}, {TopicID: a}, {}, {Topic: ptr("b")}}, nil
	want = []wire.ErrCode{wire.ErrInvalidRequest, wire.ErrInvalidRequest, wire.ErrInvalidRequest, wire.None}
	if diff := cmp.Diff(want, codes(6)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]types.TopicID{b}, w.topics.deleted); diff != "" {
		t.Error(diff)
	}
	w.settings.DeleteTopics = false
	in.TopicNames = []string{"a"}
	if got := codes(2)[0]; got != wire.ErrInvalidRequest {
		t.Errorf("deletion switched off, version 2: %v", got)
	}
	if got := codes(3)[0]; got != wire.ErrTopicDeletionDisabled {
		t.Errorf("deletion switched off, version 3: %v", got)
	}
}

func TestCreatePartitions(t *testing.T) {
	type topic = kmsg.CreatePartitionsRequestTopic
	for name, tc := range map[string]struct {
		topics []topic
		codes  []wire.ErrCode
		says   string
	}{
		"more":                 {[]topic{{Topic: "t", Count: 4}}, []wire.ErrCode{wire.None}, ""},
		"the same":             {[]topic{{Topic: "t", Count: 2}}, []wire.ErrCode{wire.ErrInvalidPartitions}, "has 2 partitions"},
		"unknown":              {[]topic{{Topic: "x", Count: 2}}, []wire.ErrCode{wire.ErrUnknownTopicOrPartition}, ""},
		"twice":                {[]topic{{Topic: "t", Count: 3}, {Topic: "t", Count: 4}}, []wire.ErrCode{wire.ErrInvalidRequest, wire.ErrInvalidRequest}, "more than once"},
		"mirror":               {[]topic{{Topic: "m", Count: 4}}, []wire.ErrCode{wire.ErrPolicyViolation}, "when its source does"},
		"assigned":             {[]topic{{Topic: "t", Count: 3, Assignment: []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{1}}}}}, []wire.ErrCode{wire.None}, ""},
		"too few are assigned": {[]topic{{Topic: "t", Count: 4, Assignment: []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{1}}}}}, []wire.ErrCode{wire.ErrInvalidReplicaAssignment}, "1 are assigned"},
	} {
		t.Run(name, func(t *testing.T) {
			for v := int16(0); v <= 3; v++ {
				w := newWorld(t)
				w.topic("t", topicOptions{partitions: 2})
				w.topic("m", topicOptions{mirror: "standby"})
				in := kmsg.NewPtrCreatePartitionsRequest()
				in.TimeoutMillis, in.Topics = 1000, tc.topics
				var codes []wire.ErrCode
				for _, a := range ask[*kmsg.CreatePartitionsResponse](w, in, v).Topics {
					codes = append(codes, wire.ErrCode(a.ErrorCode))
					if a.ErrorMessage != nil && !strings.Contains(*a.ErrorMessage, tc.says) {
						t.Errorf("message %q, want one with %q", *a.ErrorMessage, tc.says)
					}
				}
				if diff := cmp.Diff(tc.codes, codes); diff != "" {
					t.Errorf("version %d: %s", v, diff)
				}
			}
		})
	}
}

func TestDeleteRecords(t *testing.T) {
	for v := int16(0); v <= 2; v++ {
		w := newWorld(t)
		w.topic("t", topicOptions{partitions: 4})
		w.topic("m", topicOptions{mirror: "standby"})
		w.topic("internal", topicOptions{internal: true})
		for n := range int32(4) {
			w.part("t", n).fill(5, 1).advance(5)
		}
		in := kmsg.NewPtrDeleteRecordsRequest()
		in.TimeoutMillis = 1000
		type part = kmsg.DeleteRecordsRequestTopicPartition
		in.Topics = []kmsg.DeleteRecordsRequestTopic{
			{Topic: "t", Partitions: []part{{Partition: 0, Offset: 3}, {Partition: 1, Offset: -1}, {Partition: 2, Offset: 6}, {Partition: 3, Offset: -2}, {Partition: 9}}},
			{Topic: "m", Partitions: []part{{Offset: 0}}}, {Topic: "internal", Partitions: []part{{Offset: 0}}}, {Topic: "x", Partitions: []part{{Offset: 0}}},
		}
		type answer struct {
			Code wire.ErrCode
			Low  int64
		}
		var got []answer
		for _, topic := range ask[*kmsg.DeleteRecordsResponse](w, in, v).Topics {
			for _, p := range topic.Partitions {
				got = append(got, answer{wire.ErrCode(p.ErrorCode), p.LowWatermark})
			}
		}
		want := []answer{{wire.None, 3}, {wire.None, 5}, {wire.ErrOffsetOutOfRange, -1}, {wire.ErrOffsetOutOfRange, -1},
			{wire.ErrUnknownTopicOrPartition, -1}, {wire.ErrPolicyViolation, -1}, {wire.ErrInvalidTopic, -1}, {wire.ErrUnknownTopicOrPartition, -1}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("version %d: %s", v, diff)
		}
	}
}

func TestDescribeConfigs(t *testing.T) {
	for v := int16(1); v <= 4; v++ {
		w := newWorld(t)
		w.topic("t", topicOptions{})
		w.topics.entries = []ConfigEntry{
			{Name: "a", Value: ptr("1"), Source: SourceTopic, Type: TypeLong, Documentation: "what a is",
				Synonyms: []ConfigSynonym{{Name: "a", Value: ptr("1"), Source: SourceTopic}, {Name: "log.a", Value: ptr("2"), Source: SourceDefault}}},
			{Name: "p", Value: ptr("secret"), Source: SourceDefault, Type: TypePassword, Sensitive: true,
				Synonyms: []ConfigSynonym{{Name: "p", Value: ptr("secret"), Source: SourceDefault}}},
		}
		in := kmsg.NewPtrDescribeConfigsRequest()
		in.IncludeSynonyms, in.IncludeDocumentation = true, true
		in.Resources = []kmsg.DescribeConfigsRequestResource{
			{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t"},
			{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t", ConfigNames: []string{"a", "nothing"}},
			{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "nobody"},
			{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1"},
			{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: ""},
			{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "2"},
			{ResourceType: kmsg.ConfigResourceTypeBrokerLogger, ResourceName: "1"},
		}
		out := ask[*kmsg.DescribeConfigsResponse](w, in, v)
		type answer struct {
			Code    wire.ErrCode
			Configs int
		}
		var got []answer
		for _, r := range out.Resources {
			got = append(got, answer{wire.ErrCode(r.ErrorCode), len(r.Configs)})
		}
		want := []answer{{wire.None, 2}, {wire.None, 1}, {wire.ErrUnknownTopicOrPartition, 0}, {wire.None, 2}, {wire.None, 2}, {wire.ErrInvalidRequest, 0}, {wire.ErrInvalidRequest, 0}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("version %d: %s", v, diff)
		}
		a, p := out.Resources[0].Configs[0], out.Resources[0].Configs[1]
		if *a.Value != "1" || a.Source != kmsg.ConfigSourceDynamicTopicConfig || len(a.ConfigSynonyms) != 2 {
			t.Errorf("version %d: %+v", v, a)
		}
		if v >= 3 && (a.ConfigType != kmsg.ConfigTypeLong || a.Documentation == nil) {
			t.Errorf("version %d: type %v, documentation %v", v, a.ConfigType, a.Documentation)
		}
		if p.Value != nil || !p.IsSensitive || p.ConfigSynonyms[0].Value != nil {
			t.Errorf("version %d: a secret is told: %+v", v, p)
		}
	}
}

func TestAlterConfigs(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topicOptions{})
	in := kmsg.NewPtrAlterConfigsRequest()
	in.ValidateOnly = true
	type config = kmsg.AlterConfigsRequestResourceConfig
	in.Resources = []kmsg.AlterConfigsRequestResource{
		{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t", Configs: []config{{Name: "a", Value: ptr("1")}, {Name: "b"}}},
		{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "nobody", Configs: []config{{Name: "a", Value: ptr("1")}}},
		{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1"},
		{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1"},
	}
	for v := int16(0); v <= 2; v++ {
		w.topics.altered = nil
		var codes []wire.ErrCode
		for _, r := range ask[*kmsg.AlterConfigsResponse](w, in, v).Resources {
			codes = append(codes, wire.ErrCode(r.ErrorCode))
		}
		if diff := cmp.Diff([]wire.ErrCode{wire.None, wire.ErrUnknownTopicOrPartition, wire.ErrInvalidRequest, wire.ErrInvalidRequest}, codes); diff != "" {
			t.Errorf("version %d: %s", v, diff)
		}
		want := []fakeAlter{{ConfigResource{ConfigTopic, "t"}, []ConfigChange{{"a", ConfigSet, ptr("1")}, {"b", ConfigDelete, nil}}, true, true}}
		if diff := cmp.Diff(want, w.topics.altered); diff != "" {
			t.Errorf("version %d: %s", v, diff)
		}
	}
}

func TestIncrementalAlterConfigs(t *testing.T) {
	type config = kmsg.IncrementalAlterConfigsRequestResourceConfig
	f := func(name string, err error, code wire.ErrCode, says string, want []ConfigChange, configs ...config) {
		t.Helper()
		for v := int16(0); v <= 1; v++ {
			w := newWorld(t)
			w.topic("t", topicOptions{})
			w.topics.err = err
			in := kmsg.NewPtrIncrementalAlterConfigsRequest()
			in.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t", Configs: configs}}
			a := ask[*kmsg.IncrementalAlterConfigsResponse](w, in, v).Resources[0]
			if wire.ErrCode(a.ErrorCode) != code || says != "" && !strings.Contains(*a.ErrorMessage, says) {
				t.Errorf("%s, version %d: %v %v, want %v", name, v, wire.ErrCode(a.ErrorCode), a.ErrorMessage, code)
			}
			var got []ConfigChange
			for _, x := range w.topics.altered {
				got = append(got, x.Changes...)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, version %d: %s", name, v, diff)
			}
		}
	}
	f("all operations", nil, wire.None, "", []ConfigChange{{"a", ConfigSet, ptr("1")}, {"b", ConfigDelete, nil}, {"c", ConfigAppend, ptr("x")}, {"d", ConfigSubtract, ptr("y")}},
		config{Name: "a", Op: 0, Value: ptr("1")}, config{Name: "b", Op: 1}, config{Name: "c", Op: 2, Value: ptr("x")}, config{Name: "d", Op: 3, Value: ptr("y")})
	f("unknown operation", nil, wire.ErrInvalidRequest, "operation 4", nil, config{Name: "a", Op: 4, Value: ptr("1")})
	f("twice", nil, wire.ErrInvalidRequest, "more than once", nil, config{Name: "a", Value: ptr("1")}, config{Name: "a", Value: ptr("2")})
	f("null", nil, wire.ErrInvalidRequest, "null", nil, config{Name: "a"})
	f("bad value", wire.Errorf(wire.ErrInvalidConfig, "a must be a number"), wire.ErrInvalidConfig, "a must be a number",
		[]ConfigChange{{"a", ConfigSet, ptr("x")}}, config{Name: "a", Value: ptr("x")})
	f("mirror", ErrReadOnly("t", "standby"), wire.ErrPolicyViolation, "fail the mirror over",
		[]ConfigChange{{"a", ConfigSet, ptr("x")}}, config{Name: "a", Value: ptr("x")})
}

func TestDescribeLogDirs(t *testing.T) {
	w := newWorld(t)
	for v := int16(1); v <= 5; v++ {
		in := kmsg.NewPtrDescribeLogDirsRequest()
		out := ask[*kmsg.DescribeLogDirsResponse](w, in, v)
		if len(out.Dirs) != 2 || out.Dirs[1].ErrorCode != int16(wire.ErrKafkaStorageError) || len(out.Dirs[1].Topics) != 0 {
			t.Fatalf("version %d: %+v", v, out.Dirs)
		}
		a := out.Dirs[0]
		if a.Dir != "/a" || len(a.Topics) != 2 || len(a.Topics[0].Partitions) != 2 || a.Topics[0].Partitions[0].Size != 10 {
			t.Errorf("version %d: %+v", v, a)
		}
		if v >= 4 && (a.TotalBytes != 100 || a.UsableBytes != 40) {
			t.Errorf("version %d: %d of %d bytes", v, a.UsableBytes, a.TotalBytes)
		}
		in.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: "t", Partitions: []int32{1, 9}}}
		a = ask[*kmsg.DescribeLogDirsResponse](w, in, v).Dirs[0]
		if len(a.Topics) != 1 || len(a.Topics[0].Partitions) != 1 || a.Topics[0].Partitions[0].OffsetLag != 1 {
			t.Errorf("version %d, one partition: %+v", v, a.Topics)
		}
		in.Topics = []kmsg.DescribeLogDirsRequestTopic{}
		if a = ask[*kmsg.DescribeLogDirsResponse](w, in, v).Dirs[0]; len(a.Topics) != 0 {
			t.Errorf("version %d, no partition: %+v", v, a.Topics)
		}
	}
}

func TestDescribeTopicPartitions(t *testing.T) {
	w := newWorld(t)
	w.topic("a", topicOptions{partitions: 3})
	w.topic("b", topicOptions{partitions: 2, epoch: 5})
	f := func(name string, topics []string, limit int32, cursor *kmsg.DescribeTopicPartitionsRequestCursor, want []string, next string) {
		t.Helper()
		in := kmsg.NewPtrDescribeTopicPartitionsRequest()
		in.ResponsePartitionLimit, in.Cursor = limit, cursor
		for _, n := range topics {
			in.Topics = append(in.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: n})
		}
		out := ask[*kmsg.DescribeTopicPartitionsResponse](w, in, 0)
		var got []string
		for _, topic := range out.Topics {
			if topic.ErrorCode != 0 {
				got = append(got, *topic.Topic+" "+wire.ErrCode(topic.ErrorCode).String())
			}
			for _, p := range topic.Partitions {
				got = append(got, types.TopicPartition{Topic: *topic.Topic, Partition: p.Partition}.String())
				if p.EligibleLeaderReplicas == nil || p.LastKnownELR == nil {
					t.Errorf("%s: a list of replicas is null, which Java's client doesn't take", name)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		cur := ""
		if c := out.NextCursor; c != nil {
			cur = types.TopicPartition{Topic: c.Topic, Partition: c.Partition}.String()
		}
		if cur != next {
			t.Errorf("%s: next %q, want %q", name, cur, next)
		}
	}
	cursor := func(topic string, n int32) *kmsg.DescribeTopicPartitionsRequestCursor {
		return &kmsg.DescribeTopicPartitionsRequestCursor{Topic: topic, Partition: n}
	}
	f("all", nil, 0, nil, []string{"a-0", "a-1", "a-2", "b-0", "b-1"}, "")
	f("named, in order", []string{"b", "a", "b"}, 100, nil, []string{"a-0", "a-1", "a-2", "b-0", "b-1"}, "")
	f("a page", nil, 2, nil, []string{"a-0", "a-1"}, "a-2")
	f("the next page", nil, 2, cursor("a", 2), []string{"a-2", "b-0"}, "b-1")
	f("the last page", nil, 2, cursor("b", 1), []string{"b-1"}, "")
	f("a page that ends with a topic", nil, 3, nil, []string{"a-0", "a-1", "a-2"}, "b-0")
	f("unknown", []string{"x", "y y"}, 10, nil, []string{"x UNKNOWN_TOPIC_OR_PARTITION", "y y INVALID_TOPIC_EXCEPTION"}, "")
	w.settings.MaxPartitionsPerDescribe = 1
	f("the broker's limit", nil, 100, nil, []string{"a-0"}, "a-1")
}
