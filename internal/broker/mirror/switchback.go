package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tidemark/internal/assert"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
	"tidemark/internal/wire"
)

// A switchover that fails, or whose node dies, is given up in the mirror's record, and
// only then its fences at the source are taken back: by the node that was at work, and
// by another one once that has lost its registration (docs/adr/0032).

// holder is this node in its present registration.
func (m *Mirrors) holder() core.Holder {
	me := m.o.Node.Me()
	return core.Holder{Broker: me.ID, Epoch: me.Epoch}
}

// restoreOf is the restore that an image's metadata came from, empty if from none.
func restoreOf(image *meta.Image) string {
	if c, ok := image.Cluster(); ok {
		return c.Record.RestoreID()
	}
	return ""
}

// switches counts the switchovers of a mirror that this node works at.
func (m *Mirrors) switches(name string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.switching == nil {
		m.switching = map[string]int{}
	}
	if m.switching[name] += n; m.switching[name] == 0 {
		delete(m.switching, name)
	}
}

func (m *Mirrors) isSwitching(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.switching[name] > 0
}

// begin writes the switchover's attempt into the mirror's record, before anything is
// closed. Below meta.LevelAttempts, and where nothing can be fenced, there is none.
func (s *sides) begin(ctx context.Context) error {
	s.began = s.m.holder()
	s.m.switches(s.name, 1)
	image := s.m.o.Node.Image()
	if !s.tidemark || image.FeatureLevel(meta.FeatureMetadata) < meta.LevelAttempts {
		return nil
	}
	return s.m.update(ctx, s.name, func(rec *meta.MirrorRecord) error {
		if err := isPresent(rec, s.start); err != nil {
			return err
		}
		s.began = s.m.holder()
		next, err := core.BeginSwitchover(rec, s.began, restoreOf(image), s.m.o.Node.Now())
		if err != nil {
			return fmt.Errorf("mirror %s: %w: %w", s.name, err, ErrState)
		}
		*rec, s.attempt = next, next.Switch.Attempt
		return nil
	})
}

// end is the end of this node's work at a switchover: what it has left, as far as something
// is left, is taken up like that of a node which died.
func (s *sides) end() {
	s.m.switches(s.name, -1)
	s.m.LookAgain()
}

// order decides for the promotion, in the one transaction that also says that the
// attempt wasn't given up (R8). Without an attempt it compares the registration alone.
func (s *sides) order(ctx context.Context) error {
	return s.m.update(ctx, s.name, func(rec *meta.MirrorRecord) error {
		if err := isPresent(rec, s.start); err != nil {
			return err
		}
		next, err := s.ordered(rec)
		if err != nil {
			return fmt.Errorf("mirror %s: %w: %w", s.name, err, ErrState)
		}
		*rec = next
		return nil
	})
}

// isOrdered reports whether the record says that this attempt was ordered: what giveUp was
// refused for, where the order's own answer was lost.
func (s *sides) isOrdered() bool {
	e, ok := s.m.o.Node.Image().Mirror(s.name)
	if !ok || e.Record.Switch == nil || s.attempt.IsZero() {
		return false
	}
	return e.Record.Switch.Attempt == s.attempt && e.Record.Switch.State == meta.SwitchOrdered
}

func (s *sides) ordered(rec *meta.MirrorRecord) (meta.MirrorRecord, error) {
	switch {
	case s.attempt.IsZero() && s.m.holder() == s.began && (rec.Switch == nil || rec.Switch.State != meta.SwitchWorking):
		out := *rec
		out.Want, out.Cut = meta.WantStopped, nil
		return out, nil
	case s.attempt.IsZero():
		return meta.MirrorRecord{}, &core.Refusal{Reason: core.StaleRequest, Detail: "this node's registration, or the cluster's level, is another one than when the switchover began"}
	}
	return core.OrderSwitchover(rec, s.attempt, s.m.holder())
}

// giveUp decides against the promotion. From then on this node may take the fences back.
// own, if not zero, is the attempt that it is about.
func (m *Mirrors) giveUp(ctx context.Context, name string, own meta.Attempt, alive func(core.Holder) bool) (*meta.Switchover, error) {
	var given meta.MirrorRecord
	var by core.Holder
	err := m.update(ctx, name, func(rec *meta.MirrorRecord) (err error) {
		if !own.IsZero() && (rec.Switch == nil || rec.Switch.Attempt != own) {
			return &core.Refusal{Reason: core.StaleRequest, Detail: "another switchover of the mirror has begun since"}
		}
		by = m.holder()
		given, err = core.GiveUpSwitchover(rec, by, restoreOf(m.o.Node.Image()), alive)
		if err == nil {
			*rec = given
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	checkGivenUp(&given, by)
	return given.Switch, nil
}

func checkGivenUp(given *meta.MirrorRecord, by core.Holder) {
	// Invariant I-265: a fence is taken back only after the transaction that gave its attempt up, by the broker that did so.
	assert.That(core.MayTakeBack(given, given.Switch.Attempt, by), "I-265: mirror %s: %+v is to be taken back", given.Name, *given.Switch)
}

// isReturnDue reports whether this node is to take the fences of a switchover back.
func (m *Mirrors) isReturnDue(rec *meta.MirrorRecord) bool {
	image := m.o.Node.Image()
	if m.o.Rules.ReturnsUndecided {
		return rec.Switch != nil && rec.Switch.State == meta.SwitchWorking && rec.Switch.Broker != m.o.Node.NodeID()
	}
	return core.IsReturnDue(rec, m.holder(), restoreOf(image), registeredIn(image), m.isSwitching(rec.Name))
}

// registeredIn reports whether a broker still has a registration.
func registeredIn(image *meta.Image) func(core.Holder) bool {
	return func(h core.Holder) bool {
		epoch, ok := image.BrokerEpoch(h.Broker)
		return ok && epoch == h.Epoch
	}
}

// finishReturn gives up the switchover that nobody works at any more, and takes its
// fences back, until that is done or another's to do.
func (r *run) finishReturn(ctx context.Context) {
	for n := 1; ctx.Err() == nil; n++ {
		image := r.m.o.Node.Image()
		e, ok := image.Mirror(r.name)
		if !ok || !r.m.isReturnDue(e.Record) {
			return
		}
		began := e.Record.Switch.Broker
		given, err := e.Record.Switch, error(nil)
		if !r.m.o.Rules.ReturnsUndecided {
			given, err = r.m.giveUp(ctx, r.name, meta.Attempt{}, registeredIn(image))
		}
		if err == nil {
			err = r.takeBack(ctx, given, began)
		}
		if err == nil {
			r.health.ok(syncSwitch)
			return
		}
		if refused := (*core.Refusal)(nil); errors.As(err, &refused) {
			continue // it is another's by now, which the record says
		}
		if r.health.failed(syncSwitch, err) || r.health.isToldAgain(syncSwitch) {
			r.m.log.Warn("a switchover that nobody works at any more can't be taken back yet, and is tried again and again", "mirror", r.name, "broker", began, "err", firstLines(err.Error()))
		}
		if !pause(ctx, max(time.Second, r.backoff(n))) {
			return
		}
	}
}

// takeBack takes the fences of an attempt back that was given up, wherever they stand,
// and tells it. began is the broker whose switchover it was, as far as that is known.
func (r *run) takeBack(ctx context.Context, given *meta.Switchover, began types.BrokerID) error {
	s := &sides{m: r.m, r: r, name: r.name, start: given.StartID, attempt: given.Attempt, tidemark: true}
	left, err := s.findClosed(ctx)
	if err != nil {
		return err
	}
	opened, unnamed := 0, false
	answers, err := s.ask(ctx, askTakeBack, false)
	if isUnknownVerb(err) {
		unnamed, err = true, nil
	}
	for _, f := range answers {
		switch reason, _ := core.ReasonOf(f.Fault); {
		case f.Fault == "" && f.Opened:
			opened++
		case f.Fault == "" || reason == core.StaleRequest: // nothing of this attempt stands there
		case reason == core.FenceUnnamed:
			unnamed = true
		default:
			err = errors.Join(err, fmt.Errorf("%s: %s", f.TopicPartition, f.Fault))
		}
	}
	if err = errors.Join(err, left); err != nil {
		return err
	}
	if err := s.returned(ctx); err != nil {
		return err
	}
	e := Event{At: r.m.o.Node.Now(), Mirror: r.name, Kind: SwitchoverReturned, Message: fmt.Sprintf(
		"mirror %s: the switchover that broker %d was at work at ended before its order to promote: %d partitions of the source are opened again, and the mirror runs on%s", r.name, began, opened, r.m.stayClosedWords(r.name, given.StartID, given.At))}
	if unnamed {
		e.Kind, e.Message = SourceLeftClosed, fmt.Sprintf("mirror %s: the switchover that broker %d was at work at ended before its order to promote, and its source is of a version, "+
			"or at a level, that can't be asked to open again: `tidemark mirror reopen` there does", r.name, began)
	}
	r.m.log.Info("a switchover that nobody worked at any more is over", "mirror", r.name, "attempt", given.Attempt.Number, "opened", opened)
	r.m.events.add(r.m.log, e)
	return nil
}

// returned writes that the fences are taken back, if that is still this node's to say.
func (s *sides) returned(ctx context.Context) error {
	err := s.m.update(ctx, s.name, func(rec *meta.MirrorRecord) error {
		next, err := core.EndReturn(rec, s.attempt, s.m.holder())
		if err == nil {
			*rec = next
		}
		return err
	})
	var refused *core.Refusal
	if errors.As(err, &refused) {
		return nil
	}
	return err
}

// findClosed learns who leads the partitions at the source that a switchover may have
// closed: those that still follow this mirror, or another one of the same source that has taken
// them over meanwhile. What the source no longer has isn't closed; left names what
// can't be asked at the moment.
func (s *sides) findClosed(ctx context.Context) (left error, err error) {
	client, err := s.r.source()
	if err != nil {
		return nil, err
	}
	md, err := client.Metadata(ctx, nil)
	if err != nil {
		return nil, err
	}
	topics := make(map[string]*source.Topic, len(md.Topics))
	for i := range md.Topics {
		topics[md.Topics[i].Name] = &md.Topics[i]
	}
	image := s.m.o.Node.Image()
	cluster := s.r.record.Load().SourceClusterID
	for t := range image.TopicsByName() {
		at := topics[t.Record.Name]
		for p := range image.PartitionsOf(t.ID) {
			n := p.ID.Number
			if at == nil || !at.ID.IsZero() && at.ID != t.ID || int(n) >= len(at.Partitions) || !mayBeClosed(p.Record, s.name, cluster) {
				continue
			}
			tp := types.TopicPartition{Topic: t.Record.Name, Partition: n}
			if leader := at.Partitions[n].Leader; leader != types.NoBroker {
				s.list = append(s.list, switched{id: p.ID, tp: tp, leader: leader})
				continue
			}
			left = errors.Join(left, fmt.Errorf("nobody leads %s at the source at the moment", tp))
		}
	}
	return left, nil
}

// mayBeClosed reports whether a switchover of a mirror may have left a partition of its source
// closed to no purpose: it is mirrored here yet. A take-back opens its own attempt's fences
// alone, so that asking for too many does no harm.
func mayBeClosed(rec *meta.PartitionRecord, mirror, source string) bool {
	return rec != nil && rec.IsMirror() && (rec.Mirror.Name == mirror || source != "" && rec.Mirror.SourceClusterID == source)
}

// isUnknownVerb reports whether a source refused the verb because it is of a program that
// doesn't know it: such a one takes it for a part that its own brokers ask for.
func isUnknownVerb(err error) bool {
	var refused *source.Error
	return errors.As(err, &refused) && refused.Code == source.Code(wire.ErrClusterAuthorizationFailed)
}

// returningWords says, of a failover, that the source may be on its way to be opened: a
// failover asks the source nothing, and so counts on no fence there.
func (m *Mirrors) returningWords(name, start string) []string {
	e, ok := m.o.Node.Image().Mirror(name)
	if !ok || e.Record.Switch == nil || e.Record.Switch.StartID != start || e.Record.Switch.State != meta.SwitchReturning {
		return nil
	}
	return []string{"A switchover was given up before, and its source may have been opened to writes since: look there."}
}
