package e2e

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/await"
	"tidemark/internal/batch"
	"tidemark/internal/broker"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/test/e2e/harness"
)

// txnSource writes transactions into a node's topic "tx" as a coordinator and its
// producers would, each record where and when the test wants it.
type txnSource struct {
	*harness.Broker
	partitions int32
}

func newTxnSource(t *testing.T, partitions int32) txnSource {
	t.Helper()
	s := txnSource{Broker: harness.StartBroker(t), partitions: partitions}
	s.CreateTopic(t, "tx", partitions, nil)
	return s
}

func (s txnSource) append(t *testing.T, partition int32, raw []byte) {
	t.Helper()
	topic, ok := s.Image().TopicByName("tx")
	if !ok {
		t.Fatal("no topic tx")
	}
	p, ok := s.Partition(topic.Record.ID, partition)
	if !ok {
		t.Fatalf("no partition tx-%d", partition)
	}
	err := p.Do(harness.Context(t), func(o *broker.Owned) error {
		rec, _ := o.Record()
		_, err := o.Log().AppendAsLeader(raw, rec.LeaderEpoch, log.LeaderAppend{Origin: log.OriginCoordinator})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// data writes two records of a transaction into the partitions, markers its COMMIT.
func (s txnSource) data(t *testing.T, producer types.ProducerID, epoch int16, sequence int32, value string, partitions ...int32) {
	t.Helper()
	for _, p := range partitions {
		s.append(t, p, builtBatch(t, batch.BuilderOptions{
			Transactional: true, Producer: &batch.Producer{ID: producer, Epoch: epoch, BaseSequence: sequence},
		}, fmt.Sprint(value, " a"), fmt.Sprint(value, " b")))
	}
}

func (s txnSource) commit(t *testing.T, producer types.ProducerID, epoch int16, partitions ...int32) {
	t.Helper()
	for _, p := range partitions {
		s.append(t, p, batch.NewMarker(batch.Commit, producer, epoch, 0, 1_700_000_000_000))
	}
}

// halfMirrored writes one whole transaction, and one whose last marker is missing:
// partitions 0 and 1 end behind their COMMIT marker at offset 5, partition 2 is open.
func (s txnSource) halfMirrored(t *testing.T) {
	t.Helper()
	s.data(t, 7, 0, 0, "whole", 0, 1, 2)
	s.commit(t, 7, 1, 0, 1, 2)
	s.data(t, 7, 1, 0, "half", 0, 1, 2)
	s.commit(t, 7, 2, 0, 1)
	s.append(t, 0, builtBatch(t, batch.BuilderOptions{}, "plain"))
}

// awaitPlannedCuts waits until the preview cuts the partitions as wanted, and gives it.
func awaitPlannedCuts(t *testing.T, standby *harness.Broker, want ...types.Offset) mirror.Preview {
	t.Helper()
	var p mirror.Preview
	await.NoError(t, harness.Patience, fmt.Sprintf("a consistent failover would cut at %v", want), func() (err error) {
		if p, err = standby.Mirrors().Preview(harness.Context(t), "m", mirror.PreviewRequest{Failover: true}); err != nil {
			return err
		}
		var got []types.Offset
		for _, pp := range p.Partitions {
			got = append(got, pp.CutAt)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("it would cut at %v", got)
		}
		return nil
	})
	return p
}

// committedValues reads what a read_committed consumer gets of the whole topic, in order.
func committedValues(t *testing.T, b *harness.Broker, n int) []string {
	t.Helper()
	cl := b.Client(t, kgo.ConsumeTopics("tx"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	var values []string
	for len(values) < n {
		fetches := cl.PollFetches(harness.Context(t))
		if err := fetches.Err0(); err != nil {
			t.Fatalf("after %q: %v", values, err)
		}
		for _, r := range fetches.Records() {
			values = append(values, fmt.Sprint(r.Partition, " ", string(r.Value)))
		}
	}
	slices.Sort(values)
	return values
}

// cutEntries gives from and to of the vault's entries of consistent cuts, by partition.
func cutEntries(t *testing.T, b *harness.Broker) map[int32][2]types.Offset {
	t.Helper()
	list, err := b.Vault().List()
	if err != nil {
		t.Fatal(err)
	}
	out := map[int32][2]types.Offset{}
	for _, e := range list {
		if e.Cause == log.CauseConsistent {
			out[e.Partition] = [2]types.Offset{e.From, e.To}
		}
	}
	return out
}

// TestConsistentFailover: a transaction whose marker is missing in one of three
// partitions is committed in none after the failover. The preview says so before,
// what is cut is in the vault, and group offsets follow.
func TestConsistentFailover(t *testing.T) {
	src := newTxnSource(t, 3)
	standby := startStandby(t)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{src.Addr}})
	src.halfMirrored(t)
	commit(t, src.Admin(t), "readers", "tx", 7, 6, 3)
	for p, end := range []int64{7, 6, 5} {
		awaitEnd(t, standby, "tx", int32(p), end)
	}
	adm := standby.Admin(t)
	harness.Eventually(t, "group offsets mirrored", func() bool { return committed(t, adm, "readers", "tx", 0) == 7 })

	p := awaitPlannedCuts(t, standby, 5, 5, 5)
	if p.Records != 3 || p.Markers != 2 || p.Partitions[0].Markers != 1 || p.Partitions[0].Records != 2 || p.Partitions[1].Records != 1 || p.Partitions[2].Records != 0 || p.Plan == "" ||
		len(p.Partitions[0].Cuts) != 1 || len(p.Partitions[0].Groups) != 1 || p.Partitions[0].MinTimestamp <= 0 {
		t.Errorf("preview: %+v", p)
	}
	src.Stop(t)
	if _, err := standby.Mirrors().FailoverConsistent(harness.Context(t), "m", nil, "0123456789ab"); !errors.Is(err, mirror.ErrPlan) {
		t.Errorf("another plan: %v", err)
	}
	if st := status(t, standby); st.State != "RUNNING" {
		t.Errorf("a refused failover leaves the mirror %s", st.State)
	}
	st, err := standby.Mirrors().FailoverConsistent(harness.Context(t), "m", nil, p.Plan)
	if err != nil {
		t.Fatal(err)
	}
	for _, pp := range st.Partitions {
		if pp.Promotion == nil || pp.Promotion.LastMirroredOffset != 5 {
			t.Errorf("%s-%d: promotion %+v: %s", pp.Topic, pp.Partition, pp.Promotion, pp.Reason)
		}
	}
	if got := committed(t, adm, "readers", "tx", 0); got != 5 {
		t.Errorf("the group is at %d, the log was cut at 5", got)
	}
	want := []string{"0 whole a", "0 whole b", "1 whole a", "1 whole b", "2 after", "2 whole a", "2 whole b"}
	standby.Produce(t, "tx", 2, "after")
	if got := committedValues(t, standby, len(want)); !slices.Equal(got, want) {
		t.Errorf("committed: %q, want %q", got, want)
	}
	if got := cutEntries(t, standby); len(got) != 2 || got[0] != [2]types.Offset{5, 7} || got[1] != [2]types.Offset{5, 6} {
		t.Errorf("the vault has %v", got)
	}
	again, err := standby.Mirrors().FailoverConsistent(harness.Context(t), "m", nil, "")
	if err != nil || !slices.EqualFunc(st.Partitions, again.Partitions, func(a, b mirror.PartitionStatus) bool { return *a.Promotion == *b.Promotion }) {
		t.Errorf("the failover again: %+v, %v", again.Partitions, err)
	}
}

// TestConsistentFailoverOnReplicas: every replica of a cluster makes the cut, each with its own vault.
func TestConsistentFailoverOnReplicas(t *testing.T) {
	src := newTxnSource(t, 3)
	c := harness.StartCluster(t, 3, append([]harness.Option{
		harness.WithSetting("mirror.replication.factor", "3"), harness.WithSetting("min.insync.replicas", "2"),
	}, quick...)...)
	mirrorOf(t, c.Nodes[1], mirror.Spec{Bootstrap: []string{src.Addr}})
	src.halfMirrored(t)
	for p, end := range []int64{7, 6, 5} {
		awaitEnd(t, c.Nodes[1], "tx", int32(p), end)
	}
	harness.Eventually(t, "every replica has everything", func() bool {
		for p, end := range []types.Offset{7, 6, 5} {
			if r := c.Record("tx", int32(p)); r == nil || len(r.ISR) != 3 {
				return false
			}
			for _, id := range three {
				topic, _ := c.Nodes[id].Image().TopicByName("tx")
				part, ok := c.Nodes[id].Partition(topic.Record.ID, int32(p))
				if !ok {
					return false
				}
				if v, open := part.View(); !open || v.LogEnd != end {
					return false
				}
			}
		}
		return true
	})
	awaitPlannedCuts(t, c.Nodes[2], 5, 5, 5)
	src.Stop(t)
	st, err := c.Nodes[3].Mirrors().FailoverConsistent(harness.Context(t), "m", nil, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, pp := range st.Partitions {
		if pp.Promotion == nil || pp.Promotion.LastMirroredOffset != 5 {
			t.Errorf("%s-%d: promotion %+v: %s", pp.Topic, pp.Partition, pp.Promotion, pp.Reason)
		}
	}
	c.AwaitEqual(t, "tx", three...)
	for _, id := range three {
		if got := cutEntries(t, c.Nodes[id]); len(got) != 2 || got[0] != [2]types.Offset{5, 7} || got[1] != [2]types.Offset{5, 6} {
			t.Errorf("node %d: the vault has %v", id, got)
		}
	}
}

// TestConsistentFailoverIsRefused: what isn't known is said, with the way out, and nothing changes.
func TestConsistentFailoverIsRefused(t *testing.T) {
	src := newTxnSource(t, 2)
	standby := startStandby(t)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{src.Addr}})
	src.data(t, 7, 0, 0, "a", 0, 1)
	src.commit(t, 7, 1, 0, 1)
	awaitEnd(t, standby, "tx", 0, 3)
	awaitEnd(t, standby, "tx", 1, 3)
	src.Stop(t)
	standby = standby.Restart(t)
	harness.Eventually(t, "the mirror is at work again", func() bool { return len(status(t, standby).Partitions) == 2 })
	_, err := standby.Mirrors().FailoverConsistent(harness.Context(t), "m", nil, "")
	if !errors.Is(err, mirror.ErrState) {
		t.Errorf("a node that never saw the source: %v", err)
	}
	for _, p := range status(t, standby).Partitions {
		if p.Promotion != nil {
			t.Errorf("a refused failover has promoted %s-%d", p.Topic, p.Partition)
		}
	}
	failover(t, standby)
}
