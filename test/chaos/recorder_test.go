//go:build chaos && linux

package chaos_test

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"sync"

	"tidemark/internal/core/types"
	"tidemark/internal/history"
)

// recorder orders what all clients write down.
type recorder struct {
	mu    sync.Mutex // guards the following
	h     history.History
	clock int64
	acked map[types.TopicPartition]int
	errs  map[string]int // what clients gave up with, by client
	marks map[string]string
}

func newRecorder() *recorder {
	return &recorder{acked: map[types.TopicPartition]int{}, errs: map[string]int{}, marks: map[string]string{}}
}

// mark gives what stands for a value in the record: how it begins, which names
// it, how long it is and a checksum. In an hour the values themselves would be
// gigabytes; of each mark there is one copy, whoever sees the value.
func (r *recorder) mark(value string) string {
	const beginning = 16
	m := fmt.Appendf(nil, "%s#%d#%08x", value[:min(len(value), beginning)], len(value), crc32.ChecksumIEEE([]byte(value)))
	if one, ok := r.marks[string(m)]; ok {
		return one
	}
	return string(m)
}

// sending notes a record before it is handed to the client, and gives the index for outcome.
func (r *recorder) sending(s history.Send) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock++
	s.Began, s.Outcome, s.Value = r.clock, history.Unknown, r.mark(s.Value)
	r.marks[s.Value] = s.Value
	r.h.Sends = append(r.h.Sends, s)
	return len(r.h.Sends) - 1
}

// ackedAt notes that a send was acknowledged; without it its outcome is unknown.
func (r *recorder) ackedAt(send int, at int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.h.Sends[send]
	r.clock++
	s.Outcome, s.Offset, s.At = history.Acked, types.Offset(at), r.clock
	if !s.Weak {
		r.acked[s.Partition]++
	}
}

// ending notes that a producer is about to ask for the commit of a transaction.
func (r *recorder) ending(txn string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock++
	r.h.Txns = append(r.h.Txns, history.Txn{Name: txn, EndBegan: r.clock})
}

// ended notes what became of a transaction's sends, the offsets of which are
// in order; with Acked each has one.
func (r *recorder) ended(sends []int, offsets []int64, o history.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock++
	for i, send := range sends {
		s := &r.h.Sends[send]
		if s.Outcome, s.At = o, r.clock; o == history.Acked {
			s.Offset = types.Offset(offsets[i])
			r.acked[s.Partition]++
		}
	}
}

// failed counts a send that its client gave up; whether it was written is unknown.
func (r *recorder) failed(producer string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs[producer+": "+err.Error()]++
}

func (r *recorder) polled(p history.Poll) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock++
	p.At, p.Value = r.clock, r.mark(p.Value)
	r.h.Polls = append(r.h.Polls, p)
}

// lost notes that every replica may just have lost what it had not synced.
func (r *recorder) lost() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock++
	r.h.Losses = append(r.h.Losses, history.Loss{At: r.clock})
}

// tick gives the next moment of the clock that orders calls.
func (r *recorder) tick() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock++
	return r.clock
}

func (r *recorder) committed(m history.Commit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Commits = append(r.h.Commits, m)
}

// ackedBy counts the acknowledged sends of each partition so far.
func (r *recorder) ackedBy() map[types.TopicPartition]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[types.TopicPartition]int, len(r.acked))
	for tp, n := range r.acked {
		out[tp] = n
	}
	return out
}

// write keeps the history as JSON for whoever looks into a failure.
func (r *recorder) write(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	raw, err := json.Marshal(&r.h)
	if err != nil {
		return err
	}
	return os.WriteFile(name, raw, 0o644)
}
