package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tidemark/internal/broker/coordinator"
	"tidemark/internal/clock"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// The parts of a drill that each broker does (docs/format/mirror-verb-api.md).
const (
	drillParts         = "drill-"
	partDrillRehearse  = drillParts + "rehearse"
	partDrillRoll      = drillParts + "roll"
	partDrillPoint     = drillParts + "point"
	partDrillFork      = drillParts + "fork"
	partDrillServe     = drillParts + "serve"
	partDrillOffsets   = drillParts + "offsets"
	partDrillProve     = drillParts + "prove"
	partDrillLook      = drillParts + "look" // of all drills
	drillProofKey      = "tidemark-drill"
	drillPointPatience = 5 * time.Second

	notForked core.Reason = "NOT_FORKED"
)

// drillPart is what a drill asks of a broker.
type drillPart struct {
	// Run is that of drill Name, begun at the revision Begun; all empty for a dry run.
	Name       string        `json:"name,omitempty"`
	Run        string        `json:"run"`
	Begun      meta.Revision `json:"begun,omitempty"`
	Partitions []drillAsk    `json:"partitions,omitempty"`
	// Offsets are to be written for groups by name.
	Offsets map[string][]drillOffset `json:"offsets,omitempty"`
}

// drillAsk is one partition of a drill as far as it has come.
type drillAsk struct {
	Topic types.TopicID        `json:"topic"`
	Of    types.TopicPartition `json:"of"`
	As    types.TopicID        `json:"as"`
	Name  string               `json:"name"`
	// Timeline names the fork's history, Epoch is its first leader epoch.
	Timeline string            `json:"timeline"`
	Epoch    types.LeaderEpoch `json:"epoch"`
	// Rolled is the highest offset at which a replica has begun a segment.
	Rolled types.Offset `json:"rolled"`
	Point  forkPoint    `json:"point"`
}

func (p *drilled) ask() drillAsk {
	return drillAsk{
		Topic: p.of.Topic, Of: p.tp, As: p.as.Topic, Name: p.name.Topic, Timeline: p.timeline, Epoch: p.made.PromotedEpoch,
		Rolled: p.rolled, Point: p.point,
	}
}

func (a drillAsk) id() meta.PartitionID {
	return meta.PartitionID{Topic: a.Topic, Number: a.Of.Partition}
}

func (a drillAsk) fork() meta.PartitionID {
	return meta.PartitionID{Topic: a.As, Number: a.Of.Partition}
}

// forkPoint is where a partition's fork ends, as its leader says in LeaderEpoch.
type forkPoint struct {
	Leader      types.BrokerID    `json:"leader"`
	LeaderEpoch types.LeaderEpoch `json:"leaderEpoch"`
	Start       types.Offset      `json:"start"`
	To          types.Offset      `json:"to"`
	LastEpoch   types.LeaderEpoch `json:"lastEpoch"` // of the record before To
	InSync      []types.BrokerID  `json:"inSync"`
	Need        int               `json:"need"` // min.insync.replicas
}

// drillOffset is a committed offset of the fork.
type drillOffset struct {
	types.TopicPartition
	Offset types.Offset `json:"offset"`
}

// drillAnswer is what a broker says of one partition, or of one group.
type drillAnswer struct {
	forkPoint
	Broker      types.BrokerID       `json:"broker"`
	BrokerEpoch types.BrokerEpoch    `json:"brokerEpoch"`
	Made        meta.PromotionRecord `json:"made,omitzero"`
	End         types.Offset         `json:"end"`
	Linked      int64                `json:"linked"`
	Copied      int64                `json:"copied"`
	Group       string               `json:"group,omitempty"`
	Fault       string               `json:"fault,omitempty"`
}

// drillHere does this broker's part.
func (m *Mirrors) drillHere(ctx context.Context, what string, p part) ([]outcome, error) {
	if p.Drill == nil {
		return nil, fmt.Errorf("%s without a drill", what)
	}
	switch what {
	case partDrillRehearse:
		return m.eachDrilled(ctx, p, m.leads, m.rehearseOne)
	case partDrillRoll:
		return m.eachDrilled(ctx, p, m.inSync, m.rollOne)
	case partDrillPoint:
		return m.eachDrilled(ctx, p, m.leads, m.pointOne)
	case partDrillFork:
		list, err := m.eachDrilled(ctx, p, m.inSync, func(ctx context.Context, part Partition, a drillAsk) (drillAnswer, error) {
			return m.forkOne(ctx, p.Drill, a)
		})
		if err == nil {
			err = m.o.Node.ForksMade()
		}
		return list, err
	case partDrillServe:
		return m.eachDrilled(ctx, p, m.leadsFork, func(ctx context.Context, part Partition, a drillAsk) (drillAnswer, error) {
			return drillAnswer{}, awaitServing(ctx, part, a.Epoch)
		})
	case partDrillProve:
		return m.eachDrilled(ctx, p, m.leadsFork, m.proveOne)
	case partDrillOffsets:
		return m.offsetsHere(ctx, p), nil
	case partDrillLook:
		return m.drillsHere(), nil
	}
	return nil, fmt.Errorf("this broker knows no part %q: it runs another version", what)
}

// eachDrilled does one part for the partitions that it concerns here.
func (m *Mirrors) eachDrilled(ctx context.Context, p part, concerns func(*meta.Image, drillAsk) (Partition, bool),
	do func(context.Context, Partition, drillAsk) (drillAnswer, error)) ([]outcome, error) {
	image, me := m.o.Node.Image(), m.o.Node.Me()
	var asks []drillAsk
	var list []led
	for _, a := range p.Drill.Partitions {
		if part, ok := concerns(image, a); ok {
			asks, list = append(asks, a), append(list, led{id: a.id(), tp: a.Of, part: part})
		}
	}
	out := make([]outcome, len(list))
	err := m.inParallel(ctx, list, out, func(i int, l led) {
		answer, err := do(ctx, l.part, asks[i])
		if err != nil {
			out[i] = outcome{TopicPartition: l.tp, Reason: notForked, Detail: err.Error()}
			return
		}
		answer.Broker, answer.BrokerEpoch = me.ID, me.Epoch
		out[i] = outcome{TopicPartition: l.tp, Drill: &answer}
	})
	return out, err
}

// leads gives a partition of the mirror that this broker leads.
func (m *Mirrors) leads(image *meta.Image, a drillAsk) (Partition, bool) {
	return m.ledBy(image, a.id())
}

// leadsFork is the same for the fork.
func (m *Mirrors) leadsFork(image *meta.Image, a drillAsk) (Partition, bool) {
	return m.ledBy(image, a.fork())
}

func (m *Mirrors) ledBy(image *meta.Image, id meta.PartitionID) (Partition, bool) {
	rec, _ := image.Partition(id.Topic, id.Number)
	if me := m.o.Node.Me(); rec == nil || rec.Leader != me.ID || rec.LeaderBrokerEpoch != me.Epoch {
		return nil, false
	}
	return m.o.Node.Partition(id.Topic, id.Number)
}

// inSync gives a partition of the mirror of which this broker holds an in-sync replica.
func (m *Mirrors) inSync(image *meta.Image, a drillAsk) (Partition, bool) {
	me := m.o.Node.Me()
	rec, _ := image.Partition(a.Topic, a.Of.Partition)
	if rec == nil || !slices.Contains(rec.ISR, meta.ISRMember{ID: me.ID, BrokerEpoch: me.Epoch}) {
		return nil, false
	}
	if a.Point.InSync != nil && !slices.Contains(a.Point.InSync, me.ID) {
		return nil, false
	}
	return m.o.Node.Partition(a.Topic, a.Of.Partition)
}

// rehearseOne computes a promotion on the shard as a failover does. The copying goes on.
func (m *Mirrors) rehearseOne(ctx context.Context, part Partition, a drillAsk) (drillAnswer, error) {
	var answer drillAnswer
	image := m.o.Node.Image()
	rec, _ := image.Partition(a.Topic, a.Of.Partition)
	if rec == nil || rec.Mirror == nil {
		return answer, errors.New("the partition can't be read here")
	}
	r := m.run(rec.Mirror.Name)
	if r == nil {
		return answer, fmt.Errorf("mirror %s is not at work on this node yet: %w; try again", rec.Mirror.Name, ErrState)
	}
	c := r.copier(a.id())
	err := part.Do(ctx, func(o Owned) error {
		rec, _ := o.Record()
		if rec == nil || o.Log() == nil || !o.Leading() {
			return errors.New("this node does not lead the partition at the moment")
		}
		if c == nil {
			c = &copier{}
		}
		done, err := c.rehearse(o, core.PromoteRequest{TimelineID: m.o.IDs.Fresh(), Step: r.settings.Load().PromotionStep, Now: m.o.Node.Now()})
		answer.Made, answer.LeaderEpoch = done.Made, rec.LeaderEpoch
		return err
	})
	return answer, err
}

// rehearse is promote that changes nothing: neither the copying nor the hold.
func (c *copier) rehearse(o Owned, req core.PromoteRequest) (core.Promotion, error) {
	rec, _ := o.Record()
	own := c.own(o)
	c.addFacts(&req, own.LogEnd)
	req.Own = &own
	return core.Promote(rec, req)
}

// rollOne has a replica begin a segment at its log end.
func (m *Mirrors) rollOne(ctx context.Context, part Partition, _ drillAsk) (drillAnswer, error) {
	var answer drillAnswer
	err := part.Do(ctx, func(o Owned) error {
		answer.End = o.Log().View().LogEnd
		return o.Log().Roll()
	})
	return answer, err
}

// pointOne says where a partition's fork ends: at the high watermark, once that is
// where every replica has begun a segment, or where it is after a while.
func (m *Mirrors) pointOne(ctx context.Context, part Partition, a drillAsk) (drillAnswer, error) {
	var answer drillAnswer
	until := clock.Now(ctx).Add(drillPointPatience)
	for {
		err := part.Do(ctx, func(o Owned) error {
			rec, _ := o.Record()
			if rec == nil || !o.Leading() {
				return errors.New("this node does not lead the partition at the moment")
			}
			v := o.Log().View()
			answer.forkPoint = forkPoint{
				Leader: m.o.Node.NodeID(), LeaderEpoch: rec.LeaderEpoch, Start: v.LogStart, To: v.HighWatermark, LastEpoch: types.NoLeaderEpoch,
				InSync: rec.ISRIDs(), Need: rec.MinISRNow(),
			}
			if m.o.Rules.ForksToLogEnd {
				answer.To = v.LogEnd
			}
			if answer.To > v.LogStart {
				answer.LastEpoch, _ = v.History.EpochForOffset(answer.To - 1)
			}
			return nil
		})
		if err != nil || answer.To >= a.Rolled || !clock.Now(ctx).Before(until) || !pause(ctx, 5*time.Millisecond) {
			return answer, err
		}
	}
}

// forkOne makes this replica's fork.
func (m *Mirrors) forkOne(ctx context.Context, d *drillPart, a drillAsk) (drillAnswer, error) {
	size, err := m.o.Node.Fork(ctx, ForkRequest{
		Of: a.id(), As: a.fork(), Name: types.TopicPartition{Topic: a.Name, Partition: a.Of.Partition},
		To: a.Point.To, Start: a.Point.Start, LeaderEpoch: a.Point.LeaderEpoch, LastEpoch: a.Point.LastEpoch,
		Epoch: a.Epoch, TimelineID: a.Timeline, Run: meta.DrillMark{Name: d.Name, Run: d.Run}, Begun: d.Begun,
	})
	return drillAnswer{Linked: size.Linked, Copied: size.Copied}, err
}

// proveOne writes a record to a partition of the fork and reads it back. That it
// fails is an answer, too.
func (m *Mirrors) proveOne(ctx context.Context, _ Partition, a drillAsk) (drillAnswer, error) {
	value := fmt.Sprintf("drill %s of %s", a.Name, a.Of)
	err := m.o.Node.Prove(ctx, a.fork(), []byte(drillProofKey), []byte(value), provePatience)
	if err != nil {
		return drillAnswer{Fault: err.Error()}, nil
	}
	return drillAnswer{}, nil
}

// offsetsHere writes the offsets of the groups that this broker coordinates.
func (m *Mirrors) offsetsHere(ctx context.Context, p part) []outcome {
	var out []outcome
	for _, name := range slices.Sorted(maps.Keys(p.Drill.Offsets)) {
		list := make([]coordinator.OffsetAndMeta, 0, len(p.Drill.Offsets[name]))
		ends := map[types.TopicPartition]types.Offset{}
		for _, o := range p.Drill.Offsets[name] {
			list = append(list, coordinator.OffsetAndMeta{TopicPartition: o.TopicPartition, Offset: o.Offset, LeaderEpoch: types.NoLeaderEpoch})
			ends[o.TopicPartition] = o.Offset // at or below the fork's end, which no cut takes back
		}
		res, err := m.o.Groups.SyncOffsetsWithin(ctx, name, list, ends)
		answer := drillAnswer{Group: name}
		switch {
		case errors.Is(err, wire.ErrNotCoordinator):
			continue
		case err != nil:
			answer.Fault = err.Error()
		case res.HasMembers:
			answer.Fault = "the group has members"
		case len(res.Pending) > 0:
			answer.Fault = fmt.Sprintf("%d offsets are beyond the fork", len(res.Pending))
		}
		out = append(out, outcome{Drill: &answer})
	}
	return out
}

// isDrillPart reports whether a part is one of a drill's.
func isDrillPart(what string) bool { return strings.HasPrefix(what, drillParts) }
