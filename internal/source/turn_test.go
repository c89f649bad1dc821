package source

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/await"
	"tidemark/internal/core/types"
)

// slow is a broker whose fetch answers come when the test lets them go; each says in
// its throttle which one it is, from 1 on.
type slow struct {
	*liar
	c        *Client
	dials    atomic.Int32 // connections beside the one for requests included
	asked    atomic.Int32 // fetches that have come
	letGo    chan struct{}
	hangUp   atomic.Bool // the next fetch closes its connection
	answered int32
}

func newSlow(t *testing.T) *slow {
	t.Helper()
	s := &slow{letGo: make(chan struct{}, 10)}
	s.liar = newLiar(t, func(l *liar, key, version int16, correlation []byte) []byte {
		switch key {
		case 18:
			s.dials.Add(1)
		case 1:
			s.asked.Add(1)
			select {
			case <-s.letGo:
			case <-t.Context().Done():
				return nil
			}
			if s.hangUp.Swap(false) {
				return nil
			}
			s.answered++
			resp := kmsg.NewPtrFetchResponse()
			resp.SetVersion(version)
			resp.ThrottleMillis = s.answered
			return resp.AppendTo(append(append([]byte(nil), correlation...), 0))
		}
		return l.honest(key, version, correlation)
	})
	s.c = openTo(t, []string{s.ln.Addr().String()}, nil, Options{})
	if _, err := s.c.Metadata(t.Context(), []string{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// fetch begins a fetch; its outcome is the number of its answer, or an error.
func (s *slow) fetch(ctx context.Context) <-chan error {
	out := make(chan error, 1)
	session := s.c.NewSession(0, SessionOptions{})
	session.Set(FetchPartition{TopicPartition: types.TopicPartition{Topic: "t"}, TopicID: types.TopicID{1}, MaxBytes: 1})
	go func() {
		a, err := session.Fetch(ctx, limits)
		if err == nil {
			err = errNumber(a.Throttle / time.Millisecond)
			a.Release()
		}
		out <- err
	}()
	return out
}

type errNumber int

func (errNumber) Error() string { return "an answer" }

// lane is the connection for fetches.
func (s *slow) lane() *conn {
	l, err := s.c.link(s.ln.Addr().String(), purposeFetches)
	if err != nil {
		s.t.Fatal(err)
	}
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	return l.c
}

func (c *conn) unanswered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// used makes a connection's last use so much older.
func (c *conn) used(ago time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastUsed = c.lastUsed.Add(-ago)
}

// Two callers of one lane read in turns, and each gets its own answer.
func TestTurnsOfOneLane(t *testing.T) {
	s := newSlow(t)
	first := s.fetch(t.Context())
	await.True(t, "the first has come", func() bool { return s.asked.Load() == 1 })
	second := s.fetch(t.Context())
	await.True(t, "the second is sent", func() bool { return s.lane().unanswered() == 2 })
	s.letGo <- struct{}{}
	s.letGo <- struct{}{}
	if a, b := <-first, <-second; a != errNumber(1) || b != errNumber(2) {
		t.Errorf("got %v and %v", a, b)
	}
	if n := s.dials.Load(); n != 2 {
		t.Errorf("%d connections, want one for requests and one for fetches", n)
	}
}

// Who gives up while it reads leaves its answer to be dropped by the next caller.
func TestTurnGivenUp(t *testing.T) {
	s := newSlow(t)
	ctx, cancel := context.WithCancel(t.Context())
	first := s.fetch(ctx)
	await.True(t, "the first has come", func() bool { return s.asked.Load() == 1 })
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Fatalf("the first: %v", err)
	}
	second := s.fetch(t.Context())
	s.letGo <- struct{}{}
	s.letGo <- struct{}{}
	if err := <-second; err != errNumber(2) {
		t.Errorf("the second got %v", err)
	}
	if n := s.dials.Load(); n != 2 {
		t.Errorf("%d connections, want one for requests and one for fetches", n)
	}
}

// A time that passes closes the connection: a late answer would hold up all others.
func TestTurnTimesOut(t *testing.T) {
	s := newSlow(t)
	s.letGo <- struct{}{}
	if err := <-s.fetch(t.Context()); err != errNumber(1) {
		t.Fatal(err)
	}
	lane := s.lane()
	s.c.cfg.RequestTimeout = time.Millisecond
	if err := <-s.fetch(t.Context()); !errors.Is(err, ErrTimeout) {
		t.Fatalf("without an answer: %v", err)
	}
	if err := lane.failure(); err == nil {
		t.Error("the connection is still used")
	}
}

// A connection that the broker closed while nobody read from it is noticed before its next use.
func TestTurnAfterTheBrokerHungUp(t *testing.T) {
	s := newSlow(t)
	s.letGo <- struct{}{}
	if err := <-s.fetch(t.Context()); err != errNumber(1) {
		t.Fatal(err)
	}
	lane := s.lane()
	// A fetch whose caller is gone has the broker close.
	ctx, cancel := context.WithCancel(t.Context())
	gone := s.fetch(ctx)
	await.True(t, "it has come", func() bool { return s.asked.Load() == 2 })
	cancel()
	<-gone
	s.hangUp.Store(true)
	s.letGo <- struct{}{}
	await.True(t, "the lane's end is seen", func() bool {
		lane.used(2 * lookAfter)
		return !lane.usable(time.Now())
	})
	s.letGo <- struct{}{}
	if err := <-s.fetch(t.Context()); err != errNumber(2) {
		t.Errorf("after a new connection: %v", err)
	}
	if n := s.dials.Load(); n != 3 {
		t.Errorf("%d connections, want a new one for fetches", n)
	}
	if lane.failure() == nil {
		t.Error("the old connection was not closed")
	}
}

// A lane that is not looked at is taken for open, one with an answer in it too.
func TestTurnOpenLane(t *testing.T) {
	s := newSlow(t)
	s.letGo <- struct{}{}
	if err := <-s.fetch(t.Context()); err != errNumber(1) {
		t.Fatal(err)
	}
	lane := s.lane()
	lane.used(2 * lookAfter)
	s.letGo <- struct{}{}
	if err := <-s.fetch(t.Context()); err != errNumber(2) || s.lane() != lane {
		t.Errorf("an open connection: %v", err)
	}
}

// BenchmarkLane is a fetch that finds nothing, over loopback.
func BenchmarkLane(b *testing.B) {
	l := newLiar(b, func(l *liar, k, v int16, c []byte) []byte { return l.honest(k, v, c) })
	cfg, err := NewConfig([]string{l.ln.Addr().String()}, nil)
	if err != nil {
		b.Fatal(err)
	}
	c := Open(cfg, Options{})
	defer c.Close()
	if _, err := c.Metadata(b.Context(), []string{}); err != nil {
		b.Fatal(err)
	}
	s := c.NewSession(0, SessionOptions{})
	s.Set(FetchPartition{TopicPartition: types.TopicPartition{Topic: "t"}, TopicID: types.TopicID{1}, MaxBytes: 1})
	b.ReportAllocs()
	for b.Loop() {
		a, err := s.Fetch(b.Context(), limits)
		if err != nil {
			b.Fatal(err)
		}
		a.Release()
	}
}
