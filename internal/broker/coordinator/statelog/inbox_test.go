package statelog

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"tidemark/internal/await"
	"tidemark/internal/broker/api"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// servedHere is a node that serves every partition, or refuses.
type servedHere struct {
	api.Partitions
	refuse error
}

func (s servedHere) Get(types.TopicID, int32) (api.Partition, error) { return nil, s.refuse }

// echo is a loop without a state: its life runs tasks until one ends it.
type echo struct {
	*Term
	inbox *Inbox[uint64, string]
	lives chan error // what ended each life
}

func (e *echo) Run() {
	defer e.inbox.Shut("shut")
	e.Serve(func() error {
		err := Guarded(func() error {
			e.BecomeReady()
			for {
				select {
				case <-e.Context.Done():
					return nil
				case <-e.inbox.News():
					e.inbox.Work()
				}
			}
		})
		e.inbox.AnswerAll("ended: " + e.EndCode(err).Error())
		e.lives <- err
		return err
	}, func(error) {})
}

func newEcho(t *testing.T, refuse error) (*Loops[*echo], *echo) {
	t.Helper()
	keys, id := meta.KeysOf("cluster0cluster0cluste"), types.TopicID{15: 1}
	rec := meta.PartitionRecord{Replicas: []types.BrokerID{1}, ISR: []meta.ISRMember{{ID: 1, BrokerEpoch: 1}}, Leader: 1, LeaderBrokerEpoch: 1,
		LeaderEpoch: 1, MinISR: 1, Writable: true, Timelines: timeline.List{{ID: "root"}}}
	image, _ := meta.Load("cluster0cluster0cluste", []meta.KV{
		{Key: keys.Topic(id), Value: meta.TopicRecord{ID: id, Name: "state", Partitions: 1}.Encode(), CreateRevision: 1, ModRevision: 1},
		{Key: keys.Name("state"), Value: meta.NameRecord{ID: id}.Encode(), CreateRevision: 1, ModRevision: 1},
		{Key: keys.Partition(id, 0), Value: rec.Encode(), CreateRevision: 1, ModRevision: 1},
	}, 5)
	o := LogOptions{
		Node: Node{NodeID: 1, Image: func() *meta.Image { return image }, Partitions: servedHere{refuse: refuse},
			Logger: slog.New(slog.DiscardHandler), Context: context.Background()},
		Topic: "state", ReloadAfterFailure: time.Millisecond,
	}
	loops := NewLoops(o.Context, func(partition int32, epoch types.LeaderEpoch) *echo {
		term := NewTerm(o, partition, epoch)
		return &echo{Term: term, inbox: NewInbox[uint64, string](term, 0), lives: make(chan error, 8)}
	})
	t.Cleanup(loops.Close)
	loops.Elected(0, 3)
	return loops, loops.Of(0)
}

func (e *echo) say(word string) Task[uint64] {
	return func(id uint64) { e.inbox.Answer(id, word) }
}

func TestAsk(t *testing.T) {
	_, e := newEcho(t, nil)
	if r, code := e.inbox.Ask(t.Context(), true, e.say("yes")); r != "yes" || code != wire.None {
		t.Errorf("answered %q, %v", r, code)
	}
	_, e = newEcho(t, wire.ErrNotLeaderOrFollower)
	if _, code := e.inbox.Ask(t.Context(), true, e.say("yes")); code != wire.ErrNotCoordinator {
		t.Errorf("who doesn't lead answers %v", code)
	}
}

// A task that breaks its loop answers itself and all that were taken with it, and
// the next life goes on.
func TestATaskThatBreaksItsLoop(t *testing.T) {
	_, e := newEcho(t, nil)
	<-e.Ready()
	// One round takes all of these: the loop stands still until they are queued.
	entered, goOn := make(chan struct{}), make(chan struct{})
	e.inbox.Post(t.Context(), func(uint64) { close(entered); <-goOn })
	<-entered
	var asking sync.WaitGroup
	answers := make(chan string, 3)
	for i, do := range []Task[uint64]{func(uint64) { panic("broken") }, e.say("yes"), e.say("yes")} {
		asking.Go(func() {
			r, code := e.inbox.Ask(t.Context(), true, do)
			answers <- r + " " + code.Error()
		})
		await.True(t, "the task is queued", func() bool { // in this order
			e.inbox.queue.mu.Lock()
			defer e.inbox.queue.mu.Unlock()
			return len(e.inbox.queue.items) == i+1
		})
	}
	close(goOn)
	asking.Wait()
	for range 3 {
		if got, want := <-answers, "ended: "+wire.ErrCoordinatorNotAvailable.Error()+" "+wire.None.Error(); got != want {
			t.Errorf("answered %q, not %q", got, want)
		}
	}
	if err := <-e.lives; err == nil {
		t.Error("the life had no error")
	}
	if r, code := e.inbox.Ask(t.Context(), true, e.say("yes")); r != "yes" || code != wire.None {
		t.Errorf("the next life answers %q, %v", r, code)
	}
}

// Whoever waits when the term ends is told, and so is whoever comes later.
func TestTheEndOfATerm(t *testing.T) {
	loops, e := newEcho(t, nil)
	entered := make(chan struct{})
	held := make(chan string, 1)
	go func() {
		r, _ := e.inbox.Ask(context.Background(), true, func(uint64) { close(entered) }) // taken, not answered
		held <- r
	}()
	<-entered
	loops.Resigned(0)
	if got, want := <-held, "ended: "+wire.ErrNotCoordinator.Error(); got != want {
		t.Errorf("answered %q, not %q", got, want)
	}
	loops.Close()
	if _, code := e.inbox.Ask(t.Context(), true, e.say("yes")); code != wire.ErrNotCoordinator {
		t.Errorf("an ended loop answers %v", code)
	}
	if loops.Elected(0, 9); loops.Of(0) != nil {
		t.Error("elected after the end")
	}
}

// A later election ends the term before it; one that comes late or twice does nothing.
func TestElectedAgain(t *testing.T) {
	loops, first := newEcho(t, nil)
	loops.Elected(0, 3)
	loops.Elected(0, 2)
	if loops.Of(0) != first {
		t.Error("a repeated election began a new term")
	}
	loops.Elected(0, 4)
	if next := loops.Of(0); next == first || next.Epoch != 4 {
		t.Errorf("the next term is %+v", next.Term)
	}
	if err := <-first.lives; err != nil {
		t.Errorf("the first term ended with %v", err)
	}
}
