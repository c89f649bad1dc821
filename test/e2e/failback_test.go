package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/batch"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/compare"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// side is one of two clusters that change roles. It keeps, apart from the
// product, what was written on it since it last became a source, and what a
// failback must have cut from it.
type side struct {
	t     *testing.T
	name  string
	nodes map[types.BrokerID]*harness.Broker
	// written are the values that clients wrote here since the last change of roles.
	written map[string]bool
	// cut are the values that failbacks must have sent to the vaults here.
	cut map[string]bool
	// slept are those of them that a node never held, because it was down.
	slept map[types.BrokerID]map[string]bool
}

const backTopic = "orders"

// startSide starts a cluster of n nodes; several have all replicas of everything.
func startSide(t *testing.T, name string, n int) *side {
	t.Helper()
	s, _ := startSideWith(t, name, n)
	return s
}

// startSideWith is startSide with more settings; the cluster is nil of a lone node.
func startSideWith(t *testing.T, name string, n int, more ...harness.Option) (*side, *harness.Cluster) {
	t.Helper()
	s := &side{t: t, name: name, written: map[string]bool{}, cut: map[string]bool{}, slept: map[types.BrokerID]map[string]bool{}}
	opts := append(slices.Clone(quick), more...)
	if n == 1 {
		b := harness.StartBroker(t, opts...)
		s.nodes = map[types.BrokerID]*harness.Broker{b.NodeID(): b}
		return s, nil
	}
	c := harness.StartCluster(t, n, append(opts, harness.WithSetting("mirror.replication.factor", fmt.Sprint(n)),
		harness.WithSetting("default.replication.factor", fmt.Sprint(n)), harness.WithSetting("min.insync.replicas", "2"))...)
	s.nodes = c.Nodes
	return s, c
}

// any is a node that runs.
func (s *side) any() *harness.Broker { return s.live()[0] }

// live are the nodes that run, by id, at least one: after a stall of the machine for longer
// than their leases none does for a moment.
func (s *side) live() (list []*harness.Broker) {
	s.t.Helper()
	harness.Eventually(s.t, "a node of "+s.name+" serves", func() bool {
		list = nil
		for _, id := range slices.Sorted(maps.Keys(s.nodes)) {
			if s.nodes[id].Ready() == nil {
				list = append(list, s.nodes[id])
			}
		}
		return len(list) > 0
	})
	return list
}

// createTopic makes the topic with a replica on every node.
func (s *side) createTopic(t *testing.T, partitions int32) {
	t.Helper()
	r, err := s.any().Admin(t).CreateTopic(harness.Context(t), partitions, int16(len(s.nodes)), nil, backTopic)
	if err == nil {
		err = r.Err
	}
	if err != nil {
		t.Fatal(err)
	}
	for p := range partitions {
		harness.Eventually(t, "the topic is led", func() bool { return s.logEnd(t, p) == 0 })
	}
}

// addresses are those of the nodes that run.
func (s *side) addresses() []string {
	var list []string
	for _, n := range s.live() {
		list = append(list, n.Addr)
	}
	return list
}

func (s *side) client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	return s.any().Client(t, append([]kgo.Opt{kgo.SeedBrokers(s.addresses()...)}, opts...)...)
}

// write has a client write values to every partition, one batch each, acks=all.
func (s *side) write(t *testing.T, partitions int32, prefix string, n int) {
	t.Helper()
	client := s.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	for p := range partitions {
		for i := range n {
			v := fmt.Sprintf("%s-%d-%d", prefix, p, i)
			if err := client.ProduceSync(harness.Context(t), &kgo.Record{Topic: backTopic, Partition: p, Value: []byte(v)}).FirstErr(); err != nil {
				t.Fatalf("write %q on %s: %v", v, s.name, err)
			}
			s.written[v] = true
		}
	}
}

func (s *side) record(partition int32) meta.PartitionRecord {
	image := s.any().Image()
	named, ok := image.TopicByName(backTopic)
	if !ok {
		return meta.PartitionRecord{}
	}
	rec, _ := image.Partition(named.ID, partition)
	if rec == nil {
		return meta.PartitionRecord{}
	}
	return rec.Clone()
}

// logEnd is the end of the leader's log.
func (s *side) logEnd(t *testing.T, partition int32) types.Offset {
	rec := s.record(partition)
	n := s.nodes[rec.Leader]
	if n == nil || n.Ready() != nil {
		return types.NoOffset
	}
	p, ok := n.PartitionByName(backTopic, partition)
	if !ok {
		return types.NoOffset
	}
	v, _ := p.View()
	return v.LogEnd
}

// mirrorOf fills a's topic, names each side's mirror of the other, and waits until b has copied a.
func (b *side) mirrorOf(t *testing.T, a *side, partitions int32) {
	t.Helper()
	a.createTopic(t, partitions)
	a.write(t, partitions, "first", 5)
	for _, s := range []struct{ of, to *side }{{b, a}, {a, b}} {
		if err := s.of.any().Mirrors().Create(harness.Context(t), mirror.Spec{Name: "m", Bootstrap: s.to.addresses()}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.any().Mirrors().Start(harness.Context(t), "m"); err != nil {
		t.Fatal(err)
	}
	awaitCopy(t, a, b, partitions)
}

// awaitCopy waits until every replica of a mirror holds what its source holds. No
// election may have been in between.
func awaitCopy(t *testing.T, from, to *side, partitions int32) {
	t.Helper()
	awaitEqual(t, from, to, partitions)
	for p := range partitions {
		// A start costs the fence's epoch and the adoption's, and no other.
		if ours, theirs := to.record(p), from.record(p); ours.LeaderEpoch > theirs.LeaderEpoch+1 {
			t.Errorf("%s-%d: leader epoch %d behind %d at the source", backTopic, p, ours.LeaderEpoch, theirs.LeaderEpoch)
		}
	}
}

// awaitEqual waits until every live replica of a mirror holds what its source holds, byte for byte.
func awaitEqual(t *testing.T, from, to *side, partitions int32) {
	t.Helper()
	for p := range partitions {
		defer func() {
			if !t.Failed() {
				return
			}
			rec := to.record(p)
			t.Logf("%s-%d of %s: epoch %d, leader %d, ISR %v, mirror %+v", backTopic, p, to.name, rec.LeaderEpoch, rec.Leader, rec.ISRIDs(), rec.Mirror)
			for id, n := range to.nodes {
				if part, ok := n.PartitionByName(backTopic, p); ok {
					v, _ := part.View()
					e, err := part.LeaderEpoch()
					t.Logf("node %d: %d-%d, mark %d, serves %d (%v)", id, v.LogStart, v.LogEnd, v.HighWatermark, e, err)
				}
			}
			for _, e := range to.nodes[max(rec.Leader, 1)].Mirrors().Events() {
				if e.Partition == p {
					t.Logf("%s %s", e.Kind, e.Message)
				}
			}
		}()
		harness.Eventually(t, fmt.Sprintf("%s-%d of %s is a byte-equal mirror of %s on every live node", backTopic, p, to.name, from.name), func() bool {
			rec, live := to.record(p), to.live()
			if rec.Mirror == nil || rec.Mirror.State != meta.MirrorMirroring || len(rec.ISR) != len(live) || to.logEnd(t, p) != from.logEnd(t, p) {
				return false
			}
			leader := from.nodes[from.record(p).Leader]
			if leader == nil {
				return false
			}
			source := leader.LogBytes(t, backTopic, p)
			for _, n := range live {
				part, ok := n.PartitionByName(backTopic, p)
				if !ok {
					return false
				}
				if v, _ := part.View(); v.HighWatermark != from.logEnd(t, p) || !bytes.Equal(n.LogBytes(t, backTopic, p), source) {
					return false
				}
			}
			return len(source) > 0
		})
	}
	checkEqual(t, from.client(t), to.client(t), compare.Options{}, backTopic)
}

// vaulted are the values that the vaults of a side's nodes hold, by node.
func (s *side) vaulted(t *testing.T) map[types.BrokerID]map[string]bool {
	t.Helper()
	out := map[types.BrokerID]map[string]bool{}
	for id, n := range s.nodes {
		out[id] = map[string]bool{}
		entries, err := n.Vault().List()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Topic != backTopic {
				continue
			}
			err := n.Vault().Batches(e.ID, func(_ *batch.Header, raw []byte) error {
				records := batch.Records(raw, nil)
				for records.Next() {
					out[id][string(records.Record.Value)] = true
				}
				return records.Err()
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return out
}

// checkVaults compares every node's vault with the checker's own list.
func (s *side) checkVaults(t *testing.T) {
	t.Helper()
	for id, got := range s.vaulted(t) {
		for v := range s.cut {
			if !got[v] && !s.slept[id][v] {
				t.Errorf("the vault of %s, node %d, lacks %q", s.name, id, v)
			}
		}
		for v := range got {
			if !s.cut[v] || s.slept[id][v] {
				t.Errorf("the vault of %s, node %d, holds %q, which was not to be cut", s.name, id, v)
			}
		}
	}
}

// pauseMirror stops the copying so that the source runs ahead.
func (s *side) pauseMirror(t *testing.T) {
	t.Helper()
	if err := s.any().Mirrors().Pause(harness.Context(t), "m"); err != nil {
		t.Fatal(err)
	}
}

// failOver promotes a side.
func (s *side) failOver(t *testing.T, partitions int32) {
	t.Helper()
	st, err := s.any().Mirrors().Failover(harness.Context(t), "m", nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Partitions) != int(partitions) {
		t.Fatalf("failover of %s: %+v", s.name, st)
	}
	for _, p := range st.Partitions {
		if p.Promotion == nil {
			t.Fatalf("failover of %s: %s-%d: %s", s.name, p.Topic, p.Partition, p.Reason)
		}
	}
	clear(s.written)
}

// failBack makes a side a mirror of the other one: what was written here since
// the other one stopped copying goes to the vaults.
func (s *side) failBack(t *testing.T, lost int) {
	t.Helper()
	ctx := harness.Context(t)
	m := s.any().Mirrors()
	preview, err := m.Preview(ctx, "m", mirror.PreviewRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if int(preview.Records) != lost {
		t.Errorf("the preview of %s cuts %d records, want %d: %+v", s.name, preview.Records, lost, preview)
	}
	if lost > 0 {
		before := s.any().Image().Revision()
		if _, err := m.Failback(ctx, "m", mirror.FailbackRequest{}); !errors.Is(err, mirror.ErrPlan) || !strings.Contains(err.Error(), "PLAN_REQUIRED") {
			t.Errorf("a failback without a plan: %v", err)
		}
		if _, err := m.Failback(ctx, "m", mirror.FailbackRequest{Plan: "0123456789ab"}); !errors.Is(err, mirror.ErrPlan) || !strings.Contains(err.Error(), "PLAN_STALE") {
			t.Errorf("a failback with another plan: %v", err)
		}
		for p := range int32(len(preview.Partitions)) {
			if rec := s.record(p); !rec.Writable {
				t.Errorf("a refused failback changed partition %d (revision %d before): %+v", p, before, rec)
			}
		}
	}
	if _, err := m.Failback(ctx, "m", mirror.FailbackRequest{Plan: preview.Plan}); err != nil {
		t.Fatal(err)
	}
}

// TestFailbackRounds changes roles again and again between two clusters, with
// writes on both sides each time: no byte differs at the end, and the vaults
// hold what was cut and nothing else.
func TestFailbackRounds(t *testing.T) {
	for _, shape := range []struct {
		name   string
		nodes  int
		rounds int
	}{{"one node each", 1, 4}, {"three nodes each", 3, 3}} {
		t.Run(shape.name, func(t *testing.T) {
			const partitions = 3
			a, b := startSide(t, "A", shape.nodes), startSide(t, "B", shape.nodes)
			b.mirrorOf(t, a, partitions)
			primary, standby := a, b
			for round := range shape.rounds {
				// What the standby doesn't get any more, and what is written after it was promoted.
				clear(primary.written)
				standby.pauseMirror(t)
				primary.write(t, partitions, fmt.Sprintf("lag%d", round), 2)
				standby.failOver(t, partitions)
				standby.write(t, partitions, fmt.Sprintf("new%d", round), 3)
				if round%2 == 0 {
					primary.write(t, partitions, fmt.Sprintf("split%d", round), 2)
				}
				maps.Copy(primary.cut, primary.written)
				primary.failBack(t, len(primary.written))
				awaitCopy(t, standby, primary, partitions)
				primary.checkVaults(t)
				standby.checkVaults(t)
				primary, standby = standby, primary
			}
		})
	}
}

// A failback goes no further than its plan: a record more, and it is refused and
// nothing is as it was not.
func TestFailbackPlanMustBeFresh(t *testing.T) {
	a, b := startSide(t, "A", 1), startSide(t, "B", 1)
	a.createTopic(t, 1)
	a.write(t, 1, "first", 3)
	mirrorOf(t, b.any(), mirror.Spec{Bootstrap: a.addresses()})
	awaitCopy(t, a, b, 1)
	b.pauseMirror(t)
	a.write(t, 1, "lost", 2)
	b.failOver(t, 1)
	ctx, m := harness.Context(t), a.any().Mirrors()
	if err := m.Create(ctx, mirror.Spec{Name: "m", Bootstrap: b.addresses()}); err != nil {
		t.Fatal(err)
	}
	commit(t, a.any().Admin(t), "readers", backTopic, 5)
	first, err := m.Preview(ctx, "m", mirror.PreviewRequest{})
	if err != nil {
		t.Fatal(err)
	}
	p := first.Partitions[0]
	if p.Records != 2 || p.CutAt != 3 || p.LogEnd != 5 || !first.PlanNeeded || p.Relation != "behind" || p.Producers != 1 || p.Bytes == 0 || p.MinTimestamp <= 0 {
		t.Errorf("preview: %+v", first)
	}
	if len(p.Groups) != 1 || p.Groups[0] != (mirror.GroupPast{Group: "readers", Offset: 5}) {
		t.Errorf("groups past the cut: %+v", p.Groups)
	}
	if again, err := m.Preview(ctx, "m", mirror.PreviewRequest{}); err != nil || again.Plan != first.Plan {
		t.Errorf("the same facts have plan %s, then %s (%v)", first.Plan, again.Plan, err)
	}
	a.write(t, 1, "more", 1)
	if _, err := m.Failback(ctx, "m", mirror.FailbackRequest{Plan: first.Plan}); !errors.Is(err, mirror.ErrPlan) {
		t.Fatalf("a stale plan: %v", err)
	}
	if rec := a.record(0); !rec.Writable || rec.Mirror != nil {
		t.Errorf("it changed the record: %+v", rec)
	}
	dry, err := m.Failback(ctx, "m", mirror.FailbackRequest{DryRun: true})
	if err != nil || dry.Records != 3 {
		t.Fatalf("dry run: %+v, %v", dry, err)
	}
	if _, err := m.Failback(ctx, "m", mirror.FailbackRequest{Plan: dry.Plan}); err != nil {
		t.Fatal(err)
	}
	awaitCopy(t, b, a, 1)
	adm := a.any().Admin(t)
	harness.Eventually(t, "the group's offset is taken back to the cut, and follows the source from there", func() bool {
		return committed(t, adm, "readers", backTopic, 0) <= 3
	})
	for v := range a.written {
		if strings.HasPrefix(v, "lost") || strings.HasPrefix(v, "more") {
			a.cut[v] = true
		}
	}
	a.checkVaults(t)
}
