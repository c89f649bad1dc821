package e2e

import (
	"context"
	"errors"
	"testing"

	"github.com/IBM/sarama"

	"tidemark/test/e2e/harness"
)

type saramaHandler struct{ y *tally }

func (saramaHandler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (saramaHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h saramaHandler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		h.y.add(string(m.Value))
		s.MarkMessage(m, "")
	}
	return nil
}

// startSarama runs a member of a group with sarama at a protocol version.
func startSarama(t *testing.T, b *harness.Broker, version sarama.KafkaVersion, group, topic string, y *tally, instance string) (stop func()) {
	t.Helper()
	cfg := sarama.NewConfig()
	cfg.Version = version
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.Group.InstanceId = instance
	cfg.Consumer.Group.Heartbeat.Interval = memberHeartbeat
	cfg.ClientID = "sarama"
	g, err := sarama.NewConsumerGroup([]string{b.Addr}, group, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := g.Consume(ctx, []string{topic}, saramaHandler{y}); err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
				t.Errorf("sarama: %v", err)
				return
			}
		}
	}()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		harness.Receive(t, "sarama stops", done)
		if err := g.Close(); err != nil {
			t.Errorf("close sarama: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// sarama's consumer groups, in old and new versions of the protocol.
func TestGroupSarama(t *testing.T) {
	f := func(t *testing.T, version sarama.KafkaVersion, instance string) {
		b := harness.StartBroker(t)
		warmUp(t, b) // sarama asks for a coordinator a few times within a second, and gives up
		b.CreateTopic(t, "work", 4, nil)
		fill(t, b, "work", 4, 50)
		var y tally
		stop := startSarama(t, b, version, "workers", "work", &y, instance)
		harness.Eventually(t, "all records are read", func() bool { return y.count() == 200 })
		stop()
		adm := b.Admin(t)
		harness.Eventually(t, "the offsets are committed", func() bool {
			offsets, err := adm.FetchOffsets(harness.Context(t), "workers")
			if err != nil {
				return false
			}
			for p := range int32(4) {
				if o, ok := offsets.Lookup("work", p); !ok || o.At != 50 {
					return false
				}
			}
			return true
		})
		fill(t, b, "work", 1, 60)
		startSarama(t, b, version, "workers", "work", &y, instance)
		harness.Eventually(t, "the new records are read", func() bool { return y.count() == 210 })
	}
	t.Run("0.11", func(t *testing.T) { f(t, sarama.V0_11_0_0, "") })
	t.Run("2.0", func(t *testing.T) { f(t, sarama.V2_0_0_0, "") })
	t.Run("2.8", func(t *testing.T) { f(t, sarama.V2_8_0_0, "static") })
	t.Run("newest", func(t *testing.T) { f(t, sarama.MaxVersion, "") })
}

// Two clients of different make share one group.
func TestGroupMixedClients(t *testing.T) {
	b := harness.StartBroker(t)
	warmUp(t, b)
	b.CreateTopic(t, "work", 4, nil)
	var y tally
	startSarama(t, b, sarama.V2_8_0_0, "workers", "work", &y, "")
	startMember(t, b, "workers", "work", &y, rangeBalancer())
	harness.Eventually(t, "both are in", stableMembers(t, b.Admin(t), "workers", 2))
	fill(t, b, "work", 4, 100)
	harness.Eventually(t, "all records are read", func() bool { return y.count() == 400 })
}
