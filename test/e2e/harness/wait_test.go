package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/test/relay"
)

// fallible is a test that may fail without failing the one that runs.
type fallible struct {
	testing.TB
	said  chan string
	after []func()
}

func (f *fallible) Helper() {}

func (f *fallible) Cleanup(g func()) { f.after = append(f.after, g) }

func (f *fallible) Errorf(format string, args ...any) { f.said <- fmt.Sprintf(format, args...) }

func (f *fallible) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	panic(f)
}

func TestReceiveGivesUp(t *testing.T) {
	f := &fallible{TB: t, said: make(chan string, 1)}
	defer func() {
		if said := <-f.said; recover() != f || !strings.Contains(said, "never comes") || !strings.Contains(said, "TestReceiveGivesUp") {
			t.Errorf("it says %q", said)
		}
	}()
	receive(f, 5*time.Millisecond, "what never comes", make(chan int))
	t.Error("came back")
}

// A producer whose request has no answer doesn't heed its context: it must know what became of the
// batch. The end of the client is what ends it.
func TestAnUnansweredProducerEnds(t *testing.T) {
	b := StartBroker(t)
	b.CreateTopic(t, "t", 1, nil)
	front := relay.Start(t)
	front.Point(b.Addr)
	front.HoldProduceAnswers()
	f := &fallible{TB: t, said: make(chan string, 1)}
	c := connect(f, time.Second, kgo.SeedBrokers(b.Addr), kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, front.Addr())
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	produced := make(chan error, 1)
	go func() { produced <- c.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr() }()
	if err, _ := Receive(t, "the producer ends", produced); !errors.Is(err, kgo.ErrClientClosed) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ends with %v", err)
	}
	if said, _ := Receive(t, "the test fails", f.said); !strings.Contains(said, "still in use") {
		t.Errorf("it says %q", said)
	}
	for _, g := range f.after {
		g()
	}
}
