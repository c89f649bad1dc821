package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
)

// Failover makes the partitions of the topics, or of the whole mirror if none are
// named, writable here (R23). It asks the source nothing. The same call again
// finishes what an earlier one could not, and changes nothing else.
func (m *Mirrors) Failover(ctx context.Context, name string, topics []string) (Status, error) {
	return m.FailoverOf(ctx, name, FailoverOrder{Topics: topics})
}

// mayFailOver refuses a failover of what is no mirror at work.
func (m *Mirrors) mayFailOver(name string, order FailoverOrder) error {
	image := m.o.Node.Image()
	e, ok := image.Mirror(name)
	switch {
	case !ok:
		return fmt.Errorf("%w: %s", ErrUnknownMirror, name)
	case e.Record.Want == meta.WantCreated:
		return fmt.Errorf("mirror %s was never started: %w; there is nothing to fail over", name, ErrState)
	}
	if err := isPresent(e.Record, order.StartID, order.Topics...); err != nil {
		return err
	}
	for _, t := range order.Topics {
		if !isMirrored(image, name, t) {
			return fmt.Errorf("mirror %s does not mirror a topic %s: %w", name, t, ErrSpec)
		}
	}
	return topicsFollow(image, name, order.StartID, order.Topics)
}

// startOf is the mirror's present start.
func (m *Mirrors) startOf(name string) string {
	if e, ok := m.o.Node.Image().Mirror(name); ok {
		return e.Record.StartID
	}
	return ""
}

// failover promotes what was ordered of a start, at the cut named if one is.
func (m *Mirrors) failover(ctx context.Context, p part) (Status, error) {
	name, topics, began := p.Mirror, p.Topics, clock.Now(ctx)
	faults, err := m.promoteEverywhere(ctx, p)
	if err != nil {
		return Status{}, err
	}
	st, err := m.Status(ctx, name)
	if err != nil {
		return st, err
	}
	st.Partitions = slices.DeleteFunc(st.Partitions, func(p PartitionStatus) bool { return len(topics) > 0 && !slices.Contains(topics, p.Topic) })
	for i := range st.Partitions {
		p := &st.Partitions[i]
		if why := faults[types.TopicPartition{Topic: p.Topic, Partition: p.Partition}]; why != "" {
			p.Reason = why
		}
	}
	st.Loss = sumLoss(st.Partitions)
	st.Message = append(failoverMessage(name, st.Partitions, clock.Since(ctx, began)), m.returningWords(name, p.StartID)...)
	m.log.Info("failed over", "mirror", name, "partitions", len(st.Partitions), "incomplete", len(faults), "says", strings.Join(st.Message, " "))
	return st, nil
}

// failoverPatience is how long a failover goes on asking for partitions whose
// leader can't be reached, or that have none at the moment.
const failoverPatience = 30 * time.Second

// promoteEverywhere has each partition's leader promote it, wherever it is, and
// says why for those that aren't writable afterwards. A broker that can't be asked ends
// nothing before the time is over: what it leads may be another's by then.
func (m *Mirrors) promoteEverywhere(ctx context.Context, p part) (map[types.TopicPartition]string, error) {
	until := clock.Now(ctx).Add(failoverPatience)
	for n := 1; ; n++ {
		list, err := m.everywhere(ctx, partPromote, p, peerPatience)
		faults := map[types.TopicPartition]string{}
		for _, o := range list {
			if o.Reason != "" {
				faults[o.TopicPartition] = o.Detail
			}
		}
		left := m.unpromotedOf(p.Mirror, p.Topics)
		for _, tp := range left {
			if faults[tp] == "" {
				faults[tp] = m.unpromotedWhy(tp, p, err)
			}
		}
		if len(left) == 0 || clock.Now(ctx).After(until) {
			return faults, nil
		}
		if !pause(ctx, time.Duration(min(n, 10))*50*time.Millisecond) {
			return faults, ctx.Err()
		}
	}
}

// unpromotedWhy says of a partition that no leader spoke for why it isn't promoted yet, and
// who goes on. err names the brokers that could not be asked.
func (m *Mirrors) unpromotedWhy(tp types.TopicPartition, p part, err error) string {
	why := "no broker leads it at the moment"
	if leader := ledBy(m.o.Node.Image(), &PartitionStatus{Topic: tp.Topic, Partition: tp.Partition}); leader >= 0 {
		why = fmt.Sprintf("its leader, broker %d, has not promoted it", leader)
	}
	if err != nil {
		why += fmt.Sprintf(" (%v)", err)
	}
	if len(p.Topics) > 0 {
		return why + "; the same order once more goes on from there"
	}
	return why + "; the failover goes on by itself, whoever comes to lead it"
}

// unpromotedOf lists the mirror's partitions that are no source of their own yet.
func (m *Mirrors) unpromotedOf(name string, topics []string) []types.TopicPartition {
	image := m.o.Node.Image()
	var left []types.TopicPartition
	for t := range image.TopicsByName() {
		for p := range image.PartitionsOf(t.ID) {
			if p.Record != nil && (part{Mirror: name, Topics: topics}).isOf(t, p) {
				left = append(left, types.TopicPartition{Topic: t.Record.Name, Partition: p.ID.Number})
			}
		}
	}
	return left
}

// promoteHere promotes what this node leads.
func (m *Mirrors) promoteHere(ctx context.Context, p part) ([]outcome, error) {
	r := m.awaitRun(ctx, p.Mirror)
	if r == nil {
		return nil, fmt.Errorf("mirror %s is not at work on this node yet: %w; try again", p.Mirror, ErrState)
	}
	if p.CutID != "" {
		if err := m.awaitCut(ctx, p.Mirror, p.CutID); err != nil {
			return nil, err
		}
	}
	faults, err := r.promote(ctx, p.Topics, p.StartID, p.TopicStart)
	list := make([]outcome, 0, len(faults))
	for tp, why := range faults {
		list = append(list, outcome{TopicPartition: tp, Reason: core.NotPromoted, Detail: why})
	}
	return list, err
}

// runPatience is how long a verb waits for a mirror's run, which begins just after the node.
const runPatience = 5 * time.Second

func (m *Mirrors) awaitRun(ctx context.Context, name string) *run {
	ctx, cancel := clock.WithTimeout(ctx, runPatience)
	defer cancel()
	for {
		if r := m.run(name); r != nil || !pause(ctx, 10*time.Millisecond) {
			return r
		}
	}
}

// isMirrored reports whether a topic has, or had until its promotion, partitions of the mirror.
func isMirrored(image *meta.Image, name, topic string) bool {
	t, ok := image.TopicByName(topic)
	if !ok {
		return false
	}
	for p := range image.PartitionsOf(t.ID) {
		if p.Record != nil && p.Record.Mirror != nil && p.Record.Mirror.Name == name {
			return true
		}
	}
	return false
}

// finishFailover promotes what a failover before the last stop left.
func (r *run) finishFailover(ctx context.Context) {
	// What can't be promoted is shown again, and so asked for again: once the run ends, nothing is tried any more.
	for n := 1; ctx.Err() == nil; n++ {
		rec := r.record.Load()
		if rec.Want != meta.WantStopped {
			return // started anew meanwhile: what was left follows that start
		}
		faults, err := r.promote(ctx, nil, rec.StartID, "")
		if err == nil && len(faults) == 0 {
			r.health.ok(syncFailover)
			return
		}
		if why := unfinished(faults, err); r.health.failed(syncFailover, why) || r.health.isToldAgain(syncFailover) {
			r.m.log.Error("a failover that was begun can't be finished yet, and is tried again and again", "mirror", r.name, "partitions", len(faults), "err", why)
		}
		if !pause(ctx, max(time.Second, r.backoff(n))) {
			return
		}
	}
}

// unfinishedShown bounds how many partitions are named that a failover has left.
const unfinishedShown = 3

// unfinished is why a failover isn't at its end: the fault of all of it, and the first
// partitions with their reasons.
func unfinished(faults map[types.TopicPartition]string, err error) error {
	var words []string
	if err != nil {
		words = append(words, err.Error())
	}
	left := inOrder(faults, itself)
	for _, tp := range left[:min(len(left), unfinishedShown)] {
		words = append(words, fmt.Sprintf("%s: %s", tp, faults[tp]))
	}
	if more := len(left) - unfinishedShown; more > 0 {
		words = append(words, fmt.Sprintf("and %d more partitions", more))
	}
	return errors.New(strings.Join(words, "; "))
}

// promotionTries is how often a partition's promotion is made anew after another write of its record.
const promotionTries = 20

// promote promotes the mirror's partitions that are led here, all at once, and
// says why for those that aren't writable afterwards. It is for one start of the
// mirror: asked late, of an earlier one, it promotes nothing (R23).
func (r *run) promote(ctx context.Context, topics []string, start, topicStart string) (map[types.TopicPartition]string, error) {
	if _, err := clock.Wait(ctx, clock.Forever, r.promoting); err != nil {
		return nil, err
	}
	defer func() { r.promoting <- struct{}{} }()
	todo := r.unpromoted(topics)
	for i := range todo {
		todo[i].start, todo[i].topicStart = start, topicStart
	}
	if err := r.followCut(ctx); err != nil {
		return nil, err
	}
	faults := map[types.TopicPartition]string{}
	for try := 1; len(todo) > 0; try++ {
		var err error
		if todo, err = r.promoteOnce(ctx, todo, faults); err != nil {
			return faults, err
		}
		if try == promotionTries || (len(todo) > 0 && !pause(ctx, promotionPause)) {
			for _, p := range todo {
				if faults[p.tp] == "" {
					faults[p.tp] = "its record was written by others again and again; try once more"
				}
			}
			break
		}
	}
	return faults, r.afterPromotion(ctx, topics, faults)
}

// promotionPause is the wait before partitions that could not be promoted are tried again.
const promotionPause = 50 * time.Millisecond

// promoting is one partition on its way to be promoted.
type promoting struct {
	id   meta.PartitionID
	tp   types.TopicPartition
	part Partition
	c    *copier // nil where nothing is copied any more
	// start is the mirror's that is ended; empty for whichever it is.
	start string
	// topicStart is what an order for single topics quotes, empty if none does.
	topicStart string
}

func (r *run) unpromoted(topics []string) []promoting {
	image := r.m.o.Node.Image()
	var list []promoting
	for p := range image.Partitions() {
		if p.Record == nil || !p.Record.IsMirror() || p.Record.Mirror.Name != r.name || p.Record.Leader != r.m.o.Node.NodeID() {
			continue
		}
		t, ok := image.Topic(p.ID.Topic)
		if !ok || (len(topics) > 0 && !slices.Contains(topics, t.Record.Name)) {
			continue
		}
		if part, held := r.m.o.Node.Partition(p.ID.Topic, p.ID.Number); held {
			list = append(list, promoting{id: p.ID, tp: part.Name(), part: part})
		}
	}
	return list
}

// promoteOnce makes and commits the promotions of all partitions, and gives those to be tried again.
func (r *run) promoteOnce(ctx context.Context, todo []promoting, faults map[types.TopicPartition]string) ([]promoting, error) {
	changes := make([]*awaited, len(todo))
	errs := make([]error, len(todo))
	var work sync.WaitGroup
	for i := range todo {
		r.m.beginsPromotion(todo[i].id)
		clock.Go(ctx, &work, func() { changes[i], errs[i] = r.preparePromotion(ctx, &todo[i]) })
	}
	clock.Join(ctx, &work)
	for i, c := range changes {
		if errs[i] != nil || c == nil {
			r.m.settlesPromotion(todo[i].id)
			continue
		}
		tell := c.done
		c.done = func(applied bool) { r.m.settlesPromotion(c.id); tell(applied) }
	}
	var again []promoting
	var list []*awaited
	var of []promoting
	for i, p := range todo {
		var refusal *core.Refusal
		delete(faults, p.tp)
		switch {
		case errors.As(errs[i], &refusal) && refusal.Reason == core.FirstCutOwed:
			faults[p.tp] = errs[i].Error()
			again = append(again, p)
			r.restart(p.id) // the cut is the machine's to make; it needs no source
		case errs[i] != nil:
			faults[p.tp] = errs[i].Error()
			r.restart(p.id)
		case changes[i] != nil:
			list, of = append(list, changes[i]), append(of, p)
		}
	}
	put := make([]*change, len(list))
	for i, c := range list {
		put[i] = &c.change
	}
	r.m.writer.put(put...)
	for i, c := range list {
		applied, err := r.m.await(ctx, c)
		switch {
		case err != nil:
			return nil, err
		case applied:
			if reason, _ := core.ReasonOf(c.record.Mirror.Reason); reason != core.StaleRequest { // a start that was taken back is no promotion
				r.m.o.Metrics.Mirror.Promotions.WithLabelValues(r.name).Inc()
			}
			r.drop(of[i].id)
		default:
			again = append(again, of[i])
		}
	}
	return again, nil
}

// restart gives a partition that was not promoted a copier anew: the old one has missed events.
func (r *run) restart(id meta.PartitionID) {
	r.drop(id)
	r.show(id)
}

// halt ends the copying of a partition whose end is about to be decided on, and gives its
// copier, nil if there is none. beginsPromotion comes before: until that is settled no other is made.
func (r *run) halt(id meta.PartitionID) *copier {
	if now := r.m.run(r.name); now != nil && now != r {
		now.drop(id) // the mirror was altered since
	}
	c := r.copier(id)
	if c != nil {
		c.halted.Store(true)
		r.stopFetching(c, ^uint64(0))
	}
	return c
}

// preparePromotion stops the partition's copying and computes its promotion on
// the shard: a step that runs there later finds the copier halted and appends
// nothing more (I-141). Both results are nil if the partition is promoted already.
func (r *run) preparePromotion(ctx context.Context, p *promoting) (*awaited, error) {
	p.c = r.halt(p.id)
	c := p.c
	if c == nil {
		c = &copier{}
	}
	var out *awaited
	err := p.part.Do(ctx, func(o Owned) error {
		rec, rev := o.Record()
		if rec != nil && rec.Mirror != nil && rec.Mirror.Name != r.name {
			return nil // another mirror has taken it since: that one's start isn't ended (I-261)
		}
		if rec != nil && !rec.Writable {
			if err := core.OfEarlierStart(rec.Mirror, p.topicStart); err != nil {
				return err
			}
		}
		if rec != nil && rec.IsMirror() && rec.Mirror.State == meta.MirrorStarting && o.Leading() {
			// A crash left the start before its adoption. Nobody ends it for a mirror that
			// doesn't run, and there is nothing to promote: clients write again (R25).
			next, err := core.GoBack(rec, core.Refusal{Reason: core.StaleRequest, Detail: "the mirror was failed over before this start had adopted anything"})
			if err == nil {
				out = newAwaited(p.id, rev, next)
			}
			return err
		}
		req := core.PromoteRequest{
			TimelineID: r.m.o.IDs.Fresh(), Step: r.settings.Load().PromotionStep, Now: r.m.o.Node.Now(),
			TellsMadeAgain: r.m.o.Node.Image().FeatureLevel(meta.FeatureMetadata) >= meta.LevelAttempts,
		}
		if err := r.atCut(&req, rec, p.id); err != nil {
			return err
		}
		done, rev, err := c.promote(o, req)
		if err != nil || done.Outcome == core.AlreadyPromoted {
			return err
		}
		out = newAwaited(p.id, rev, done.Record)
		return nil
	})
	if err == nil {
		err = r.mayEnd(p.start)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// mayEnd refuses what was asked of an earlier start. A start is ordered in the
// mirror's record before any partition follows it: who has seen a partition's record
// of a later start, and looks then, sees that.
//
// Invariant I-261 (R23): a promotion ends the start that it was asked of, however late it comes.
func (r *run) mayEnd(start string) error {
	e, ok := r.m.o.Node.Image().Mirror(r.name)
	if start == "" || r.m.o.Rules.PromoteAnyStart || ok && e.Record.StartID == start {
		return nil
	}
	return &core.Refusal{Reason: core.StaleRequest, Detail: "the mirror was started anew since the failover was asked for"}
}

// promote computes the promotion on the shard, and says which revision of the
// record it was made from. Clients are no longer held: what a cut was to take stays.
func (c *copier) promote(o Owned, req core.PromoteRequest) (core.Promotion, meta.Revision, error) {
	rec, rev := o.Record()
	switch {
	case rec == nil || o.Log() == nil:
		return core.Promotion{}, 0, errors.New("the partition can't be read here")
	case !o.Leading():
		return core.Promotion{}, 0, errors.New("this node does not lead the partition at the moment")
	}
	c.holding = false
	own := c.own(o)
	c.addFacts(&req, own.LogEnd)
	o.Hold(false)
	req.Own = &own
	done, err := core.Promote(rec, req)
	return done, rev, err
}

// addFacts adds what was last seen of the source; end is the log's.
func (c *copier) addFacts(req *core.PromoteRequest, end types.Offset) {
	if c.machine != nil {
		facts := c.machine.Facts()
		facts.SeenAt = max(facts.SeenAt, c.sightedAt())
		req.Facts, req.MissingMs = &facts, c.missingMs(end)
	}
}

// servingPatience is how long a failover waits until promoted partitions answer clients.
const servingPatience = 30 * time.Second

// afterPromotion waits until the promoted partitions answer clients, and brings
// the groups' offsets in line with their logs. The caller holds promoting.
func (r *run) afterPromotion(ctx context.Context, topics []string, faults map[types.TopicPartition]string) error {
	ctx, cancel := clock.WithTimeout(ctx, servingPatience)
	defer cancel()
	ends, epochs := map[types.TopicPartition]types.Offset{}, map[types.TopicPartition]types.LeaderEpoch{}
	image := r.m.o.Node.Image()
	for p := range image.Partitions() {
		if p.Record == nil || p.Record.Mirror == nil || p.Record.Mirror.Name != r.name || !p.Record.Writable || p.Record.Leader != r.m.o.Node.NodeID() {
			continue
		}
		part, held := r.m.o.Node.Partition(p.ID.Topic, p.ID.Number)
		if !held || (len(topics) > 0 && !slices.Contains(topics, part.Name().Topic)) {
			continue
		}
		if err := awaitServing(ctx, part, p.Record.LeaderEpoch); err != nil {
			faults[part.Name()] = "it is promoted, and doesn't serve yet: " + err.Error()
			continue
		}
		if n := len(p.Record.Promotions); n > 0 {
			ends[part.Name()] = p.Record.Promotions[n-1].LogEnd
			epochs[part.Name()] = p.Record.Promotions[n-1].PromotedEpoch
		}
	}
	if len(ends) == 0 {
		return nil
	}
	if err := r.groups.atFailover(ctx, ends); err != nil {
		r.noteFault(syncGroups, err)
	}
	for _, tp := range inOrder(ends, itself) {
		end := ends[tp]
		if at, told := r.told[tp]; faults[tp] == "" && (!told || at != epochs[tp]) {
			r.told[tp] = epochs[tp]
			r.m.events.add(r.m.log, Event{
				At: r.m.o.Node.Now(), Mirror: r.name, Kind: "PROMOTED", Topic: tp.Topic, Partition: tp.Partition, From: end, To: end,
				Message: fmt.Sprintf("%s: promoted at offset %d, clients may write", tp, end),
			})
		}
	}
	return nil
}

// awaitServing waits until the shard has taken the promoted record and answers clients.
func awaitServing(ctx context.Context, part Partition, epoch types.LeaderEpoch) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		have, err := part.LeaderEpoch()
		if err == nil && have >= epoch {
			return nil
		}
		if !pause(ctx, wait) {
			if err == nil {
				err = ctx.Err()
			}
			return err
		}
	}
}

// failoverMessage says in words what a failover may have left behind.
func failoverMessage(mirror string, list []PartitionStatus, took time.Duration) []string {
	var promoted, undone int
	var lines []string
	for _, p := range list {
		name := types.TopicPartition{Topic: p.Topic, Partition: p.Partition}
		if p.Promotion == nil {
			undone++
			lines = append(lines, fmt.Sprintf("%s is not writable: %s", name, orNone(p.Reason)))
			continue
		}
		promoted++
		if line := lossLine(name, p.Promotion.LastMirroredOffset, p.Loss); line != "" {
			lines = append(lines, line)
		}
	}
	const shown = 50
	if len(lines) > shown {
		lines = append(lines[:shown], fmt.Sprintf("… and %d more partitions; mirror status %s shows all", len(lines)-shown, mirror))
	}
	head := fmt.Sprintf("mirror %s: %d partitions are writable after %d ms", mirror, promoted, took.Milliseconds())
	if undone > 0 {
		head += fmt.Sprintf(", %d are not", undone)
	}
	head += "."
	if sum := sumLoss(list); sum != nil && promoted > 0 {
		head += " " + sum.Statement
	}
	return append([]string{head}, lines...)
}

func utc(at types.Millis) string {
	if at <= 0 {
		return "never"
	}
	return time.UnixMilli(int64(at)).UTC().Format("2006-01-02 15:04:05.000 UTC")
}
