package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
)

// drill is one run of a drill, on the node that was asked. Its record is begun first
// and shows its topics last (drillrecord.go): whatever ends it in between, folders and
// topics go with the record.
type drill struct {
	m      *Mirrors
	mirror string
	req    DrillRequest
	groups *regexp.Regexp
	run    meta.DrillMark
	begun  meta.Revision // of its record
	topics []*drilledTopic
	list   []*drilled // all partitions of all topics
	report DrillReport
}

type drilledTopic struct {
	name       string
	id         types.TopicID
	configs    map[string]string
	partitions []*drilled
}

// drilled is one partition on its way to be forked.
type drilled struct {
	of, as   meta.PartitionID
	tp, name types.TopicPartition // the mirror's, the fork's
	timeline string
	made     meta.PromotionRecord // what a failover would have written
	point    forkPoint
	rolled   types.Offset // the highest log end at which a replica began a segment
	inSync   []meta.ISRMember
	shown    DrillPartition
}

// errDrillRuns refuses two drills at a time from one node.
var errDrillRuns = fmt.Errorf("another drill is being made through this node: %w; try again when it is done", ErrState)

// Drill makes a fork of topics and groups of a mirror that clients may write to, and
// says how long a failover would have taken and what it would have lacked. The mirror
// goes on meanwhile, and is what it was afterwards.
func (m *Mirrors) Drill(ctx context.Context, name string, r DrillRequest) (DrillReport, error) {
	if !m.drilling.TryLock() {
		return DrillReport{}, errDrillRuns
	}
	defer m.drilling.Unlock()
	if err := core.ValidDrillName(r.Drill); err != nil {
		return DrillReport{}, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	if err := m.freeDrillName(ctx, r.Drill, r.DryRun); err != nil {
		return DrillReport{}, err
	}
	d, err := m.planDrill(name, r)
	if err != nil {
		return DrillReport{}, err
	}
	if r.DryRun {
		return d.tryOut(ctx)
	}
	if err := d.make(ctx); err != nil {
		made, known := d.giveUp(ctx)
		switch {
		case !known:
			return d.report, fmt.Errorf("drill %s of mirror %s: whether it was made is not known: %w; `mirror drill list` tells once the metadata can be read, and `mirror drill delete %s` takes it back", r.Drill, name, err, r.Drill)
		case !made:
			return d.report, fmt.Errorf("drill %s of mirror %s: %w; nothing of it was made", r.Drill, name, err)
		}
	}
	d.use(ctx)
	d.tell()
	return d.report, nil
}

// planDrill finds what a drill would fork, and refuses what can't be.
func (m *Mirrors) planDrill(name string, r DrillRequest) (*drill, error) {
	image := m.o.Node.Image()
	e, ok := image.Mirror(name)
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: %s", ErrUnknownMirror, name)
	case e.Record.Want != meta.WantRunning:
		return nil, fmt.Errorf("mirror %s is %s: %w; only of a running mirror there is a drill", name, e.Record.Want, ErrState)
	}
	chosen, err := newFilter(&meta.MirrorRecord{Topics: r.Topics, Groups: r.Groups})
	if err != nil {
		return nil, err
	}
	prefix := core.ForkPrefix(r.Drill)
	d := &drill{m: m, mirror: name, req: r, groups: chosen.groups, run: meta.DrillMark{Name: r.Drill, Run: m.o.IDs.Fresh()}}
	d.report = DrillReport{Mirror: name, Drill: r.Drill, Prefix: prefix, At: m.o.Node.Now(), DryRun: r.DryRun, FailoverMs: -1,
		Steps: []DrillStep{}, Partitions: []DrillPartition{}, Groups: []DrillGroup{}, Message: []string{}}
	for t := range image.TopicsByName() {
		if strings.HasPrefix(t.Record.Name, prefix) {
			return nil, fmt.Errorf("drill %s: topic %s exists: %w; delete that topic or drill first (mirror drill delete %s), or choose another name", r.Drill, t.Record.Name, ErrState, r.Drill)
		}
		if !isMirrored(image, name, t.Record.Name) || !chosen.topic(t.Record.Name) {
			continue
		}
		if err := d.addTopic(image, t); err != nil {
			return nil, err
		}
	}
	if len(d.list) == 0 {
		return nil, fmt.Errorf("mirror %s has no topic that matches %q: %w", name, r.Topics, ErrSpec)
	}
	return d, nil
}

// addTopic adds one topic of the mirror, all of whose partitions must be mirroring.
func (d *drill) addTopic(image *meta.Image, t *meta.Topic) error {
	out := &drilledTopic{name: d.report.Prefix + t.Record.Name, id: d.m.o.IDs.FreshTopic(), configs: maps.Clone(t.Record.Configs)}
	if err := control.ValidTopicName(out.name); err != nil {
		return fmt.Errorf("%w: %w", ErrSpec, err)
	}
	for n := range t.Record.Partitions {
		rec, _ := image.Partition(t.ID, n)
		tp := types.TopicPartition{Topic: t.Record.Name, Partition: n}
		switch {
		case rec == nil || !rec.IsMirror() || rec.Mirror.Name != d.mirror:
			return fmt.Errorf("%s is not mirrored by %s any more: %w; leave its topic out (--topics)", tp, d.mirror, ErrState)
		case rec.Mirror.State != meta.MirrorMirroring:
			return fmt.Errorf("%s is %s and not MIRRORING: %w; wait for it (mirror wait %s --for mirroring), or leave its topic out (--topics)", tp, rec.Mirror.State, ErrState, d.mirror)
		case rec.Leader == types.NoBroker:
			return fmt.Errorf("%s has no leader at the moment: %w; try again", tp, ErrState)
		}
		p := &drilled{
			of: meta.PartitionID{Topic: t.ID, Number: n}, as: meta.PartitionID{Topic: out.id, Number: n},
			tp: tp, name: types.TopicPartition{Topic: out.name, Partition: n}, timeline: d.m.o.IDs.Fresh(),
		}
		p.shown = DrillPartition{Topic: out.name, Of: tp.Topic, Partition: n, Start: types.NoOffset, End: types.NoOffset, Leader: rec.Leader, InSync: rec.ISRIDs()}
		out.partitions = append(out.partitions, p)
		d.list = append(d.list, p)
	}
	d.topics = append(d.topics, out)
	return nil
}

// tryOut is a dry run: only the computation of the promotions, which changes nothing.
func (d *drill) tryOut(ctx context.Context) (DrillReport, error) {
	if err := d.rehearse(ctx); err != nil {
		return d.report, err
	}
	d.show()
	d.report.Message = append(d.report.Message, fmt.Sprintf("%d partitions of %d topics would be forked under %s; nothing was changed.", len(d.list), len(d.topics), d.report.Prefix))
	return d.report, nil
}

// make makes the fork, up to the transaction that shows its topics.
func (d *drill) make(ctx context.Context) error {
	for _, s := range []struct {
		name     string
		failover bool
		do       func(context.Context) error
	}{
		{"reserve the name", false, d.begin},
		{"stop fetching and compute the promotions", true, d.rehearse},
		{"begin segments", false, d.roll},
		{"agree on where the fork ends", false, d.findPoints},
		{"link", false, d.fork},
		{"write the partitions' records", true, d.commit},
	} {
		if err := d.timed(ctx, s.name, s.failover, s.do); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if state := d.m.o.Node.Image().DrillState(&d.run); state == meta.DrillDropping || state == "" {
			return errDrillDropped
		}
	}
	return nil
}

// errDrillDropped ends the making of a drill whose record was taken away.
var errDrillDropped = fmt.Errorf("it was given up meanwhile (mirror drill delete): %w", ErrState)

// use has the fork serve, gives it its groups and proves it. What fails here is told
// in the report: the fork is there.
func (d *drill) use(ctx context.Context) {
	var faults []error
	for _, s := range []struct {
		name     string
		failover bool
		do       func(context.Context) error
	}{
		{"open the logs and serve clients", true, d.serve}, // a failover's logs are open: it is quicker
		{"groups", true, d.copyGroups},
		{"write and read one record each", false, d.prove},
	} {
		if err := d.timed(ctx, s.name, s.failover, s.do); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	d.show()
	for _, err := range faults {
		d.report.Message = append(d.report.Message, err.Error())
	}
}

func (d *drill) timed(ctx context.Context, name string, failover bool, do func(context.Context) error) error {
	began := clock.Now(ctx)
	err := do(ctx)
	ms := float64(clock.Since(ctx, began).Microseconds()) / 1000
	d.report.Steps = append(d.report.Steps, DrillStep{Name: name, Ms: ms, Failover: failover})
	if failover {
		d.report.FailoverMs = max(d.report.FailoverMs, 0) + ms
	}
	return err
}

// askedMax bounds the partitions of one request between brokers: at half a kilobyte
// each, it and its answer stay far below what a request may have (32 MiB).
const askedMax = 5000

// ask has every broker do its part of a step and gives each answer to take. A step
// that needs every partition's leader names those that have not answered.
func (d *drill) ask(ctx context.Context, what string, take func(*drilled, *drillAnswer)) error {
	at := make(map[types.TopicPartition]*drilled, len(d.list))
	for _, one := range d.list {
		at[one.tp] = one
	}
	var faults []string
	var errs []error
	for some := range slices.Chunk(d.list, askedMax) {
		p := d.part()
		for _, one := range some {
			p.Drill.Partitions = append(p.Drill.Partitions, one.ask())
		}
		list, err := d.m.everywhere(ctx, what, p, drillPatience)
		if err != nil {
			errs = append(errs, err)
		}
		for _, o := range list {
			switch one := at[o.TopicPartition]; {
			case one == nil:
			case o.Reason != "":
				faults = append(faults, o.sentence())
			default:
				take(one, o.Drill)
			}
		}
	}
	if len(faults) > 0 {
		errs = append(errs, errors.New(strings.Join(faults[:min(len(faults), 5)], "; ")))
	}
	return errors.Join(errs...)
}

// part is what a broker is asked, but for the partitions that it is about.
func (d *drill) part() part {
	return part{Mirror: d.mirror, Drill: &drillPart{Name: d.run.Name, Run: d.run.Run, Begun: d.begun}}
}

// rehearse computes every partition's promotion where it is led, as a failover does,
// and leaves it at that.
func (d *drill) rehearse(ctx context.Context) error {
	answered := 0
	err := d.ask(ctx, partDrillRehearse, func(p *drilled, a *drillAnswer) {
		answered++
		p.made, p.point.LeaderEpoch = a.Made, a.LeaderEpoch
		p.shown.Loss = lossOf(&a.Made)
	})
	return d.allAnswered(answered, err)
}

func (d *drill) allAnswered(n int, err error) error {
	if n == len(d.list) {
		return nil // a broker that leads nothing of it matters to nobody
	}
	return errors.Join(fmt.Errorf("the leaders of %d of %d partitions did not do their part", len(d.list)-n, len(d.list)), err)
}

// roll has every replica begin a segment: what is below can be linked. A replica that
// can't be reached isn't among those of the fork.
func (d *drill) roll(ctx context.Context) error {
	return d.ask(ctx, partDrillRoll, func(p *drilled, a *drillAnswer) { p.rolled = max(p.rolled, a.End) })
}

// findPoints asks the leaders where the forks end: at the high watermark, once that
// has reached where the replicas began their segments.
func (d *drill) findPoints(ctx context.Context) error {
	answered := 0
	var moved []string
	err := d.ask(ctx, partDrillPoint, func(p *drilled, a *drillAnswer) {
		answered++
		if a.LeaderEpoch != p.point.LeaderEpoch {
			moved = append(moved, p.tp.String())
			return
		}
		p.point = a.forkPoint
	})
	if len(moved) > 0 {
		return fmt.Errorf("the leader epoch of %s rose meanwhile: %w; try again", strings.Join(moved[:min(len(moved), 5)], ", "), ErrState)
	}
	return d.allAnswered(answered, err)
}

// fork has every in-sync replica make its fork. Each partition needs its leader's, and
// as many as min.insync.replicas asks for.
func (d *drill) fork(ctx context.Context) error {
	err := d.ask(ctx, partDrillFork, func(p *drilled, a *drillAnswer) {
		p.inSync = append(p.inSync, meta.ISRMember{ID: a.Broker, BrokerEpoch: a.BrokerEpoch})
		d.report.LinkedBytes += a.Linked
		d.report.CopiedBytes += a.Copied
	})
	for _, p := range d.list {
		leader := slices.IndexFunc(p.inSync, func(m meta.ISRMember) bool { return m.ID == p.point.Leader })
		if leader < 0 || len(p.inSync) < p.point.Need {
			return errors.Join(fmt.Errorf("%s was forked by %d replicas and its leader %v; %d and the leader are needed", p.tp, len(p.inSync), leader >= 0, p.point.Need), err)
		}
		p.inSync[0], p.inSync[leader] = p.inSync[leader], p.inSync[0]
	}
	return nil
}

const (
	// drillPatience is how long one step of a drill may take on a broker.
	drillPatience = 5 * time.Minute
	// provePatience bounds the wait for one record's acknowledgement.
	provePatience = 30 * time.Second
)

// serve waits until the fork's leaders answer clients.
func (d *drill) serve(ctx context.Context) error {
	ctx, cancel := clock.WithTimeout(ctx, servingPatience)
	defer cancel()
	answered := 0
	err := d.ask(ctx, partDrillServe, func(*drilled, *drillAnswer) { answered++ })
	return d.allAnswered(answered, err)
}

// prove writes a record to each partition of the fork and reads it back.
func (d *drill) prove(ctx context.Context) error {
	err := d.ask(ctx, partDrillProve, func(p *drilled, a *drillAnswer) { p.shown.Proved, p.shown.Fault = a.Fault == "", a.Fault })
	for _, p := range d.list {
		if !p.shown.Proved && p.shown.Fault == "" {
			p.shown.Fault = "nobody leads it at the moment"
		}
	}
	return err
}

// show puts what is known of the partitions into the report.
func (d *drill) show() {
	var all []PartitionStatus
	for _, p := range d.list {
		if len(p.inSync) > 0 {
			p.shown.Start, p.shown.End, p.shown.Epoch, p.shown.Leader = p.point.Start, p.point.To, p.made.PromotedEpoch, p.point.Leader
			p.shown.InSync = nil
			for _, m := range p.inSync {
				p.shown.InSync = append(p.shown.InSync, m.ID)
			}
		}
		d.report.Partitions = append(d.report.Partitions, p.shown)
		all = append(all, PartitionStatus{Loss: p.shown.Loss})
	}
	d.report.Loss = sumLoss(all)
}

// tell says in words what the drill found.
func (d *drill) tell() {
	proved, groups := 0, 0
	for _, p := range d.report.Partitions {
		if p.Proved {
			proved++
		}
	}
	for _, g := range d.report.Groups {
		if g.Fault == "" {
			groups++
		}
	}
	head := fmt.Sprintf("drill %s of mirror %s: %d partitions of %d topics and %d groups are forked under %s; a failover of them would have taken at most %.0f ms. %d of %d partitions took a record with acks=all and gave it back.",
		d.req.Drill, d.mirror, len(d.list), len(d.topics), groups, d.report.Prefix, d.report.FailoverMs, proved, len(d.list))
	lines := []string{head}
	if d.report.Loss != nil {
		lines = append(lines, "A failover now would have lacked this: "+d.report.Loss.Statement)
	}
	lines = append(lines, fmt.Sprintf("`mirror drill delete %s` removes the fork.", d.req.Drill))
	d.report.Message = append(lines, d.report.Message...)
	d.m.events.add(d.m.log, Event{At: d.report.At, Mirror: d.mirror, Kind: "DRILL", From: types.NoOffset, To: types.NoOffset, Message: head})
}
