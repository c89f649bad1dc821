package statelog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"tidemark/internal/broker/api"
	"tidemark/internal/clock"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/probe"
	"tidemark/internal/wire"
)

const (
	defaultReloadAfterFailure = time.Second
	// firstReloadBackoff is short: an election is often told a moment before the
	// partition has taken up its role.
	firstReloadBackoff = 5 * time.Millisecond
)

var (
	probeLoadNotYet = probe.New("coordinator: elected before the partition serves")
	probeLateLook   = probe.New("coordinator: an answer made by a coordinator that leads no more")
)

// Node is what a coordinator has of the node that it runs on. Fields are required unless they say otherwise.
type Node struct {
	NodeID types.BrokerID
	// Image gives the newest metadata image, never nil.
	Image      func() *meta.Image
	Partitions api.Partitions
	Topics     api.Topics
	Logger     *slog.Logger
	// Now gives the wall clock's time, for what is written into records.
	Now func() types.Millis
	// Context may carry a clock; nil: the background's. Close ends the loops, not it.
	Context context.Context
}

// WithContext is the node with a context, if need be the background's.
func (n Node) WithContext() Node {
	if n.Context == nil {
		n.Context = context.Background()
	}
	return n
}

// LogOptions say what all loops of one coordinator have in common.
type LogOptions struct {
	Node
	// Topic is the internal topic that holds the state.
	Topic string
	// BufferBytes is how much a load reads at a time; 0 means 5 MiB.
	BufferBytes int
	// ReloadAfterFailure bounds the wait between two loads; 0 means a second.
	ReloadAfterFailure time.Duration
	// Unfenced: who led a partition goes on coordinating; only the simulator sets it (R10).
	Unfenced bool
}

// Term is what a loop is there for: one partition of its coordinator's topic, in the
// leader epoch that this node was elected in.
type Term struct {
	Partition int32
	Epoch     types.LeaderEpoch
	Logger    *slog.Logger
	// Context ends when the loop must.
	Context context.Context

	o      LogOptions
	cancel context.CancelFunc
	ready  chan struct{} // closed once the state is loaded for the first time, or the loop has ended
}

// NewTerm begins a term; Stop ends it.
func NewTerm(o LogOptions, partition int32, epoch types.LeaderEpoch) *Term {
	if o.ReloadAfterFailure == 0 {
		o.ReloadAfterFailure = defaultReloadAfterFailure
	}
	ctx, cancel := context.WithCancel(o.Context)
	return &Term{
		Partition: partition, Epoch: epoch, Context: ctx, o: o, cancel: cancel, ready: make(chan struct{}),
		Logger: o.Logger.With("topic", o.Topic, "partition", partition, "leaderEpoch", epoch),
	}
}

// term makes a loop of whatever embeds a Term.
func (t *Term) term() *Term { return t }

// Stop tells the loop to end; it doesn't wait.
func (t *Term) Stop() { t.cancel() }

// Ready is closed once requests are taken, or never will be.
func (t *Term) Ready() <-chan struct{} { return t.ready }

func (t *Term) isReady() bool {
	select {
	case <-t.ready:
		return true
	default:
		return false
	}
}

// BecomeReady lets requests in. The loop calls it, once its state is loaded.
func (t *Term) BecomeReady() {
	if !t.isReady() {
		close(t.ready)
	}
}

// Leads reports whether this node serves the partition right now: a node that is
// cut off from the metadata hears of no other leader, and its lease must tell it
// that there may be one (R10). What it knows was true at that moment only if it
// is asked after the answer was made.
func (t *Term) Leads() bool {
	topic, ok := t.o.Image().TopicByName(t.o.Topic)
	if !ok {
		return false
	}
	_, err := t.o.Partitions.Get(topic.Record.ID, t.Partition)
	return err == nil || t.o.Unfenced
}

// Serve has the loop live until the term is over. A life that ends before, by a broken
// invariant, a partition that can't be read or whatever else live gives as its error,
// costs the loop a fresh start, not the broker: failed is told, then it lives again.
func (t *Term) Serve(live func() error, failed func(err error)) {
	defer t.BecomeReady()
	defer t.cancel()
	backoff := firstReloadBackoff
	for {
		err := live()
		if t.Context.Err() != nil {
			return
		}
		if errors.Is(err, ErrNotYet) {
			probeLoadNotYet.Reached()
			t.Logger.Debug("a coordinator's partition isn't served here yet", "err", err)
		} else {
			failed(err)
			backoff = t.o.ReloadAfterFailure
		}
		if clock.Sleep(t.Context, backoff) != nil {
			return
		}
		backoff = min(2*backoff, t.o.ReloadAfterFailure)
	}
}

// EndCode is what those are told who still wait when a life ends with err.
func (t *Term) EndCode(err error) wire.ErrCode {
	if err != nil && t.Context.Err() == nil {
		return wire.ErrCoordinatorNotAvailable
	}
	return wire.ErrNotCoordinator
}

// Guarded runs f and gives its error, or its panic as one.
func Guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if _, ended := p.(clock.Ended); ended {
				panic(p) // nothing of this process answers any more
			}
			err = fmt.Errorf("%v\n%s", p, debug.Stack())
		}
	}()
	return f()
}
