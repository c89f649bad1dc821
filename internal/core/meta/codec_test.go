package meta

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

var topicA = types.TopicID{0xa, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// examples are the values that docs/format/meta-keys.md shows.
func examplePartition() PartitionRecord {
	return PartitionRecord{
		V:                 PartitionVersion,
		Replicas:          []types.BrokerID{1, 2, 3},
		ISR:               []ISRMember{{1, 101}},
		ELR:               []ISRMember{{2, 102}},
		Leader:            1,
		LeaderBrokerEpoch: 101,
		LeaderEpoch:       65539,
		MinISR:            2,
		Timelines:         timeline.List{{ID: "root", FirstEpoch: 0, FirstOffset: 0}, {ID: "b1", FirstEpoch: 65539, FirstOffset: 4711}},
		Writable:          true,
		Promotions: []PromotionRecord{{
			SourceClusterID: "src", StartID: "s1", Mirror: "standby", LastMirroredEpoch: 3, LogEnd: 4711, HighWatermark: 4700,
			SourceStart: 10, SourceEnd: 4720, SourceEpoch: 3, SourceSeenAt: 1700000000000, At: 1700000001000, PromotedEpoch: 65539,
		}},
	}
}

func exampleMirrorPartition() PartitionRecord {
	return PartitionRecord{
		V: PartitionVersion, Replicas: []types.BrokerID{1}, ISR: []ISRMember{{1, 101}}, Leader: 1, LeaderBrokerEpoch: 101,
		LeaderEpoch: 4, MinISR: 1, Timelines: timeline.List{{ID: "root"}},
		Mirror: &MirrorState{
			Name: "standby", State: MirrorMirroring, StartID: "s1", SourceClusterID: "src", SourceTopicID: topicA,
			SourceEpochMax: 3, SourceStart: 0, SourceEnd: 4720, SourceSeenAt: 1700000000000,
		},
	}
}

// TestEncoding pins the stored form: changing a line here breaks every store in use.
func TestEncoding(t *testing.T) {
	f := func(name string, got []byte, want string) {
		t.Helper()
		if string(got) != want {
			t.Errorf("%s is stored as\n%s\nwant\n%s", name, got, want)
		}
	}
	f("partition", examplePartition().Encode(), `{"v":1,"replicas":[1,2,3],"isr":[[1,101]],"elr":[[2,102]],"leader":1,"leaderBrokerEpoch":101,"epoch":65539,"minIsr":2,`+
		`"timelines":[["root",0,0],["b1",65539,4711]],"writable":true,"promotions":[{"sourceClusterId":"src","startId":"s1","mirror":"standby",`+
		`"lastMirroredEpoch":3,"logEnd":4711,"highWatermark":4700,"sourceStart":10,"sourceEnd":4720,"sourceEpoch":3,"sourceSeenAt":1700000000000,`+
		`"at":1700000001000,"promotedEpoch":65539}]}`)
	f("mirror partition", exampleMirrorPartition().Encode(), `{"v":1,"replicas":[1],"isr":[[1,101]],"leader":1,"leaderBrokerEpoch":101,"epoch":4,"minIsr":1,`+
		`"timelines":[["root",0,0]],"writable":false,"mirror":{"name":"standby","state":"MIRRORING","startId":"s1","sourceClusterId":"src",`+
		`"sourceTopicId":"CgECAwQFBgcICQoLDA0ODw","sourceEpochMax":3,"sourceStart":0,"sourceEnd":4720,"sourceSeenAt":1700000000000}}`)
	f("cluster", ClusterRecord{ID: "c1", CreatedAt: 5}.Encode(), `{"v":1,"id":"c1","createdAt":5}`)
	f("broker", BrokerRecord{ID: 1, Endpoints: []Endpoint{{"PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"}}, HTTP: "127.0.0.1:9644", Rack: "r", Roles: []string{"broker", "controller"},
		DirectoryID: "d", Incarnation: "i", CleanShutdownEpoch: -1, Software: "tidemark 0.1", StartedAt: 7}.Encode(),
		`{"v":1,"id":1,"endpoints":[{"listener":"PLAINTEXT","host":"127.0.0.1","port":9092,"security":"PLAINTEXT"}],"http":"127.0.0.1:9644","rack":"r",`+
			`"roles":["broker","controller"],"directoryId":"d","incarnation":"i","cleanShutdownEpoch":-1,"software":"tidemark 0.1","startedAt":7}`)
	f("topic", TopicRecord{ID: topicA, Name: "a", Partitions: 3, Configs: map[string]string{"retention.ms": "1", "cleanup.policy": "compact"}}.Encode(),
		`{"v":1,"id":"CgECAwQFBgcICQoLDA0ODw","name":"a","partitions":3,"configs":{"cleanup.policy":"compact","retention.ms":"1"}}`)
	f("name", NameRecord{ID: topicA}.Encode(), `{"v":1,"id":"CgECAwQFBgcICQoLDA0ODw"}`)
	f("controller", ControllerRecord{Broker: 1, BrokerEpoch: 101}.Encode(), `{"v":1,"broker":1,"brokerEpoch":101}`)
	f("mirror", MirrorRecord{Name: "standby", Bootstrap: []string{"kafka:9092"}, ClientConfig: map[string]string{"security.protocol": "SSL"}, Topics: ".*", Exclude: "x", Groups: "g",
		SourceClusterID: "src", Want: WantRunning, StartID: "s1", Settings: map[string]string{"gap.policy": "fail"}, CreatedAt: 9}.Encode(),
		`{"v":1,"name":"standby","bootstrap":["kafka:9092"],"clientConfig":{"security.protocol":"SSL"},"topics":".*","exclude":"x","groups":"g",`+
			`"sourceClusterId":"src","want":"running","startId":"s1","settings":{"gap.policy":"fail"},"createdAt":9}`)
	f("drill", DrillRecord{Name: "d", Mirror: "m", Run: "r", State: DrillMaking, Broker: 1, BrokerEpoch: 101, At: 9}.Encode(),
		`{"v":1,"name":"d","mirror":"m","run":"r","state":"making","broker":1,"brokerEpoch":101,"at":9}`)
	f("topic of a drill", TopicRecord{ID: topicA, Name: "a", Partitions: 1, Drill: &DrillMark{Name: "d", Run: "r"}}.Encode(),
		`{"v":1,"id":"CgECAwQFBgcICQoLDA0ODw","name":"a","partitions":1,"drill":{"name":"d","run":"r"}}`)
	f("broker config", BrokerConfigRecord{Configs: map[string]string{"a": "1"}}.Encode(), `{"v":1,"configs":{"a":"1"}}`)
	f("node", NodeRecord{ID: 1, Directories: []string{"a", "b"}, Replaced: []string{"c"}}.Encode(), `{"v":1,"id":1,"directories":["a","b"],"replaced":["c"]}`)
	f("features", FeaturesRecord{Levels: map[string]int16{FeatureMetadata: 1}}.Encode(), `{"v":1,"levels":{"tidemark.version":1}}`)
	f("restored cluster", ClusterRecord{ID: "c1", CreatedAt: 5, Restore: &Restore{ID: "r", Revision: 9, TakenAt: 6, At: 7}}.Encode(),
		`{"v":1,"id":"c1","createdAt":5,"restore":{"id":"r","revision":9,"takenAt":6,"at":7}}`)
	f("producer ids", ProducerIDsRecord{High: 77, Next: 1000, Broker: 1, BrokerEpoch: 101}.Encode(), `{"v":1,"high":77,"next":1000,"broker":1,"brokerEpoch":101}`)
}

func TestRoundTrip(t *testing.T) {
	for _, want := range []PartitionRecord{examplePartition(), exampleMirrorPartition()} {
		got, err := DecodePartition("/k", want.Encode())
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
		clone := want.Clone()
		if !reflect.DeepEqual(clone, want) {
			t.Errorf("clone %+v, want %+v", clone, want)
		}
		clone.Replicas[0], clone.ISR[0].ID, clone.Timelines[0].ID = 9, 9, "other"
		if clone.Mirror != nil {
			clone.Mirror.State = MirrorFailed
		}
		if again, _ := DecodePartition("/k", want.Encode()); !reflect.DeepEqual(again, got) {
			t.Errorf("a change of the clone changed the record: %+v", want)
		}
	}
}

// TestDecodeRefuses: each damaged value is refused with its key, and says what to do.
func TestDecodeRefuses(t *testing.T) {
	good := string(examplePartition().Encode())
	mirror := string(exampleMirrorPartition().Encode())
	f := func(name, value string, want error, words string) {
		t.Helper()
		_, err := DecodePartition("/tidemark/c/partitions/x/0", []byte(value))
		var bad *ValueError
		if !errors.Is(err, want) || !errors.As(err, &bad) || !strings.Contains(err.Error(), "/tidemark/c/partitions/x/0") || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: error %v, want one that matches %v, names the key and says %q", name, err, want, words)
		}
	}
	edit := func(s, from, to string) string {
		t.Helper()
		if !strings.Contains(s, from) {
			t.Fatalf("%q is not in %s", from, s)
		}
		return strings.Replace(s, from, to, 1)
	}
	f("newer version", edit(good, `"v":1`, `"v":2`), ErrVersion, "start that version")
	f("newer version of another shape", `{"new":[],"v":2}`, ErrVersion, "unknown version 2")
	f("no version", edit(good, `"v":1,`, ``), ErrValue, "no version field")
	f("version is text", edit(good, `"v":1`, `"v":"1"`), ErrValue, "restore")
	f("empty", "", ErrValue, "restore")
	f("not json", "{", ErrValue, "restore")
	f("null", "null", ErrValue, "no version field")
	f("array", "[]", ErrValue, "restore")
	f("cut short", good[:len(good)-1], ErrValue, "restore")
	f("trailing", good+"{}", ErrValue, "something follows")
	f("trailing garbage", good+"x", ErrValue, "something follows")
	f("unknown field", edit(good, `"leader":`, `"chief":1,"leader":`), ErrValue, "chief")
	f("no replicas", edit(good, `[1,2,3]`, `[]`), ErrValue, "no replicas")
	f("replica twice", edit(good, `[1,2,3]`, `[1,2,2]`), ErrValue, "twice")
	f("negative replica", edit(good, `[1,2,3]`, `[1,2,-3]`), ErrValue, "impossible")
	f("leader is no replica", edit(good, `"leader":1`, `"leader":7`), ErrValue, "leader 7")
	f("isr is no replica", edit(good, `"isr":[[1,101]]`, `"isr":[[9,101]]`), ErrValue, "replica 9")
	f("isr and elr", edit(good, `"elr":[[2,102]]`, `"elr":[[1,101]]`), ErrValue, "replica 1")
	f("isr of three", edit(good, `"isr":[[1,101]]`, `"isr":[[1,101,5]]`), ErrValue, "want [broker id, broker epoch]")
	f("isr too large", edit(good, `"isr":[[1,101]]`, `"isr":[[4294967297,101]]`), ErrValue, "want [broker id, broker epoch]")
	f("negative epoch", edit(mirror, `"epoch":4`, `"epoch":-1`), ErrValue, "leader epoch -1")
	f("min isr", edit(good, `"minIsr":2`, `"minIsr":0`), ErrValue, "min ISR 0")
	f("timelines fall", edit(good, `["b1",65539,4711]`, `["b1",0,4711]`), ErrValue, "restore")
	f("timeline above the epoch", edit(good, `"epoch":65539`, `"epoch":65538`), ErrValue, "above the leader epoch")
	f("writable without timeline", edit(good, `"timelines":[["root",0,0],["b1",65539,4711]],`, ``), ErrValue, "without a timeline")
	f("read-only without mirror", edit(good, `"writable":true`, `"writable":false`), ErrValue, "read-only without a mirror")
	f("writable while mirroring", edit(mirror, `"writable":false`, `"writable":true`), ErrValue, "writable while")
	f("unknown mirror state", edit(mirror, `MIRRORING`, `DREAMING`), ErrValue, "DREAMING")

	g := func(name string, err error, words string) {
		t.Helper()
		if !errors.Is(err, ErrValue) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: error %v, want one that says %q", name, err, words)
		}
	}
	_, err := DecodeTopic("/k", []byte(`{"v":1,"id":"CgECAwQFBgcICQoLDA0ODw","name":"a","partitions":0}`))
	g("topic without partitions", err, "0 partitions")
	_, err = DecodeTopic("/k", []byte(`{"v":1,"id":"short","name":"a","partitions":1}`))
	g("topic id", err, "not a topic id")
	_, err = DecodeBroker("/k", []byte(`{"v":1,"id":1,"endpoints":[{"listener":"P","host":"h","port":70000,"security":"P"}],"directoryId":"d","incarnation":"i","cleanShutdownEpoch":-1,"startedAt":0}`))
	g("port", err, "70000")
	_, err = DecodeMirror("/k", []byte(`{"v":1,"name":"m","bootstrap":[],"want":"sleep","createdAt":0}`))
	g("mirror", err, "sleep")
	_, err = DecodeProducerIDs("/k", []byte(`{"v":1,"high":2147483648,"next":0,"broker":1,"brokerEpoch":1}`))
	g("producer ids", err, "2147483648")
	_, err = DecodeCluster("/k", []byte(`{"v":1,"id":"no/slash","createdAt":0}`))
	g("cluster", err, "no/slash")
	_, err = DecodeName("/k", []byte(`{"v":1,"id":"AAAAAAAAAAAAAAAAAAAAAA"}`))
	g("name", err, "no topic id")
	_, err = DecodeController("/k", []byte(`{"v":1,"broker":-1,"brokerEpoch":1}`))
	g("controller", err, "-1")
	_, err = DecodeBrokerConfig("/k", []byte(`{"v":1,"configs":7}`))
	g("broker config", err, "configs")
}

func TestKeys(t *testing.T) {
	keys := KeysOf("c1")
	f := func(key string, want Key) {
		t.Helper()
		if got, err := keys.Parse(key); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", key, got, err, want)
		}
	}
	f(keys.Cluster(), Key{Kind: KeyCluster})
	f(keys.Broker(7), Key{Kind: KeyBroker, Broker: 7})
	f(keys.Topic(topicA), Key{Kind: KeyTopic, TopicID: topicA})
	f(keys.Name("a.b_c-d"), Key{Kind: KeyName, Name: "a.b_c-d"})
	f(keys.Partition(topicA, 12), Key{Kind: KeyPartition, TopicID: topicA, Partition: 12})
	f(keys.Controller(), Key{Kind: KeyController})
	f(keys.Mirror("standby"), Key{Kind: KeyMirror, Name: "standby"})
	f(keys.BrokerConfig(7), Key{Kind: KeyBrokerConfig, Broker: 7})
	f(keys.BrokerConfig(types.NoBroker), Key{Kind: KeyBrokerConfig, Broker: types.NoBroker})
	f(keys.ProducerIDs(), Key{Kind: KeyProducerIDs})
	f("/tidemark/c1/tokens/later", Key{Kind: KeyForeign})
	f(keys.ACL(exampleACL().Binding()), Key{Kind: KeyACL, Name: exampleACL().Binding().ID()})
	f(keys.Scram(ScramID{"al/ice", ScramSHA256}), Key{Kind: KeyScram, Scram: ScramID{"al/ice", ScramSHA256}})
	f("/tidemark/c1/configs/clients/later", Key{Kind: KeyForeign})

	bad := func(key string) {
		t.Helper()
		if got, err := keys.Parse(key); !errors.Is(err, ErrKey) {
			t.Errorf("%s: %+v, %v; want ErrKey", key, got, err)
		}
	}
	bad("/tidemark/c2/brokers/1")
	bad("/tidemark/c1/brokers/01")
	bad("/tidemark/c1/brokers/-1")
	bad("/tidemark/c1/brokers/+1")
	bad("/tidemark/c1/brokers/")
	bad("/tidemark/c1/brokers/99999999999")
	bad("/tidemark/c1/topics/short")
	bad("/tidemark/c1/topics/CgECAwQFBgcICQoLDA0OD\n")
	bad("/tidemark/c1/acls/")
	bad("/tidemark/c1/scram/YWxpY2U")
	bad("/tidemark/c1/scram/YWxpY2U/PLAIN")
	bad("/tidemark/c1/scram/YWxpY2V/SCRAM-SHA-256") // the last bits say another thing
	bad("/tidemark/c1/scram//SCRAM-SHA-256")
	bad("/tidemark/c1/names/")
	bad("/tidemark/c1/names/a/b")
	bad("/tidemark/c1/cluster/x")
	bad("/tidemark/c1/partitions/CgECAwQFBgcICQoLDA0ODw")
	bad("/tidemark/c1/partitions/CgECAwQFBgcICQoLDA0ODw/x")
	bad("/tidemark/c1/partitions/CgECAwQFBgcICQoLDA0ODw/1/2")
	bad("/tidemark/c1/configs/brokers/all")

	for id, want := range map[string]bool{"c1": true, "MkU3OEVBNTcwNTJENDM2Qg": true, "a-b_C": true, "": false, "a/b": false, "a.b": false, strings.Repeat("x", 65): false} {
		if ValidClusterID(id) != want {
			t.Errorf("cluster id %q: want valid = %v", id, want)
		}
	}
}

// FuzzDecode: no value may panic, and one that is accepted must survive being written again.
func FuzzDecode(f *testing.F) {
	f.Add(examplePartition().Encode())
	f.Add(exampleMirrorPartition().Encode())
	f.Add([]byte(`{"v":1,"replicas":[1],"isr":[[1,5]],"leader":-1,"leaderBrokerEpoch":0,"epoch":0,"minIsr":1,"timelines":[["x",0,0]],"writable":true}`))
	f.Add([]byte(`{"V":1,"isr":null}`))
	f.Add(BrokerRecord{ID: 1, Endpoints: []Endpoint{{"P", "h", 1, "P"}}, CleanShutdownEpoch: -1}.Encode())
	f.Add(MirrorRecord{Name: "m", Want: WantPaused}.Encode())
	f.Add(TopicRecord{ID: topicA, Name: "a", Partitions: 1}.Encode())
	f.Add(ProducerIDsRecord{High: 1, Next: 1 << 32}.Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, err := DecodePartition("/k", data); err == nil {
			again, err := DecodePartition("/k", p.Encode())
			if err != nil || string(again.Encode()) != string(p.Encode()) {
				t.Fatalf("written again: %v", err)
			}
		}
		if r, err := DecodeBroker("/k", data); err == nil {
			if _, err := DecodeBroker("/k", r.Encode()); err != nil {
				t.Fatalf("written again: %v", err)
			}
		}
		if r, err := DecodeTopic("/k", data); err == nil {
			if _, err := DecodeTopic("/k", r.Encode()); err != nil {
				t.Fatalf("written again: %v", err)
			}
		}
		if r, err := DecodeMirror("/k", data); err == nil {
			if _, err := DecodeMirror("/k", r.Encode()); err != nil {
				t.Fatalf("written again: %v", err)
			}
		}
		if r, err := DecodeProducerIDs("/k", data); err == nil {
			if _, err := DecodeProducerIDs("/k", r.Encode()); err != nil {
				t.Fatalf("written again: %v", err)
			}
		}
		image, _ := Load("c1", []KV{
			{Key: "/tidemark/c1/partitions/" + topicA.String() + "/0", Value: data, CreateRevision: 2, ModRevision: 2},
			{Key: "/tidemark/c1/topics/" + topicA.String(), Value: data, CreateRevision: 2, ModRevision: 2},
			{Key: "/tidemark/c1/" + string(data), Value: data, CreateRevision: 2, ModRevision: 2},
		}, 2)
		Describe(image, "").Table()
	})
}
