package mirror

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/mem"
)

// paperNode is a node of which only the metadata exists.
type paperNode struct {
	Node
	store *mem.Store

	mu sync.Mutex
	// guards the following
	image *meta.Image
	// refuse, if not nil, gives the error of a commit instead of carrying it out;
	// after is called once a commit has happened.
	refuse func(meta.Plan) error
	after  func(meta.Plan) error
}

const paperCluster = "paper"

var paperTopic = types.TopicID{7}

// newPaperNode has one topic with mirrored partitions, led by broker 1.
func newPaperNode(t *testing.T, partitions int32) *paperNode {
	t.Helper()
	n := &paperNode{store: mem.New(), image: meta.Empty(paperCluster)}
	keys := meta.KeysOf(paperCluster)
	n.put(t, keys.Broker(1), meta.BrokerRecord{ID: 1, DirectoryID: "d", Incarnation: "i"}.Encode())
	epoch, _ := n.image.BrokerEpoch(1)
	n.put(t, keys.Topic(paperTopic), meta.TopicRecord{ID: paperTopic, Name: "t", Partitions: partitions}.Encode())
	for p := range partitions {
		n.put(t, keys.Partition(paperTopic, p), meta.PartitionRecord{
			Replicas: []types.BrokerID{1}, ISR: []meta.ISRMember{{ID: 1, BrokerEpoch: epoch}}, Leader: 1, LeaderBrokerEpoch: epoch,
			MinISR: 1, Mirror: core.NewMirrored("m", "s"),
		}.Encode())
	}
	return n
}

func (n *paperNode) put(t *testing.T, key string, value []byte) {
	t.Helper()
	if _, err := n.commit(meta.Plan{Why: "test", If: []meta.Compare{meta.Absent(key)}, Then: []meta.Op{meta.Put(key, value)}}); err != nil {
		t.Fatal(err)
	}
}

func (n *paperNode) commit(p meta.Plan) (meta.Revision, error) {
	rev, err := metastore.Commit(context.Background(), n.store, p)
	kvs, at, rangeErr := n.store.Range(context.Background(), meta.KeysOf(paperCluster).Root())
	if rangeErr != nil {
		return 0, rangeErr
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.image, _ = meta.Load(paperCluster, kvs, at)
	return rev, err
}

func (n *paperNode) Commit(_ context.Context, p meta.Plan) (meta.Revision, error) {
	if n.refuse != nil {
		if err := n.refuse(p); err != nil {
			return 0, err
		}
	}
	rev, err := n.commit(p)
	if err == nil && n.after != nil {
		err = n.after(p)
	}
	return rev, err
}

func (n *paperNode) Image() *meta.Image {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.image
}

func (n *paperNode) Me() control.Me {
	e, _ := n.Image().BrokerEpoch(1)
	return control.Me{ID: 1, Epoch: e}
}

func (n *paperNode) Limits() control.Limits { return control.Limits{Ops: 100} }

// write has the writer commit new records for partitions and gives which were applied.
func (n *paperNode) write(t *testing.T, changes ...*awaited) []bool {
	t.Helper()
	m := &Mirrors{o: Options{Node: n}, log: slog.New(slog.DiscardHandler), ctx: t.Context()}
	m.writer = newWriter(m)
	list := make([]*change, len(changes))
	for i, c := range changes {
		list[i] = &c.change
	}
	m.writer.commit(list)
	m.work.Wait()
	out := make([]bool, len(changes))
	for i, c := range changes {
		select {
		case <-c.ended:
			out[i] = c.applied
		default:
			t.Fatalf("change %d was not answered", i)
		}
	}
	return out
}

// paused is the change that pauses a partition, as of the node's present image.
func (n *paperNode) paused(t *testing.T, partition int32) *awaited {
	t.Helper()
	rec, rev := n.Image().Partition(paperTopic, partition)
	next, err := core.Pause(rec)
	if err != nil {
		t.Fatal(err)
	}
	return newAwaited(meta.PartitionID{Topic: paperTopic, Number: partition}, rev, next)
}

func (n *paperNode) state(partition int32) string {
	rec, _ := n.Image().Partition(paperTopic, partition)
	return rec.Mirror.State
}

func TestWriterCommitsTogether(t *testing.T) {
	n := newPaperNode(t, 3)
	commits := 0
	n.after = func(meta.Plan) error { commits++; return nil }
	got := n.write(t, n.paused(t, 0), n.paused(t, 1), n.paused(t, 2))
	if commits != 1 || !got[0] || !got[1] || !got[2] || n.state(1) != meta.MirrorPaused {
		t.Errorf("%d commits, applied %v, state %s", commits, got, n.state(1))
	}
}

func TestWriterAnswersALateChangeAlone(t *testing.T) {
	n := newPaperNode(t, 3)
	late, early := n.paused(t, 1), n.paused(t, 1)
	if got := n.write(t, early); !got[0] {
		t.Fatalf("applied %v", got)
	}
	late.record.LeaderEpoch++
	if got := n.write(t, n.paused(t, 0), late, n.paused(t, 2)); !got[0] || got[1] || !got[2] {
		t.Errorf("applied %v, want all but the late one", got)
	}
}

func TestWriterSplitsARefusedTransaction(t *testing.T) {
	n := newPaperNode(t, 2)
	changes := []*awaited{n.paused(t, 0), n.paused(t, 1)}
	first := true
	n.refuse = func(meta.Plan) error {
		if !first {
			return nil
		}
		first = false
		if _, err := n.commit(meta.Plan{Why: "another writer", Then: []meta.Op{meta.Put(meta.KeysOf(paperCluster).Partition(paperTopic, 1), n.other(t, 1))}}); err != nil {
			t.Error(err)
		}
		return metastore.ErrRefused
	}
	if got := n.write(t, changes...); !got[0] || got[1] {
		t.Errorf("applied %v, want the first alone", got)
	}
}

// other is a record that somebody else writes.
func (n *paperNode) other(t *testing.T, partition int32) []byte {
	t.Helper()
	rec, _ := n.Image().Partition(paperTopic, partition)
	next := rec.Clone()
	next.LeaderEpoch += 5
	return next.Encode()
}

func TestWriterResolvesAnUnknownOutcome(t *testing.T) {
	n := newPaperNode(t, 1)
	n.after = func(meta.Plan) error { return errors.New("the answer was lost") }
	if got := n.write(t, n.paused(t, 0)); !got[0] || n.state(0) != meta.MirrorPaused {
		t.Errorf("a change that happened counts as not applied")
	}
	n = newPaperNode(t, 1)
	tries := 0
	n.refuse = func(meta.Plan) error {
		if tries++; tries < 3 {
			return metastore.ErrUnavailable
		}
		return nil
	}
	if got := n.write(t, n.paused(t, 0)); !got[0] || tries != 3 {
		t.Errorf("applied %v after %d tries", got, tries)
	}
}

// A record that breaks an invariant is refused by itself: the others of its
// transaction are written, and the node lives.
func TestWriterLeavesOutWhatMayNotBeWritten(t *testing.T) {
	n := newPaperNode(t, 2)
	wrong := n.paused(t, 0)
	wrong.record.LeaderEpoch = -1
	if got := n.write(t, wrong, n.paused(t, 1)); got[0] || !got[1] || n.state(1) != meta.MirrorPaused {
		t.Errorf("applied %v, state %s", got, n.state(1))
	}
}

// laggingNode is a paper node whose image stands still.
type laggingNode struct {
	*paperNode
	shown func() *meta.Image // nil: the newest
}

func (n *laggingNode) Image() *meta.Image {
	if n.shown != nil {
		return n.shown()
	}
	return n.paperNode.Image()
}

// TestARefusedRepetitionDecidesNothing: an attempt of unknown outcome had happened, and its
// repetition is refused for that. While the image stood still this was taken for the outcome,
// and what waits for it went on as if nothing had been written (R8).
func TestARefusedRepetitionDecidesNothing(t *testing.T) {
	for _, together := range []bool{false, true} {
		n := &laggingNode{paperNode: newPaperNode(t, 2)}
		changes := []*awaited{n.paused(t, 0)}
		if together {
			changes = append(changes, n.paused(t, 1))
		}
		before, looks := n.paperNode.Image(), 0
		n.shown = func() *meta.Image {
			if looks++; looks < 12 {
				return before
			}
			return n.paperNode.Image()
		}
		n.after = func(meta.Plan) error { return metastore.ErrUnknownOutcome }
		m := &Mirrors{o: Options{Node: n}, log: slog.New(slog.DiscardHandler), ctx: t.Context()}
		m.writer = newWriter(m)
		var put []*change
		for _, c := range changes {
			put = append(put, &c.change)
		}
		m.writer.commit(put)
		m.work.Wait()
		for i, c := range changes {
			if !c.applied {
				t.Errorf("together %t: change %d of %d was written and counts as refused", together, i, len(changes))
			}
		}
	}
}

// TestARefusedRepetitionThatCanNeverHappen ends: the mirror's record, which the change was
// decided on too, is another one.
func TestARefusedRepetitionThatCanNeverHappen(t *testing.T) {
	n := newPaperNode(t, 1)
	key := meta.KeysOf(paperCluster).Mirror("m")
	rec := meta.MirrorRecord{Name: "m", Want: meta.WantRunning, StartID: "s", Bootstrap: []string{"h:1"}}
	n.put(t, key, rec.Encode())
	c := n.paused(t, 0)
	e, _ := n.Image().Mirror("m")
	c.beside = []meta.Compare{meta.ModRevisionIs(key, e.ModRevision)}
	n.refuse = func(meta.Plan) error {
		n.refuse = nil
		rec.Want = meta.WantStopped
		if _, err := n.commit(meta.Plan{Why: "fail over", Then: []meta.Op{meta.Put(key, rec.Encode())}}); err != nil {
			t.Error(err)
		}
		return metastore.ErrUnknownOutcome
	}
	if got := n.write(t, c); got[0] {
		t.Error("applied")
	}
}
