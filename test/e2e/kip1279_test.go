package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
	"tidemark/test/e2e/harness"
	"tidemark/test/relay"
)

// kipSide is a side that others see through relays: it speaks KIP-1279 to them and
// tells none of this project's own APIs.
type kipSide struct {
	*side
	cluster *harness.Cluster // nil for a lone node
	relays  map[types.BrokerID]*relay.Relay
}

// A node of a kipSide listens on another loopback address than it advertises, at the
// port of its own choice: there its relay stands.
const kipListens, kipAdvertises = "127.0.0.1", "127.0.0.2"

// startKIPSide starts a cluster of n nodes; several have all replicas of everything.
func startKIPSide(t *testing.T, name string, n int) *kipSide {
	t.Helper()
	s := &kipSide{relays: map[types.BrokerID]*relay.Relay{}}
	s.side, s.cluster = startSideWith(t, name, n, harness.WithSetting("mirror.kip1279.enable", "true"),
		harness.WithSetting("advertised.listeners", "PLAINTEXT://"+kipAdvertises+":0"),
		harness.WithSetting("mirror.promotion.step", "1")) // both sides give the same epochs
	for id := range s.nodes {
		s.advertise(t, id)
	}
	return s
}

// advertise puts a relay where a node that was just started says that it is.
func (s *kipSide) advertise(t *testing.T, id types.BrokerID) {
	t.Helper()
	r := relay.StartAt(t, s.nodes[id].Addr)
	r.RenameClients()
	s.relays[id] = r
	s.point(id)
}

func (s *kipSide) point(id types.BrokerID) {
	s.relays[id].Point(strings.Replace(s.nodes[id].Addr, kipAdvertises, kipListens, 1))
}

// reconnect ends all connections to the side.
func (s *kipSide) reconnect() {
	for id := range s.relays {
		s.point(id)
	}
}

// lie has every node's answers to an API altered; nil: no longer.
func (s *kipSide) lie(key wire.Key, alter func(body []byte) []byte) {
	for _, r := range s.relays {
		r.Lie(key, alter)
	}
}

// kipPair is two such sides, B a mirror of A, with a mirror of B made on A.
func kipPair(t *testing.T, nodes int, partitions int32) (a, b *kipSide) {
	t.Helper()
	a, b = startKIPSide(t, "A", nodes), startKIPSide(t, "B", nodes)
	b.mirrorOf(t, a.side, partitions)
	return a, b
}

// refusedBecause previews a failback that every partition must refuse, and tries it.
func (s *side) refusedBecause(t *testing.T, words ...string) {
	t.Helper()
	m := s.any().Mirrors()
	preview, err := m.Preview(harness.Context(t), "m", mirror.PreviewRequest{})
	if err != nil || len(preview.Partitions) == 0 {
		t.Fatalf("preview %+v, %v", preview, err)
	}
	before := s.record(0)
	_, err = m.Failback(harness.Context(t), "m", mirror.FailbackRequest{})
	if err == nil {
		t.Fatalf("a failback of %s was let go on: %+v", s.name, preview)
	}
	said := err.Error() + fmt.Sprint(preview.Partitions)
	for _, w := range words {
		if !strings.Contains(said, w) {
			t.Errorf("%s was told %q, want %q in it", s.name, said, w)
		}
	}
	if after := s.record(0); string(before.Encode()) != string(after.Encode()) {
		t.Errorf("a refused failback changed the record of %s: %+v", s.name, after)
	}
}

// TestFailbackByKIP1279 changes roles twice between two clusters that know of each
// other what KIP-1279 tells and nothing else. The logs end equal, and the vaults hold what
// the last mirrored epoch and offset gave up, nothing else.
func TestFailbackByKIP1279(t *testing.T) {
	const partitions = 2
	a, b := kipPair(t, 1, partitions)
	primary, standby := a.side, b.side
	primary.refusedBecause(t, "MIRROR_LOOP", "state MIRRORING", "mirror failover")
	for round := range 2 {
		clear(primary.written)
		standby.pauseMirror(t)
		primary.write(t, partitions, fmt.Sprintf("lag%d", round), 2)
		standby.failOver(t, partitions)
		standby.write(t, partitions, fmt.Sprintf("new%d", round), 3)
		if round == 0 {
			primary.write(t, partitions, "split", 4) // longer than what the standby wrote
		}
		maps.Copy(primary.cut, primary.written)
		before := primary.record(0).Timelines
		made := standby.record(0).Promotions[len(standby.record(0).Promotions)-1]
		primary.failBack(t, len(primary.written))
		awaitCopy(t, standby, primary, partitions)
		list := primary.record(0).Timelines
		if last, _ := list.Last(); len(list) != len(before)+1 || !list[:len(before)].Equal(before) || last.FirstEpoch != made.LastMirroredEpoch+1 || last.FirstOffset != made.LogEnd {
			t.Errorf("round %d: from the promotion %+v follow timelines %v, before they were %v", round, made, list, before)
		}
		primary.checkVaults(t)
		standby.checkVaults(t)
		primary, standby = standby, primary
	}
}

// TestForgottenLastMirroredEpoch: a source whose mirror was deleted knows no last
// mirrored epoch. What is held here stays without a plan; a mirror that had started before goes on.
func TestForgottenLastMirroredEpoch(t *testing.T) {
	a, b := kipPair(t, 1, 1)
	clear(a.written)
	b.failOver(t, 1)
	b.write(t, 1, "new", 3)
	a.failBack(t, 0)
	awaitCopy(t, b.side, a.side, 1)
	list := a.record(0).Timelines

	if err := b.any().Mirrors().Delete(harness.Context(t), "m"); err != nil {
		t.Fatal(err)
	}
	b.reconnect() // every session begins anew
	b.write(t, 1, "later", 2)
	awaitCopy(t, b.side, a.side, 1)
	if now := a.record(0).Timelines; !now.Equal(list) {
		t.Errorf("timelines %v became %v", list, now)
	}

	a.failOver(t, 1)
	a.write(t, 1, "own", 2)
	end := a.logEnd(t, 0)
	a.refusedBecause(t, "UNRELATED_LOGS", "no last mirrored epoch", "into the vault")
	if now := a.logEnd(t, 0); now != end {
		t.Errorf("the log ended at %d, and ends at %d", end, now)
	}
	a.checkVaults(t)

	// With the plan in hand everything goes, into the vault.
	preview, err := a.any().Mirrors().Preview(harness.Context(t), "m", mirror.PreviewRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{"first-0-%d", "new-0-%d", "later-0-%d", "own-0-%d"} {
		for i := range map[string]int{"first-0-%d": 5, "new-0-%d": 3, "later-0-%d": 2, "own-0-%d": 2}[raw] {
			a.cut[fmt.Sprintf(raw, i)] = true
		}
	}
	if int(preview.Records) < len(a.cut) {
		t.Errorf("the preview cuts %d records, %d values are held", preview.Records, len(a.cut))
	}
	if _, err := a.any().Mirrors().Failback(harness.Context(t), "m", mirror.FailbackRequest{Plan: preview.Plan}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "A holds what B holds", func() bool {
		return a.logEnd(t, 0) == b.logEnd(t, 0) && bytes.Equal(a.any().LogBytes(t, backTopic, 0), b.any().LogBytes(t, backTopic, 0))
	})
	a.checkVaults(t)
}

// TestKIP1279IsOff: without the switch on the asking side nothing of it is asked: the
// source is a plain one, without a root in common.
func TestKIP1279IsOff(t *testing.T) {
	a, b := kipPair(t, 1, 1)
	b.failOver(t, 1)
	m := a.any().Mirrors()
	if _, err := m.Alter(harness.Context(t), "m", mirror.Alteration{Settings: map[string]string{"mirror.kip1279.enable": "false"}}); err != nil {
		t.Fatal(err)
	}
	a.refusedBecause(t, "UNRELATED_LOGS", "shares no beginning")
	if rec := a.record(0); !rec.Writable || rec.Mirror != nil && rec.Mirror.State != meta.MirrorStopped {
		t.Errorf("record %+v", rec)
	}
	if _, err := m.Failback(harness.Context(t), "m", mirror.FailbackRequest{Plan: "0123456789ab"}); !errors.Is(err, mirror.ErrPlan) {
		t.Errorf("another plan: %v", err)
	}
}
