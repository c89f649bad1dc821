package control

import (
	"bytes"
	"fmt"

	"tidemark/internal/core/meta"
)

// DefaultBytes keeps a transaction below the 1.5 MiB that etcd accepts.
const DefaultBytes = 1 << 20

// defaultOps is what any etcd accepts.
const defaultOps = 128

// Limits bound one transaction; Split keeps plans within them.
type Limits struct {
	// Ops bounds the compares, and the operations, of a transaction (metastore.Store.MaxTxnOps); 0 means 128.
	Ops int
	// Bytes bounds keys and values together; 0 means DefaultBytes.
	Bytes int
}

// ops is how many compares, and operations, a transaction can have.
func (l Limits) ops() int {
	if l.Ops <= 0 {
		return defaultOps
	}
	return l.Ops
}

// Split merges plans, in order, into as few transactions as the limits allow.
// Each of those may be carried out or not on its own: a merged plan is refused
// if any of its parts would be. A single plan beyond the limits stays as it is.
func Split(plans []meta.Plan, limits Limits) []meta.Plan {
	limits.Ops = limits.ops()
	if limits.Bytes <= 0 {
		limits.Bytes = DefaultBytes
	}
	var out []meta.Plan
	var b *batch
	for _, plan := range plans {
		if b == nil || !b.add(plan, limits) {
			if b != nil {
				out = append(out, b.plan())
			}
			b = newBatch()
			b.add(plan, Limits{})
		}
	}
	if b != nil {
		out = append(out, b.plan())
	}
	return out
}

// batch collects plans that become one.
type batch struct {
	merged   meta.Plan
	parts    int
	bytes    int
	compares map[compareKey]meta.Compare
	touched  map[string]bool
}

// compareKey is what at most one compare of a batch looks at.
type compareKey struct {
	kind meta.CompareKind
	key  string
}

func newBatch() *batch {
	return &batch{compares: make(map[compareKey]meta.Compare), touched: make(map[string]bool)}
}

// add merges a plan unless that would exceed the limits (which are none if
// zero), touch a key twice, or compare one thing in two ways.
func (b *batch) add(plan meta.Plan, limits Limits) bool {
	fresh := make([]meta.Compare, 0, len(plan.If))
	for _, c := range plan.If {
		old, ok := b.compares[compareKey{c.Kind, c.Key}]
		if ok && (old.Revision != c.Revision || !bytes.Equal(old.Value, c.Value)) {
			return false
		}
		if !ok {
			fresh = append(fresh, c)
		}
	}
	size := b.bytes
	for _, c := range fresh {
		size += len(c.Key) + len(c.Value)
	}
	for _, op := range plan.Then {
		if b.touched[op.Key] || op.Kind == meta.OpDeletePrefix && b.parts > 0 && b.writes() {
			return false
		}
		size += len(op.Key) + len(op.Value)
	}
	if limits.Ops > 0 && (len(b.merged.If)+len(fresh) > limits.Ops || len(b.merged.Then)+len(plan.Then) > limits.Ops || size > limits.Bytes) {
		return false
	}
	for _, c := range fresh {
		b.compares[compareKey{c.Kind, c.Key}] = c
	}
	for _, op := range plan.Then {
		b.touched[op.Key] = true
	}
	b.merged.If = append(b.merged.If, fresh...)
	b.merged.Then = append(b.merged.Then, plan.Then...)
	if b.parts == 0 {
		b.merged.Why = plan.Why
	}
	b.bytes = size
	b.parts++
	return true
}

// writes reports whether the batch puts anything: a deletion of a prefix might cover it.
func (b *batch) writes() bool {
	for _, op := range b.merged.Then {
		if op.Kind == meta.OpPut {
			return true
		}
	}
	return false
}

func (b *batch) plan() meta.Plan {
	if b.parts > 1 {
		b.merged.Why = fmt.Sprintf("%s, and %d more", b.merged.Why, b.parts-1)
	}
	return b.merged
}
