package mem

import (
	"maps"
	"slices"

	"tidemark/internal/metastore"
)

// Fault is what happens to one transaction.
type Fault int8

const (
	// NoFault lets the transaction pass.
	NoFault Fault = iota
	// UnknownApplied carries it out and says ErrUnknownOutcome.
	UnknownApplied
	// UnknownNotApplied loses it and says ErrUnknownOutcome.
	UnknownNotApplied
	// UnknownLate says ErrUnknownOutcome and carries it out at ReleaseLate, as
	// a proposal that a dead leader still holds.
	UnknownLate
	// Unavailable loses it and says so.
	Unavailable
)

// FailTxns gives the next transactions these faults, in order.
func (s *Store) FailTxns(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
}

func (s *Store) nextFault() Fault {
	if len(s.faults) == 0 {
		return NoFault
	}
	f := s.faults[0]
	s.faults = s.faults[1:]
	return f
}

// ReleaseLate carries out what UnknownLate held back, in order, and says how many succeeded.
func (s *Store) ReleaseLate() (succeeded int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, txn := range s.late {
		if s.admissible(txn) == nil && s.apply(txn).Succeeded { // a lease may have ended meanwhile
			succeeded++
		}
	}
	s.late = nil
	return succeeded
}

// SetDown makes every call fail with ErrUnavailable, or ends that. Watchers see nothing new meanwhile.
func (s *Store) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
	s.hold(down)
}

// HoldWatches makes watchers see no revision after the present one, until it is called with false.
func (s *Store) HoldWatches(hold bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold(hold)
}

func (s *Store) hold(hold bool) {
	if hold && !s.watchHeld {
		s.watchUntil = s.revision
	}
	s.watchHeld = hold
	s.wake()
}

// Compact drops the history up to revision, which becomes unreadable for watchers.
func (s *Store) Compact(revision metastore.Revision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	revision = min(revision, s.revision)
	if revision < s.historyFrom {
		s.compacted = max(s.compacted, revision)
		return
	}
	for _, ev := range s.history[:revision+1-s.historyFrom] {
		replay(s.base, ev)
	}
	s.history = slices.Clone(s.history[revision+1-s.historyFrom:])
	s.historyFrom, s.compacted = revision+1, revision
	s.wake()
}

// SetMaxTxnOps changes the limit of compares and operations of one transaction.
func (s *Store) SetMaxTxnOps(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maxTxnOps = n
}

// Backup is the contents of a store at one revision.
type Backup struct {
	revision metastore.Revision
	kvs      map[string]metastore.KV
	keys     []string
}

// Backup copies the contents; leases are not part of it.
func (s *Store) Backup() Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Backup{revision: s.revision, kvs: maps.Clone(s.kvs), keys: slices.Clone(s.keys)}
}

// Restore puts the contents back as they were at the backup, revision
// included: the metadata goes back, all leases end, and keys that were bound
// to one are gone. Watchers fail with ErrCompacted.
func (s *Store) Restore(b Backup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision, s.kvs, s.keys = b.revision, maps.Clone(b.kvs), slices.Clone(b.keys)
	s.history, s.historyFrom, s.base, s.compacted = nil, b.revision+1, maps.Clone(b.kvs), b.revision
	s.leases = make(map[metastore.LeaseID]*lease)
	s.watchHeld = false
	s.restores++
	next := metastore.Events{Revision: s.revision + 1}
	for _, key := range slices.Clone(s.keys) {
		if s.kvs[key].Lease != 0 {
			next.Events = append(next.Events, s.delete(key, next.Revision))
		}
	}
	s.record(next)
	s.wake()
}
