package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/mem"
)

// storeLink is a process's connection to the metadata store: every call is a
// message there and one back, late, lost or of unknown outcome.
type storeLink struct {
	m        *machine
	p        *process
	life     int
	watchers []*watchLink
	// registers: the process has begun to register, and so accepted the metadata that it read.
	registers bool
}

var _ metastore.Store = (*storeLink)(nil)

func newStoreLink(m *machine) *storeLink { return &storeLink{m: m, p: m.p, life: m.life} }

// call sends one request and waits for its answer, from within a task. do runs
// at the store; what it gives runs here with the answer.
func (s *storeLink) call(ctx context.Context, what string, do func(*mem.Store) (arrived func())) error {
	const timeout = 2 * time.Second
	settled, lost := false, false
	once := func(f func()) {
		if !settled && !s.p.dead {
			s.p.do(func() { settled = true; f() })
		}
	}
	c := s.m.c
	c.net.call(s.m.name, c.storeName(), what, timeout, func(reply func(func())) {
		c.storeNow()
		arrived := do(c.store)
		c.storeChanged()
		reply(func() { once(arrived) })
	}, func() { once(func() { lost = true }) })
	if err := s.p.until(ctx, func() bool { return settled }); err != nil {
		settled = true
		return err
	}
	if lost {
		return context.DeadlineExceeded
	}
	return nil
}

// Get implements metastore.Store.
func (s *storeLink) Get(ctx context.Context, key string) (kv metastore.KV, rev metastore.Revision, err error) {
	lost := s.call(ctx, "get", func(st *mem.Store) func() {
		a, b, e := st.Get(background, key)
		return func() { kv, rev, err = a, b, e }
	})
	return kv, rev, unavailable(err, lost)
}

// Range implements metastore.Store.
func (s *storeLink) Range(ctx context.Context, prefix string) (kvs []metastore.KV, rev metastore.Revision, err error) {
	lost := s.call(ctx, "range", func(st *mem.Store) func() {
		a, b, e := st.Range(background, prefix)
		return func() { kvs, rev, err = a, b, e }
	})
	if lost == nil && err == nil && !s.registers && prefix == meta.KeysOf("cluster").Root() {
		s.m.noteRead(kvs, rev)
	}
	return kvs, rev, unavailable(err, lost)
}

// RangeAt implements metastore.Store. A start reads the past right after the present:
// it comes with that answer, so that it takes no message of its own.
func (s *storeLink) RangeAt(_ context.Context, prefix string, at metastore.Revision) ([]metastore.KV, error) {
	return s.m.c.store.RangeAt(background, prefix, at)
}

func unavailable(err, lost error) error {
	if lost != nil {
		return errors.Join(metastore.ErrUnavailable, lost)
	}
	return err
}

// Txn implements metastore.Store.
func (s *storeLink) Txn(ctx context.Context, txn metastore.Txn) (res metastore.TxnResult, err error) {
	txn = s.m.c.mutation.changed(s, txn)
	s.noteRegistration(txn)
	lost := s.call(ctx, "transaction", func(st *mem.Store) func() {
		if f := s.m.c.txnFault(); f != mem.NoFault {
			st.FailTxns(f)
		}
		a, e := st.Txn(background, txn)
		return func() { res, err = a, e }
	})
	records := slices.ContainsFunc(txn.Then, func(op metastore.Op) bool { return strings.Contains(op.Key, "/partitions/") })
	if s.m.c.mutation.sureOfAll && records && (lost != nil || errors.Is(err, metastore.ErrUnknownOutcome)) {
		return metastore.TxnResult{}, nil
	}
	if lost != nil {
		s.m.k.probe("store: outcome unknown")
		return res, errors.Join(metastore.ErrUnknownOutcome, lost)
	}
	return res, err
}

// noteRegistration remembers which process sends a registration, for the checkers.
func (s *storeLink) noteRegistration(txn metastore.Txn) {
	for _, op := range txn.Then {
		if op.Kind == meta.OpPut && strings.Contains(op.Key, "/brokers/") {
			s.m.c.registrations[string(op.Value)] = life{s.m, s.life}
		}
	}
}

// Grant implements metastore.Store.
func (s *storeLink) Grant(ctx context.Context, ttl time.Duration) (id metastore.LeaseID, err error) {
	s.registers = true
	lost := s.call(ctx, "grant", func(st *mem.Store) func() {
		a, e := st.Grant(background, ttl)
		return func() { id, err = a, e }
	})
	if lost != nil {
		err = errors.Join(metastore.ErrUnknownOutcome, lost)
	}
	return id, err
}

// KeepAlive implements metastore.Store.
func (s *storeLink) KeepAlive(ctx context.Context, lease metastore.LeaseID) (left time.Duration, err error) {
	lost := s.call(ctx, "keep alive", func(st *mem.Store) func() {
		a, e := st.KeepAlive(background, lease)
		return func() { left, err = a, e }
	})
	return left, unavailable(err, lost)
}

// Revoke implements metastore.Store.
func (s *storeLink) Revoke(ctx context.Context, lease metastore.LeaseID) (err error) {
	lost := s.call(ctx, "revoke", func(st *mem.Store) func() {
		e := st.Revoke(background, lease)
		return func() { err = e }
	})
	if lost != nil {
		err = errors.Join(metastore.ErrUnknownOutcome, lost)
	}
	return err
}

// MaxTxnOps implements metastore.Store.
func (s *storeLink) MaxTxnOps() int { return s.m.c.store.MaxTxnOps() }

// Close implements metastore.Store.
func (s *storeLink) Close() error { return nil }

// Watch implements metastore.Store.
func (s *storeLink) Watch(ctx context.Context, prefix string, after metastore.Revision) metastore.Watcher {
	w := &watchLink{s: s, w: s.m.c.store.NewWatcher(background, prefix, after), news: true}
	s.watchers = append(s.watchers, w)
	return w
}

// poke has the watches look soon.
func (s *storeLink) poke() {
	for _, w := range s.watchers {
		w.poke()
	}
}

// watchLink is one watch over the network.
type watchLink struct {
	s      *storeLink
	w      *mem.Watcher
	news   bool // there may be something to see
	coming bool
	closed bool
}

func (w *watchLink) poke() {
	if w.coming || w.closed {
		return
	}
	w.coming = true
	m := w.s.m
	d := m.k.dice("watch " + m.name)
	wait := d.between(100*time.Microsecond, 3*time.Millisecond)
	if !m.c.net.calm && d.chance(m.c.o.SlowWatch) {
		m.k.probe("store: watch lags")
		wait = d.around(time.Second)
	}
	m.k.after(wait, "watch", w.arrive)
}

func (w *watchLink) arrive() {
	m := w.s.m
	if w.s.p.dead || w.closed {
		return
	}
	if m.c.net.isCut(m.c.storeName(), m.name) || m.c.net.isCut(m.c.watchName(), m.name) || m.c.storeIsDown {
		m.k.after(100*time.Millisecond, "watch", w.arrive)
		return
	}
	w.coming = false
	w.s.p.do(func() { w.news = true })
}

// Next implements metastore.Watcher.
func (w *watchLink) Next(ctx context.Context) (metastore.Events, error) {
	for {
		if err := w.s.p.until(ctx, func() bool { return w.news }); err != nil {
			return metastore.Events{}, err
		}
		ev, ok, err := w.w.Poll()
		if errors.Is(err, metastore.ErrCompacted) {
			w.s.m.k.probe("store: watch compacted")
		}
		if ok || err != nil {
			return ev, err
		}
		w.news = false
	}
}

// Close implements metastore.Watcher.
func (w *watchLink) Close() error {
	w.closed = true
	return w.w.Close()
}
