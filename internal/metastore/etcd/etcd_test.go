package etcd_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/etcd"
	"tidemark/internal/metastore/storetest"
)

// TestConformance runs the suite against an etcd in a process of its own, with pages of seven keys.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		_, s := startSingle(t, 128, etcd.Options{PageKeys: 7})
		return storetest.Subject{Store: s, Compact: func(t *testing.T, revision metastore.Revision) {
			if err := s.Compact(context.Background(), revision); err != nil {
				t.Fatal(err)
			}
		}}
	})
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// count adds one to a counter by compare-and-set.
func count(ctx context.Context, s metastore.Store, from int, at metastore.Revision) (metastore.Revision, error) {
	return metastore.Commit(ctx, s, meta.Plan{Why: "count",
		If: []meta.Compare{meta.ModRevisionIs("/n", at)}, Then: []meta.Op{meta.Put("/n", []byte(strconv.Itoa(from+1)))}})
}

// watchCounter follows the counter until it stands at last, and fails on a gap or a repetition.
func watchCounter(t *testing.T, s metastore.Store, last int) <-chan struct{} {
	w := s.Watch(context.Background(), "/n", 0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer w.Close()
		for want := 1; want <= last; {
			ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
			events, err := w.Next(ctx)
			cancel()
			if err != nil {
				t.Errorf("watch: %v", err)
				return
			}
			for _, ev := range events.Events {
				if string(ev.KV.Value) != strconv.Itoa(want) {
					t.Errorf("watched %s, want %d", ev.KV.Value, want)
					return
				}
				want++
			}
		}
	}()
	return done
}

// TestFrozen: a frozen etcd makes outcomes unknown within the attempt's
// time-out, and what was sent may happen after the thaw: exactly once.
func TestFrozen(t *testing.T) {
	p, s := startSingle(t, 128, etcd.Options{AttemptTimeout: 300 * time.Millisecond})
	watched := watchCounter(t, s, 6)
	var at metastore.Revision
	for i := range 6 {
		if i%2 == 1 {
			p.freeze()
			began := time.Now()
			_, err := s.Txn(bounded(t), metastore.Txn{If: []meta.Compare{meta.ModRevisionIs("/n", at)}, Then: []meta.Op{meta.Put("/n", []byte(strconv.Itoa(i+1)))}})
			if !errors.Is(err, metastore.ErrUnknownOutcome) || time.Since(began) > 10*time.Second {
				t.Fatalf("%v after %v, want an unknown outcome soon", err, time.Since(began))
			}
			if _, _, err := s.Get(bounded(t), "/n"); !errors.Is(err, metastore.ErrUnavailable) {
				t.Fatalf("%v, want ErrUnavailable", err)
			}
			thaw := time.AfterFunc(500*time.Millisecond, func() { p.signal(syscall.SIGCONT) })
			defer thaw.Stop()
		}
		next, err := count(bounded(t), s, i, at)
		if err != nil {
			t.Fatalf("count to %d: %v", i+1, err)
		}
		at = next
	}
	<-watched
}

// TestKilledAndRestarted: kill -9 of a single etcd loses nothing that was
// acknowledged, and a watch goes on without a gap.
func TestKilledAndRestarted(t *testing.T) {
	p, s := startSingle(t, 128, etcd.Options{AttemptTimeout: 500 * time.Millisecond})
	watched := watchCounter(t, s, 30)
	var at metastore.Revision
	for i := range 30 {
		if i%10 == 9 {
			p = p.restart()
		}
		next, err := count(bounded(t), s, i, at)
		if err != nil {
			t.Fatalf("count to %d: %v", i+1, err)
		}
		at = next
	}
	<-watched
}

// TestLeaderKilled: with three members the store survives the loss of the leader.
func TestLeaderKilled(t *testing.T) {
	members, s := startThree(t)
	watched := watchCounter(t, s, 60)
	var at metastore.Revision
	for i := range 60 {
		if i == 20 {
			leader, err := s.Leader(bounded(t))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range members {
				if strings.HasSuffix(leader, m.addr) {
					m.kill()
				}
			}
		}
		next, err := count(bounded(t), s, i, at)
		if err != nil {
			t.Fatalf("count to %d: %v", i+1, err)
		}
		at = next
	}
	<-watched
}

// TestDial finds out what the server allows, and says which address doesn't answer.
func TestDial(t *testing.T) {
	for _, limit := range []int{128, 512, 2048} {
		p, _ := startSingle(t, uint(limit), etcd.Options{})
		if s := dial(t, etcd.Options{}, p.addr); s.MaxTxnOps() != limit {
			t.Errorf("%d operations found, %d allowed", s.MaxTxnOps(), limit)
		}
		if kvs, _, err := dial(t, etcd.Options{MaxTxnOps: 100}, p.addr).Range(bounded(t), "/"); err != nil || len(kvs) != 0 {
			t.Errorf("asking left %v, %v", kvs, err)
		}
	}
	addr := freePorts(t, 1)[0]
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	_, err := etcd.Dial(ctx, etcd.DialOptions{Endpoints: []string{addr}})
	if !errors.Is(err, metastore.ErrUnavailable) || !strings.Contains(err.Error(), addr) {
		t.Errorf("%v, want ErrUnavailable that names %s", err, addr)
	}
}

func TestVersionOfSoundProgress(t *testing.T) {
	f := func(version string, want bool) {
		t.Helper()
		if got := etcd.AtLeast(version, 3, 5, 8); got != want {
			t.Errorf("%s: %v", version, got)
		}
	}
	f("3.5.7", false)
	f("3.5.8", true)
	f("3.5.12", true)
	f("3.4.99", false)
	f("3.6.0-rc.1", true)
	f("4.0.0", true)
	f("3.5", false)
	f("", false)
	f("main", false)
}
