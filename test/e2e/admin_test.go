package e2e

import (
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"tidemark/test/e2e/harness"
)

// Topics from birth to death, as an admin client sees them.
func TestTopicLife(t *testing.T) {
	b := harness.StartBroker(t)
	adm, ctx := b.Admin(t), harness.Context(t)
	five := "5"

	made, err := adm.CreateTopics(ctx, 3, 1, map[string]*string{"retention.ms": &five}, "orders", "bad name", "orders.eu")
	if err != nil {
		t.Fatal(err)
	}
	retention := made["orders"].Configs["retention.ms"]
	if o := made["orders"]; o.Err != nil || o.NumPartitions != 3 || o.ReplicationFactor != 1 || o.ID == (kadm.TopicID{}) || retention.MaybeValue() != "5" {
		t.Errorf("orders: %+v", o)
	}
	if err := made["bad name"].Err; !errors.Is(err, kerr.InvalidTopicException) {
		t.Errorf("bad name: %v", err)
	}
	for name, want := range map[string]error{"orders": kerr.TopicAlreadyExists, "orders_eu": kerr.InvalidTopicException} {
		if _, err := adm.CreateTopic(ctx, 1, 1, nil, name); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	bad := "often"
	for name, configs := range map[string]map[string]*string{"unknown config": {"retention.minutes": &five}, "bad value": {"retention.ms": &bad}} {
		if _, err := adm.CreateTopic(ctx, 1, 1, configs, "x"); !errors.Is(err, kerr.InvalidConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for what, want := range map[[2]int]error{{0, 1}: kerr.InvalidPartitions, {1, 5}: kerr.InvalidReplicationFactor} {
		if _, err := adm.CreateTopic(ctx, int32(what[0]), int16(what[1]), nil, "x"); !errors.Is(err, want) {
			t.Errorf("%d partitions, factor %d: %v, want %v", what[0], what[1], err, want)
		}
	}
	if v, err := adm.ValidateCreateTopics(ctx, 1, 1, nil, "dry"); err != nil || v["dry"].Err != nil {
		t.Errorf("validation: %+v, %v", v, err)
	}
	if up, err := adm.UpdatePartitions(ctx, 5, "orders"); err != nil || up["orders"].Err != nil {
		t.Errorf("more partitions: %+v, %v", up, err)
	}
	topics, err := adm.ListTopics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if names := topics.Names(); !slices.Equal(names, []string{"orders", "orders.eu"}) || len(topics["orders"].Partitions) != 5 {
		t.Errorf("topics %v, %d partitions", names, len(topics["orders"].Partitions))
	}
	b.Produce(t, "orders", 4, "x") // the new partition is led
	if gone, err := adm.DeleteTopics(ctx, "orders", "nobody"); err != nil || gone["orders"].Err != nil || !errors.Is(gone["nobody"].Err, kerr.UnknownTopicOrPartition) {
		t.Errorf("deleted %+v, %v", gone, err)
	}
	b.CreateTopic(t, "orders", 1, nil) // the name is free at once
	if got := b.Produce(t, "orders", 0, "y"); got != 0 {
		t.Errorf("the topic made anew begins at %d", got)
	}
}

func TestConfigsOverTheWire(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "t", 1, map[string]string{"retention.ms": "1000"})
	adm, ctx := b.Admin(t), harness.Context(t)
	value := func(name string) (string, kadm.Config) {
		t.Helper()
		all, err := adm.DescribeTopicConfigs(ctx, "t")
		if err != nil {
			t.Fatal(err)
		}
		r, err := all.On("t", nil)
		if err != nil || r.Err != nil {
			t.Fatal(err, r.Err)
		}
		for _, c := range r.Configs {
			if c.Key == name {
				return c.MaybeValue(), c
			}
		}
		return "", kadm.Config{}
	}
	if v, c := value("retention.ms"); v != "1000" || c.Source.String() != "DYNAMIC_TOPIC_CONFIG" {
		t.Errorf("retention.ms = %q from %v", v, c.Source)
	}
	if v, c := value("cleanup.policy"); v != "delete" || c.Source.String() != "DEFAULT_CONFIG" {
		t.Errorf("cleanup.policy = %q from %v", v, c.Source)
	}
	alter := func(want error, changes ...kadm.AlterConfig) {
		t.Helper()
		rs, err := adm.AlterTopicConfigs(ctx, changes, "t")
		if err != nil {
			t.Fatal(err)
		}
		if r, _ := rs.On("t", nil); !errors.Is(r.Err, want) {
			t.Errorf("alter %v: %v, want %v", changes, r.Err, want)
		}
	}
	compact, number, word := "compact", "7", "many"
	alter(nil, kadm.AlterConfig{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: &compact}, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "retention.ms"})
	if v, _ := value("cleanup.policy"); v != "delete,compact" {
		t.Errorf("cleanup.policy = %q", v)
	}
	if v, c := value("retention.ms"); v != "604800000" {
		t.Errorf("retention.ms = %q from %v", v, c.Source)
	}
	alter(kerr.InvalidConfig, kadm.AlterConfig{Name: "max.message.bytes", Value: &number}, kadm.AlterConfig{Name: "segment.bytes", Value: &word})
	if v, _ := value("max.message.bytes"); v == "7" {
		t.Error("half of a refused change was made")
	}
	alter(nil, kadm.AlterConfig{Name: "max.message.bytes", Value: &number})
	r, err := adm.DescribeBrokerConfigs(ctx, int32(b.NodeID()))
	if err != nil || len(r) != 1 || r[0].Err != nil || len(r[0].Configs) < 20 {
		t.Errorf("broker configs: %d, %v", len(r), err)
	}
}

func TestDeleteRecordsAndLogDirs(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "t", 1, nil)
	b.Produce(t, "t", 0, "a", "b", "c")
	adm, ctx := b.Admin(t), harness.Context(t)
	before := func(o int64) (kadm.DeleteRecordsResponse, bool) {
		t.Helper()
		offsets := make(kadm.Offsets)
		offsets.AddOffset("t", 0, o, -1)
		rs, err := adm.DeleteRecords(ctx, offsets)
		if err != nil {
			t.Fatal(err)
		}
		return rs.Lookup("t", 0)
	}
	if r, ok := before(2); !ok || r.Err != nil || r.LowWatermark != 2 {
		t.Errorf("delete below 2: %+v", r)
	}
	if r, _ := before(9); !errors.Is(r.Err, kerr.OffsetOutOfRange) {
		t.Errorf("delete below 9: %+v", r)
	}
	starts, err := adm.ListStartOffsets(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := starts.Lookup("t", 0); o.Offset != 2 {
		t.Errorf("log start %d", o.Offset)
	}
	if got := b.Consume(t, "t", 0, 2, 1); got[0] != "c" {
		t.Errorf("read %q", got)
	}
	dirs, err := adm.DescribeAllLogDirs(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, ok := dirs[int32(b.NodeID())].LookupPartition("t", 0)
	if !ok || p.Size <= 0 || p.OffsetLag != 0 {
		t.Errorf("log dirs %+v", dirs)
	}
}

func TestClusterOverTheWire(t *testing.T) {
	b := harness.StartBroker(t, harness.WithSetting("node.id", "7"), harness.WithSetting("broker.rack", "left"))
	m, err := b.Admin(t).BrokerMetadata(harness.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if m.Cluster != b.ClusterID() || m.Controller != 7 || len(m.Brokers) != 1 || m.Brokers[0].NodeID != 7 || m.Brokers[0].Rack == nil || *m.Brokers[0].Rack != "left" {
		t.Errorf("metadata %+v", m)
	}
}
