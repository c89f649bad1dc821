package e2e

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"tidemark/internal/broker/mirror"
	"tidemark/test/e2e/harness"
)

// mirrors names a mirror of a source at a side, which is not started.
func (s *kipSide) mirrors(t *testing.T, name string, source *kipSide) {
	t.Helper()
	if err := s.any().Mirrors().Create(harness.Context(t), mirror.Spec{Name: name, Bootstrap: source.addresses()}); err != nil {
		t.Fatal(err)
	}
}

// follows makes a side that was written a mirror of a source, by a plan that cuts so many records.
func (s *kipSide) follows(t *testing.T, name string, lost int) {
	t.Helper()
	m := s.any().Mirrors()
	p, err := m.Preview(harness.Context(t), name, mirror.PreviewRequest{})
	if err != nil || int(p.Records) != lost {
		t.Fatalf("preview of %s at %s: %+v, %v; want %d records", name, s.name, p, err, lost)
	}
	if _, err := m.Failback(harness.Context(t), name, mirror.FailbackRequest{Plan: p.Plan}); err != nil {
		t.Fatalf("%s at %s: %v", name, s.name, err)
	}
}

func checkAllVaults(t *testing.T, sides ...*kipSide) {
	t.Helper()
	for _, s := range sides {
		s.checkVaults(t)
	}
}

// kipChain is A, B as a mirror of it, and C as a mirror of B; each knows of the others
// what KIP-1279 tells. A has a mirror of B by name.
func kipChain(t *testing.T) (a, b, c *kipSide) {
	t.Helper()
	a, b = kipPair(t, 1, 1)
	c = startKIPSide(t, "C", 1)
	c.mirrors(t, "m", b)
	if err := c.any().Mirrors().Start(harness.Context(t), "m"); err != nil {
		t.Fatal(err)
	}
	awaitEqual(t, b.side, c.side, 1)
	return a, b, c
}

// TestChainByKIP1279: of three clusters the middle one takes over from the first, which comes
// back behind it; then the last takes over, and the chain is turned round. Each time what
// is cut is what the last mirrored epoch and offset give up, also at who mirrors a mirror.
func TestChainByKIP1279(t *testing.T) {
	a, b, c := kipChain(t)
	clear(a.written)
	b.pauseMirror(t)
	a.write(t, 1, "lag", 2)
	b.failOver(t, 1)
	b.write(t, 1, "new", 3)
	a.write(t, 1, "split", 4)
	awaitEqual(t, b.side, c.side, 1)
	maps.Copy(a.cut, a.written)
	a.follows(t, "m", len(a.written))
	awaitEqual(t, b.side, a.side, 1)
	checkAllVaults(t, a, b, c)

	// C takes over; B had more by then, and A has it from B.
	clear(b.written)
	c.pauseMirror(t)
	b.write(t, 1, "late", 2)
	awaitEqual(t, b.side, a.side, 1)
	c.failOver(t, 1)
	c.write(t, 1, "newer", 3)
	b.mirrors(t, "c", c)
	maps.Copy(b.cut, b.written)
	maps.Copy(a.cut, b.written)
	b.follows(t, "c", len(b.written))
	awaitEqual(t, c.side, b.side, 1)
	awaitEqual(t, b.side, a.side, 1)
	c.write(t, 1, "along the chain", 2)
	awaitEqual(t, c.side, b.side, 1)
	awaitEqual(t, b.side, a.side, 1)
	checkAllVaults(t, a, b, c)
}

// TestTriangleByKIP1279: two clusters mirror the first one; one of them takes over, and
// both others follow it, the first from its own log, the other from what it has copied of
// the first. Each is judged by what the new primary mirrored from it, or from nobody.
func TestTriangleByKIP1279(t *testing.T) {
	a, b := kipPair(t, 1, 1)
	c := startKIPSide(t, "C", 1)
	c.mirrors(t, "m", a)
	if err := c.any().Mirrors().Start(harness.Context(t), "m"); err != nil {
		t.Fatal(err)
	}
	awaitEqual(t, a.side, c.side, 1)
	clear(a.written)
	b.pauseMirror(t)
	a.write(t, 1, "lag", 2)
	awaitEqual(t, a.side, c.side, 1)
	b.failOver(t, 1)
	b.write(t, 1, "new", 3)
	maps.Copy(a.cut, a.written)
	maps.Copy(c.cut, a.written)
	a.follows(t, "m", len(a.written))
	awaitEqual(t, b.side, a.side, 1)
	awaitEqual(t, a.side, c.side, 1) // C mirrors A on, which mirrors B now
	b.write(t, 1, "round", 2)
	awaitEqual(t, b.side, a.side, 1)
	awaitEqual(t, a.side, c.side, 1)
	checkAllVaults(t, a, b, c)
	// B would close the ring: whom it would copy from copies, by way of A, from it. KIP-1279
	// tells one hop, so that it isn't seen; but C mirrored nothing from B, which would
	// have to give up all that it holds, and that takes a plan.
	b.mirrors(t, "c", c)
	p, err := b.any().Mirrors().Preview(harness.Context(t), "c", mirror.PreviewRequest{})
	if err != nil || len(p.Partitions) != 1 || !p.PlanNeeded || p.Partitions[0].CutAt != 0 || !strings.Contains(p.Partitions[0].PlanWhy, "UNRELATED_LOGS") {
		t.Errorf("the preview of the ring: %+v, %v", p, err)
	}
	if _, err := b.any().Mirrors().Failback(harness.Context(t), "c", mirror.FailbackRequest{}); !errors.Is(err, mirror.ErrPlan) {
		t.Errorf("the ring was closed without a plan: %v", err)
	}
	if rec := b.record(0); !rec.Writable {
		t.Errorf("the ring was closed: %+v", rec)
	}
}
