package source

import (
	"context"
	"math/bits"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"tidemark/internal/assert"
)

// Budget bounds the bytes of fetch answers that are held in memory at one time,
// over all brokers that share it. An answer larger than the whole budget is let
// in alone, so that a large batch can't stop a mirror.
type Budget struct {
	bytesMax int64
	sem      *semaphore.Weighted
	held     atomic.Int64
}

// NewBudget makes a budget of bytesMax bytes.
func NewBudget(bytesMax int64) *Budget {
	return &Budget{bytesMax: bytesMax, sem: semaphore.NewWeighted(bytesMax)}
}

// Held gives the bytes in use.
func (b *Budget) Held() int64 { return b.held.Load() }

// acquire waits until n bytes are free and takes them; it returns what to give back.
func (b *Budget) acquire(ctx context.Context, n int64) (int64, error) {
	n = min(n, b.bytesMax)
	if err := b.sem.Acquire(ctx, n); err != nil {
		return 0, err
	}
	b.held.Add(n)
	return n, nil
}

func (b *Budget) release(n int64) {
	b.held.Add(-n)
	b.sem.Release(n)
}

// frame is the body of one answer. Within a budget its buffer is pooled and
// counted: the last release returns the buffer and the bytes taken.
type frame struct {
	bytes  []byte
	refs   atomic.Int32
	budget *Budget // nil for answers outside the budget: memory of their own, never pooled
	taken  int64
}

// newFrame gives a frame of n bytes with one reference.
func newFrame(ctx context.Context, n int, budget *Budget) (*frame, error) {
	f := &frame{budget: budget}
	f.refs.Store(1)
	if budget == nil {
		f.bytes = make([]byte, n)
		return f, nil
	}
	taken, err := budget.acquire(ctx, int64(n))
	if err != nil {
		return nil, err
	}
	f.taken = taken
	f.bytes = takeBuffer(n)
	return f, nil
}

func (f *frame) retain() { f.refs.Add(1) }

// release gives up one reference. The frame's bytes may be overwritten after the last one.
func (f *frame) release() {
	left := f.refs.Add(-1)
	assert.That(left >= 0, "I-140: an answer's memory was released %d times too often", -left)
	if left > 0 || f.budget == nil {
		return
	}
	returnBuffer(f.bytes)
	f.bytes = nil
	f.budget.release(f.taken)
}

// Buffers are pooled by powers of two from 4 KiB to 64 MiB.
const (
	bufferBitsMin = 12
	bufferBitsMax = 26
)

var bufferPools [bufferBitsMax - bufferBitsMin + 1]sync.Pool

func bufferClass(n int) int {
	return max(bits.Len(uint(max(n, 1)-1)), bufferBitsMin) - bufferBitsMin
}

func takeBuffer(n int) []byte {
	class := bufferClass(n)
	if class >= len(bufferPools) {
		return make([]byte, n)
	}
	if p, ok := bufferPools[class].Get().(*[]byte); ok {
		return (*p)[:n]
	}
	return make([]byte, n, 1<<(class+bufferBitsMin))
}

func returnBuffer(b []byte) {
	class := bufferClass(cap(b))
	if class >= len(bufferPools) || cap(b) != 1<<(class+bufferBitsMin) {
		return
	}
	b = b[:0]
	bufferPools[class].Put(&b)
}
