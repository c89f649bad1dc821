package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/broker"
	"tidemark/internal/config"
	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// setThrottle changes a rate of one broker as kafka-reassign-partitions does; -1 takes it away.
func setThrottle(t *testing.T, b *harness.Broker, name string, rate int64) {
	t.Helper()
	change := kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: kadm.StringPtr(fmt.Sprint(rate))}
	if rate < 0 {
		change = kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name}
	}
	out, err := b.Admin(t).AlterBrokerConfigs(harness.Context(t), []kadm.AlterConfig{change}, int32(b.NodeID()))
	if err != nil || len(out) != 1 || out[0].Err != nil {
		t.Fatalf("%s of broker %d: %+v, %v", name, b.NodeID(), out, err)
	}
}

func reassign(t *testing.T, c *harness.Cluster, topic string, to ...int32) {
	t.Helper()
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	rt.Topic = topic
	p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	p.Replicas = to
	rt.Partitions = append(rt.Partitions, p)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(harness.Context(t), c.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(kerr.ErrorForCode(resp.ErrorCode), kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)); err != nil {
		t.Fatal(err)
	}
}

// TestThrottledReassignment (KIP-73): a rate holds back the replica that is being
// moved to, at its leader or at itself, and nobody who is in sync.
func TestThrottledReassignment(t *testing.T) {
	for name, at := range map[string]types.BrokerID{config.LeaderThrottleRate: 1, config.FollowerThrottleRate: 3} {
		t.Run(name, func(t *testing.T) {
			c := harness.StartCluster(t, 3)
			c.CreateTopic(t, "orders", []types.BrokerID{1, 2}, map[string]string{
				"min.insync.replicas": "2", "leader.replication.throttled.replicas": "0:1,0:2", "follower.replication.throttled.replicas": "0:3",
			})
			c.CreateTopic(t, "free", []types.BrokerID{1}, nil)
			c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("before", 20)...)
			c.ProduceAll(t, "free", kgo.AllISRAcks(), harness.Values("free", 20)...)
			setThrottle(t, c.Nodes[at], name, 0)
			reassign(t, c, "orders", 1, 2, 3)
			reassign(t, c, "free", 3)
			harness.Eventually(t, "what no throttle names moves", func() bool { r := c.Record("free", 0); return r.Leader == 3 && len(r.Replicas) == 1 })
			c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("meanwhile", 20)...)
			if r := c.Record("orders", 0); len(r.ISR) != 2 || len(r.Adding) != 1 {
				t.Errorf("%+v: replica 3 is in sync at a rate of 0", r)
			}
			var p *broker.Partition
			harness.Eventually(t, "node 3 holds a replica", func() (ok bool) { p, ok = c.Nodes[3].PartitionByName("orders", 0); return ok })
			if v, _ := p.View(); v.LogEnd != 0 {
				t.Errorf("replica 3 ends at %d at a rate of 0", v.LogEnd)
			}
			setThrottle(t, c.Nodes[at], name, -1)
			harness.Eventually(t, "the move ends without the throttle", func() bool { r := c.Record("orders", 0); return len(r.ISR) == 3 && len(r.Adding) == 0 })
			c.AwaitEqual(t, "orders", three...)
		})
	}
}

// TestThrottleRate: what a rate lets through is near it, over some seconds.
func TestThrottleRate(t *testing.T) {
	const rate, size, records = 200_000, 20_000, 40 // 800 kB: four seconds, less the first second's worth
	c := harness.StartCluster(t, 2, harness.WithSetting("replica.fetch.max.bytes", "50000"), harness.WithSetting("replica.fetch.response.max.bytes", "50000"))
	c.CreateTopic(t, "orders", []types.BrokerID{1}, map[string]string{"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "*"})
	client := c.Client(t, kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range records {
		if err := client.ProduceSync(harness.Context(t), &kgo.Record{Topic: "orders", Value: []byte(strings.Repeat(fmt.Sprint(i%10), size))}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	setThrottle(t, c.Nodes[2], config.FollowerThrottleRate, rate)
	from := time.Now()
	reassign(t, c, "orders", 1, 2)
	harness.Eventually(t, "the move ends", func() bool { r := c.Record("orders", 0); return len(r.ISR) == 2 && len(r.Adding) == 0 })
	if d := time.Since(from); d < 2*time.Second {
		t.Errorf("%d bytes at %d bytes/s took %v", size*records, rate, d)
	}
}

// TestDynamicBrokerConfigs: only throttles change at run time; they are described, and bad values are refused by name.
func TestDynamicBrokerConfigs(t *testing.T) {
	b := harness.StartBroker(t)
	admin := b.Admin(t)
	f := func(name, value string, want error) {
		t.Helper()
		out, err := admin.AlterBrokerConfigs(harness.Context(t), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, int32(b.NodeID()))
		if err != nil || !errors.Is(out[0].Err, want) {
			t.Errorf("%s=%s: %+v, %v; want %v", name, value, out, err, want)
		}
	}
	f(config.LeaderThrottleRate, "1000", nil)
	f(config.LeaderThrottleRate, "-1", kerr.InvalidConfig)
	f(config.FollowerThrottleRate, "fast", kerr.InvalidConfig)
	f("num.shards", "3", kerr.InvalidConfig)
	configs, err := admin.DescribeBrokerConfigs(harness.Context(t), int32(b.NodeID()))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, c := range configs[0].Configs {
		switch c.Key {
		case config.LeaderThrottleRate:
			seen++
			if c.MaybeValue() != "1000" || c.Source != kmsg.ConfigSourceDynamicBrokerConfig {
				t.Errorf("%+v", c)
			}
		case config.FollowerThrottleRate:
			seen++
			if c.MaybeValue() != fmt.Sprint(config.Unthrottled) || c.Source != kmsg.ConfigSourceDefaultConfig {
				t.Errorf("%+v", c)
			}
		}
	}
	if seen != 2 {
		t.Errorf("%d throttles described", seen)
	}
}
