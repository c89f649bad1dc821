package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tidemark/internal/broker/coordinator"
	"tidemark/internal/clock"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// A verb's change of a partition is its leader's to make (R7). The node that an
// operator talks to asks every live broker for its part, over the Kafka listener
// between brokers (key 32001), and puts the outcomes together.

// The parts that brokers of one cluster ask of each other, and those that a
// mirror asks of its source's brokers.
const (
	partPreview = "preview"
	partStart   = "start"
	partPromote = "promote"
	partAbandon = "abandon"
	partState   = "state"
	partGap     = "accept-gap"
	partPast    = "groups-past"
	partEnds    = "ends"
	partReopen  = "reopen-here"
	partTxns    = "transactions"
	partStatus  = "status"

	partCutSurvey = "cut-survey"
	partSettle    = "end-transactions-here"

	askFence  = "fence"
	askReopen = "reopen"
	// askTakeBack is reopen of a fence that names an attempt: an older program doesn't know it.
	askTakeBack = "take-back"
	askReverse  = "reverse"
	askSettle   = "end-transactions"

	askReverseLook = "reverse-look"
)

// part is what a broker is asked to do with the partitions that it leads.
type part struct {
	// Broker and Epoch are the asking broker's present registration.
	Broker types.BrokerID    `json:"broker"`
	Epoch  types.BrokerEpoch `json:"epoch"`
	Mirror string            `json:"mirror"`
	// Topics bound it; empty: all of the mirror's.
	Topics []string `json:"topics,omitempty"`
	// StartID, Plans and Rollback are a start's.
	StartID  string            `json:"startId,omitempty"`
	Plans    map[string]string `json:"plans,omitempty"` // by topic-partition
	Rollback bool              `json:"rollback,omitempty"`
	// TopicStart is what an order for single topics quotes, empty if it quotes nothing (core.TopicStart).
	TopicStart string `json:"topicStart,omitempty"`
	// Want is the state part's: paused or running.
	Want string            `json:"want,omitempty"`
	Cuts []coordinator.Cut `json:"cuts,omitempty"`
	// Offices are all coordinators of groups, as the asking broker's image has them: who
	// is named must be one in that epoch, or has not done its part.
	Offices []coordinator.Office `json:"offices,omitempty"`
	// Drill is a drill's.
	Drill *drillPart `json:"drill,omitempty"`
	// Since, Cut and CutID are a consistent failover's: how far back transactions are
	// told, the offsets to survey by topic-partition, and the cut that a promotion is to be at.
	Since types.Millis            `json:"since,omitempty"`
	Cut   map[string]types.Offset `json:"cut,omitempty"`
	CutID string                  `json:"cutId,omitempty"`
	// Settle are the partitions that transactions are to end in, for a switchover.
	Settle []types.TopicPartition `json:"settle,omitempty"`

	heard bool // this node has heard of the start StartID: where its image shows another, that is a later one
}

// outcome is what became of one partition.
type outcome struct {
	types.TopicPartition
	// Reason and Detail say why it was refused; both empty: done.
	Reason core.Reason    `json:"reason,omitempty"`
	Detail string         `json:"detail,omitempty"`
	Plan   *PartitionPlan `json:"plan,omitempty"`
	Past   *GroupPast     `json:"past,omitempty"`
	Drill  *drillAnswer   `json:"drill,omitempty"`
	Txns   *txnLook       `json:"txns,omitempty"`
	// Open are transactions without a marker in the log, of the part that asks for ends.
	Open []openTxn `json:"open,omitempty"`
	// Settled is a coordinator's, for a partition of __transaction_state.
	Settled *settled `json:"settled,omitempty"`
	// Status is how the partition stands, as its leader knows it.
	Status *PartitionStatus `json:"status,omitempty"`
	// Switchover is the mirror's, of no partition, from the broker that is at work at it.
	Switchover *SwitchoverStatus `json:"switchover,omitempty"`
}

func refusedOutcome(tp types.TopicPartition, err error) outcome {
	var r *core.Refusal
	if errors.As(err, &r) {
		return outcome{TopicPartition: tp, Reason: r.Reason, Detail: r.Detail}
	}
	return outcome{TopicPartition: tp, Reason: reasonOf(err), Detail: err.Error()}
}

// sentence is the refusal in words.
func (o outcome) sentence() string {
	if o.Detail == "" {
		return fmt.Sprintf("%s: %s", o.TopicPartition, o.Reason)
	}
	return fmt.Sprintf("%s: %s: %s", o.TopicPartition, o.Reason, o.Detail)
}

// everywhere has every live broker do its part, and gives all outcomes in order.
// Brokers that could not be asked are in the error, beside the outcomes of the others.
func (m *Mirrors) everywhere(ctx context.Context, what string, p part, patience time.Duration) ([]outcome, error) {
	var live []types.BrokerID
	for b := range m.o.Node.Image().Brokers() {
		live = append(live, b.ID)
	}
	return m.ask(ctx, live, what, p, patience)
}

// ask has brokers do their part, as everywhere does.
func (m *Mirrors) ask(ctx context.Context, brokers []types.BrokerID, what string, p part, patience time.Duration) ([]outcome, error) {
	me := m.o.Node.Me()
	p.Broker, p.Epoch = me.ID, me.Epoch
	body, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var all []outcome
	var faults []error
	var work sync.WaitGroup
	for _, id := range brokers {
		clock.Go(ctx, &work, func() {
			var list []outcome
			var err error
			if id == me.ID {
				list, err = m.doPart(ctx, what, p)
			} else {
				list, err = m.askPart(ctx, id, what, body, patience)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, list...)
			if err != nil {
				faults = append(faults, fmt.Errorf("broker %d: %w", id, err))
			}
		})
	}
	clock.Join(ctx, &work)
	slices.SortFunc(all, func(a, b outcome) int { return comparePartitions(a.TopicPartition, b.TopicPartition) })
	return all, errors.Join(faults...)
}

func (m *Mirrors) askPart(ctx context.Context, id types.BrokerID, what string, body []byte, patience time.Duration) ([]outcome, error) {
	raw, err := m.o.Node.AskPeer(ctx, id, what, body, patience)
	if err != nil {
		return nil, err
	}
	var list []outcome
	return list, json.Unmarshal(raw, &list)
}

// Verb does this broker's part of a verb for another broker, of this cluster or
// of a mirror's (api.Verbs).
func (m *Mirrors) Verb(ctx context.Context, what string, body []byte) ([]byte, error) {
	switch what {
	case askFence, askReopen, askTakeBack, askReverse, askReverseLook, askSettle:
		return m.forMirror(ctx, what, body)
	}
	var p part
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, wire.Errorf(wire.ErrInvalidRequest, "the body of %s can't be read: %v", what, err)
	}
	if e, ok := m.o.Node.Image().BrokerEpoch(p.Broker); !ok || e != p.Epoch {
		return nil, wire.Errorf(wire.ErrClusterAuthorizationFailed, "only registered brokers of this cluster may ask for %s", what)
	}
	list, err := m.doPart(ctx, what, p)
	if err != nil {
		return nil, wire.Errorf(wire.ErrInvalidRequest, "%v", err)
	}
	return json.Marshal(list)
}

func (m *Mirrors) doPart(ctx context.Context, what string, p part) ([]outcome, error) {
	switch what {
	case partGroupsCut:
		return nil, m.groupsCutHere(ctx, p)
	case partGroupsTaken:
		return nil, m.groupsTakenHere(ctx, p)
	}
	if isDrillPart(what) {
		return m.drillHere(ctx, what, p)
	}
	switch what {
	case partPreview:
		return m.previewHere(ctx, p)
	case partStart:
		return m.startHere(ctx, p)
	case partPromote:
		return m.promoteHere(ctx, p)
	case partAbandon:
		return m.abandonHere(ctx, p)
	case partState:
		return m.stateHere(ctx, p)
	case partGap:
		m.awaitGaps(ctx, p)
		return m.changeHere(ctx, p, core.AcceptGap)
	case partPast:
		return m.pastHere(ctx, p)
	case partEnds:
		return m.endsHere(p), nil
	case partReopen:
		return m.reopenHere(ctx, p)
	case partTxns:
		return m.txnsHere(ctx, p)
	case partStatus:
		return m.statusHere(p), nil
	case partCutSurvey:
		return m.surveyHere(ctx, p)
	case partSettle:
		return m.settleHere(ctx, p), nil
	}
	return nil, fmt.Errorf("this broker knows no part %q: it runs another version", what)
}

// ledHere lists the partitions of topics of the image that this node leads and holds, in order.
func (m *Mirrors) ledHere(image *meta.Image, fits func(*meta.Topic, *meta.Partition) bool) []led {
	me := m.o.Node.Me()
	var list []led
	for t := range image.TopicsByName() {
		for p := range image.PartitionsOf(t.ID) {
			if p.Record == nil || p.Record.Leader != me.ID || p.Record.LeaderBrokerEpoch != me.Epoch || !fits(t, p) {
				continue
			}
			if part, held := m.o.Node.Partition(p.ID.Topic, p.ID.Number); held {
				list = append(list, led{id: p.ID, tp: part.Name(), part: part})
			}
		}
	}
	return list
}

// led is one partition that this node leads.
type led struct {
	id   meta.PartitionID
	tp   types.TopicPartition
	part Partition
}

// isOf reports whether a partition follows a mirror and is among the topics that p names.
func (p part) isOf(t *meta.Topic, e *meta.Partition) bool {
	return e.Record.IsMirror() && e.Record.Mirror.Name == p.Mirror && p.names(t.Record.Name)
}

func (p part) names(topic string) bool { return len(p.Topics) == 0 || slices.Contains(p.Topics, topic) }

// changeHere writes what change makes of each of the mirror's partitions led
// here; those that somebody else wrote meanwhile are tried again.
func (m *Mirrors) changeHere(ctx context.Context, p part, change func(*meta.PartitionRecord) (meta.PartitionRecord, error)) ([]outcome, error) {
	var done []outcome
	for try := 1; ; try++ {
		image := m.o.Node.Image()
		done = done[:0]
		var changes []*awaited
		for _, l := range m.ledHere(image, p.isOf) {
			rec, rev := image.Partition(l.id.Topic, l.id.Number)
			next, err := change(rec)
			if err != nil {
				done = append(done, refusedOutcome(l.tp, err))
				continue
			}
			done = append(done, outcome{TopicPartition: l.tp})
			if string(next.Encode()) != string(rec.Encode()) {
				changes = append(changes, newAwaited(l.id, rev, next))
			}
		}
		refused, err := m.writeAll(ctx, changes)
		switch {
		case err != nil:
			return nil, err
		case refused == 0:
			return done, nil
		case try == commitTries:
			return nil, fmt.Errorf("mirror %s: %d partitions can't be written; try again", p.Mirror, refused)
		}
	}
}

// stateHere is pause and resume.
func (m *Mirrors) stateHere(ctx context.Context, p part) ([]outcome, error) {
	turn := core.Pause
	if p.Want == meta.WantRunning {
		turn = core.Resume
	}
	list, err := m.changeHere(ctx, p, func(rec *meta.PartitionRecord) (meta.PartitionRecord, error) {
		if !isUnturned(p.Want, rec) {
			return *rec, nil // a failed one that is to go on tries again, and leaves FAILED once its cause is gone
		}
		return turn(rec)
	})
	if r := m.run(p.Mirror); r != nil && p.Want == meta.WantRunning {
		for _, c := range r.all() {
			c.send(core.RetryNow{})
		}
	}
	return list, err
}

// pastTries bounds the wait for coordinators that have just moved here: two seconds in all.
const pastTries = 13

// pastHere names the groups coordinated here that have read past cuts.
func (m *Mirrors) pastHere(ctx context.Context, p part) ([]outcome, error) {
	past, err := m.o.Groups.Past(ctx, p.Cuts)
	for n := 1; err != nil && n <= pastTries && pause(ctx, time.Duration(n)*20*time.Millisecond); n++ {
		past, err = m.o.Groups.Past(ctx, p.Cuts) // a coordinator may still be loading
	}
	list := make([]outcome, len(past))
	for i, l := range past {
		list[i] = outcome{TopicPartition: l.TopicPartition, Past: &GroupPast{Group: l.Group, Offset: l.From}}
	}
	return list, err
}
