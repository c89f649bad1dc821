package broker

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"tidemark/internal/await"
	"tidemark/internal/core/types"
)

func testShard(t *testing.T) (*shard, *Partition) {
	t.Helper()
	s := newShard(slog.New(slog.DiscardHandler))
	t.Cleanup(s.close)
	return s, &Partition{shard: s, tp: types.TopicPartition{Topic: "t"}}
}

// Events run one at a time, and those of one sender in its order, whoever runs them.
func TestShardOrder(t *testing.T) {
	s, p := testShard(t)
	var running atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			var own sync.WaitGroup
			seen := 0 // of this sender's events; a race would show that two run at once
			for n := range 2000 {
				give := s.send
				if n%3 > 0 {
					give = s.sendOrRun
				}
				own.Add(1)
				err := give(t.Context(), event{p: p, f: func() {
					defer own.Done()
					if running.Add(1) != 1 || seen != n {
						t.Errorf("event %d came after %d, beside %d", n, seen, running.Load()-1)
					}
					seen++
					running.Add(-1)
				}})
				if err != nil {
					t.Error(err)
					own.Done()
				}
			}
			own.Wait()
		})
	}
	all.Wait()
	await.True(t, "nothing is ahead any more", func() bool { return s.ahead.Load() == 0 })
}

// A sender runs its event itself if nothing is ahead; else it goes on.
func TestShardRunsAtOnce(t *testing.T) {
	s, p := testShard(t)
	ran := false
	if err := s.sendOrRun(t.Context(), event{p: p, f: func() { ran = true }}); err != nil || !ran {
		t.Fatalf("ran %v, %v", ran, err)
	}
	begun, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	if err := s.send(t.Context(), event{p: p, f: func() { close(begun); <-goOn }}); err != nil {
		t.Fatal(err)
	}
	<-begun
	if err := s.sendOrRun(t.Context(), event{p: p, f: func() { close(done) }}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
		t.Error("it ran beside another")
	default:
	}
	close(goOn)
	<-done
}

// After its end a shard runs nothing: the logs of its partitions are closed.
func TestShardEnds(t *testing.T) {
	s, p := testShard(t)
	var ended atomic.Bool
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			for {
				err := s.sendOrRun(t.Context(), event{p: p, f: func() {
					if ended.Load() {
						t.Error("an event ran after the end")
					}
				}})
				if errors.Is(err, errStopped) {
					return
				}
			}
		})
	}
	s.close()
	ended.Store(true)
	senders.Wait()
}

// A broken invariant costs its partition, on the sender's goroutine too.
func TestShardGuardsSenders(t *testing.T) {
	s, p := testShard(t)
	p.env = &environment{}
	p.deleted = true // goOffline has nothing to do
	if err := s.sendOrRun(t.Context(), event{p: p, f: func() { panic("broken") }}); err != nil {
		t.Fatal(err)
	}
	ran := false
	if err := s.sendOrRun(t.Context(), event{p: p, f: func() { ran = true }}); err != nil || !ran {
		t.Errorf("after a panic: ran %v, %v", ran, err)
	}
}

func BenchmarkShard(b *testing.B) {
	s := newShard(slog.New(slog.DiscardHandler))
	defer s.close()
	p := &Partition{shard: s}
	for name, give := range map[string]func(event) error{
		"queued": func(e event) error { return s.send(b.Context(), e) },
		"run":    func(e event) error { return s.sendOrRun(b.Context(), e) },
	} {
		b.Run(name, func(b *testing.B) {
			done := make(chan struct{}, 1)
			e := event{p: p, f: func() { done <- struct{}{} }}
			for b.Loop() {
				if err := give(e); err != nil {
					b.Fatal(err)
				}
				<-done
			}
		})
	}
}
