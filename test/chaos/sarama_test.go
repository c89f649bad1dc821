//go:build chaos && linux

package chaos_test

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/IBM/sarama"

	"tidemark/internal/core/types"
	"tidemark/internal/history"
	"tidemark/test/chaos/harm"
)

// dialer connects sarama from the clients' place.
type dialer struct{ c *clients }

func (d dialer) Dial(network, address string) (net.Conn, error) {
	return d.c.dial(context.Background(), network, address)
}

func (c *clients) saramaConfig() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Net.Proxy.Enable, cfg.Net.Proxy.Dialer = true, dialer{c}
	cfg.Net.DialTimeout, cfg.Net.ReadTimeout, cfg.Net.WriteTimeout = 2*time.Second, callTimeout, callTimeout
	cfg.Metadata.Retry.Max, cfg.Metadata.Retry.Backoff = 1000, 100*time.Millisecond
	return cfg
}

// produceSarama is produce with another library.
func (c *clients) produceSarama(stop context.Context, name string) {
	cfg := c.saramaConfig()
	cfg.Net.MaxOpenRequests = 1 // demanded with Idempotent
	cfg.Producer.Idempotent = true
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Timeout = 3 * time.Second
	cfg.Producer.Retry.Max, cfg.Producer.Retry.Backoff = 100000, 100*time.Millisecond
	cfg.Producer.Return.Successes = true
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	p, err := sarama.NewAsyncProducer(c.seeds, cfg)
	if err != nil {
		c.t.Error(err)
		return
	}
	outstanding := make(chan struct{}, outstandingMax)
	c.producers.Go(func() {
		for m := range p.Successes() {
			<-outstanding
			c.rec.ackedAt(m.Metadata.(int), m.Offset)
		}
	})
	c.producers.Go(func() {
		for e := range p.Errors() {
			<-outstanding
			c.rec.failed(name, e.Err)
		}
	})
	c.producers.Go(func() {
		defer p.AsyncClose() // flushes; the two loops above end with it
		l := c.load(name)
		tick := time.NewTicker(c.every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-stop.Done():
				return
			}
			select {
			case outstanding <- struct{}{}:
			case <-stop.Done():
				return
			}
			tp, value := l.next(c)
			p.Input() <- &sarama.ProducerMessage{Topic: tp.Topic, Partition: tp.Partition, Value: sarama.StringEncoder(value), Metadata: c.rec.sending(history.Send{Producer: name, Partition: tp, Value: value})}
		}
	})
}

// member is a member of a group; each generation is an assignment.
type member struct {
	c           *clients
	group, name string
}

func (member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m member) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case r, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			m.c.rec.polled(history.Poll{Consumer: m.name, Assignment: int(s.GenerationID()), Partition: types.TopicPartition{Topic: r.Topic, Partition: r.Partition},
				Offset: types.Offset(r.Offset), Value: string(r.Value), Group: m.group})
			s.MarkMessage(r, "")
		case <-s.Context().Done():
			return nil
		}
	}
}

// consumeSarama is consume with another library, which commits by itself.
func (c *clients) consumeSarama(stop context.Context, group, name string) {
	cfg := c.saramaConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.Group.Session.Timeout, cfg.Consumer.Group.Heartbeat.Interval = 6*time.Second, 500*time.Millisecond
	g, err := sarama.NewConsumerGroup(c.seeds, group, cfg)
	if err != nil {
		c.t.Error(err)
		return
	}
	c.consumers.Go(func() {
		defer g.Close()
		for stop.Err() == nil {
			if err := g.Consume(stop, c.topics, member{c, group, name}); errors.Is(err, sarama.ErrClosedConsumerGroup) {
				return
			} else if err != nil {
				harm.Pause(stop, 200*time.Millisecond) // between attempts, as a service would
			}
		}
	})
}
