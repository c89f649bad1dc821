package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
)

// SwitchoverRequest changes sides without losing a record.
type SwitchoverRequest struct {
	// Timeout bounds the drain; after it everything goes back. 0: one minute.
	TimeoutMs types.Millis `json:"timeoutMs,omitempty"`
	// SettleMs is how long a source that can't be fenced must stand still. 0: three seconds.
	SettleMs types.Millis `json:"settleMs,omitempty"`
	// Reverse has the source, if it is Tidemark, become a mirror of this cluster afterwards.
	Reverse bool `json:"reverse,omitempty"`
	// DryRun says what would be waited for and changes nothing.
	DryRun bool `json:"dryRun,omitempty"`
	// StartID names the mirror's start that is ended, as its status tells it; empty: the present one.
	StartID string `json:"startId,omitempty"`
}

const (
	switchTimeout = 60 * time.Second
	switchSettle  = 3 * time.Second
	switchLook    = 50 * time.Millisecond
	askPatience   = 20 * time.Second
)

// asked is what a mirror asks of its source's brokers.
type asked struct {
	// ClusterID and StartID are the mirror's, Attempt is its switchover's; zero if it has none.
	ClusterID string       `json:"clusterId"`
	StartID   string       `json:"startId"`
	Attempt   meta.Attempt `json:"attempt,omitzero"`
	Topics    []askedTopic `json:"topics,omitempty"`
	// Reverse is the mirror to make, for that question alone.
	Reverse *Spec `json:"reverse,omitempty"`
}

// askedTopic names partitions of one topic, by id.
type askedTopic struct {
	ID         types.TopicID `json:"id"`
	Name       string        `json:"name"`
	Partitions []int32       `json:"partitions"`
}

// fenced is what became of one partition's fence: its leader epoch, and the log
// end at which no client's write follows.
type fenced struct {
	types.TopicPartition
	LeaderEpoch types.LeaderEpoch `json:"leaderEpoch"`
	LogEnd      types.Offset      `json:"logEnd"`
	// Open are transactions that still want their marker: LogEnd is final without any.
	Open []openTxn `json:"open,omitempty"`
	// Transactions: the cluster coordinates some.
	Transactions bool `json:"transactions,omitempty"`
	// Opened: the fence was taken back by this question.
	Opened bool   `json:"opened,omitempty"`
	Fault  string `json:"fault,omitempty"`
	// closed: the fence was set by this question.
	closed bool
}

// Switchover makes this cluster's copies the primaries, without loss: the
// source's writers are fenced, what is left is copied, the groups' offsets follow,
// then everything is promoted. What can't be done in time is taken back: the source is
// written again and the mirror runs on (DESIGN §6.4). Where this node dies in between, another
// one takes it back (switchback.go).
//
// A source that is no Tidemark can't be fenced from here: its writers are the
// operator's to stop, and its ends must stand still for a while. What it takes afterwards is told.
func (m *Mirrors) Switchover(ctx context.Context, name string, r SwitchoverRequest) (Status, error) {
	if err := m.presentStart(name, r.StartID); err != nil {
		return Status{}, err
	}
	if st, done, err := m.switchedAlready(ctx, name, r); done {
		return st, err
	}
	s, err := m.newSwitch(ctx, name, r)
	if err != nil {
		return Status{}, m.needsSource(name, "a switchover, unlike a failover,", err)
	}
	if r.Reverse {
		if err := s.mayReverse(ctx); err != nil {
			return Status{}, err
		}
	}
	if r.DryRun {
		st, err := m.Status(ctx, name)
		st.Message = append(s.plan(), s.openAsKnown()...)
		return st, err
	}
	defer s.end()
	if err := s.begin(ctx); err != nil {
		return Status{}, err
	}
	ends, err := s.fenceAndDrain(ctx)
	if err == nil {
		err = s.syncGroups(ctx)
	}
	if err == nil {
		err = s.order(ctx)
		if refused := (*core.Refusal)(nil); err != nil && s.attempt.IsZero() && !errors.As(err, &refused) {
			return Status{}, err // nothing says whether it was committed
		}
	}
	if err != nil {
		if words := s.reopen(); !s.isOrdered() {
			return Status{}, fmt.Errorf("mirror %s: the switchover went back: %w; %s", name, err, words)
		}
		s.m.log.Warn("a switchover's order was committed, and its answer lost: it goes on", "mirror", name, "err", err)
	}
	st, err := m.failover(ctx, part{Mirror: name, StartID: s.start})
	if err != nil {
		return st, err
	}
	st.Message = append(st.Message, s.abortedWords()...)
	st.Message = append(st.Message, s.lookAgain(ctx, ends)...)
	if r.Reverse {
		st.Message = append(st.Message, s.reverse(ctx))
	}
	return st, nil
}

// sides is a switchover under way.
type sides struct {
	m     *Mirrors
	r     *run
	name  string
	start string
	// began is this node as it began, attempt what the mirror's record calls it: zero if nothing does.
	began    core.Holder
	attempt  meta.Attempt
	timeout  time.Duration
	settle   time.Duration
	tidemark bool
	list     []switched
	// aborted are the transactional ids whose open transaction the source has aborted.
	aborted []string
}

// switched is one partition with its source's leader.
type switched struct {
	id     meta.PartitionID
	tp     types.TopicPartition
	leader types.BrokerID
}

func (m *Mirrors) newSwitch(ctx context.Context, name string, r SwitchoverRequest) (*sides, error) {
	st, err := m.Status(ctx, name)
	if err != nil {
		return nil, err
	}
	if st.State != stateRunning || len(st.Partitions) == 0 {
		return nil, fmt.Errorf("mirror %s is %s: %w; a switchover needs a running mirror and its source", name, st.State, ErrState)
	}
	for _, p := range st.Partitions {
		if p.State != meta.MirrorMirroring && p.Promotion == nil {
			return nil, fmt.Errorf("mirror %s: %s-%d is %s (%s): %w; a switchover needs every partition mirroring", name, p.Topic, p.Partition, p.State, orNone(p.Reason), ErrState)
		}
	}
	s := &sides{m: m, r: m.run(name), name: name, timeout: millis(r.TimeoutMs), settle: millis(r.SettleMs)}
	if s.r == nil {
		return nil, fmt.Errorf("mirror %s is not at work on this node yet: %w; try again", name, ErrState)
	}
	if s.timeout <= 0 {
		s.timeout = switchTimeout
	}
	if s.settle <= 0 {
		s.settle = switchSettle
	}
	s.start = s.r.record.Load().StartID
	if err := isPresent(s.r.record.Load(), r.StartID); err != nil {
		return nil, err
	}
	return s, s.find(ctx)
}

// errNothingLeft says that another verb has promoted everything meanwhile.
var errNothingLeft = errors.New("nothing of the mirror is left to be switched over: it was failed over meanwhile")

// find learns who leads the source's partitions, and whether the source can be fenced.
// Where it fails, what was known stays: whatever is closed then is opened by it.
func (s *sides) find(ctx context.Context) error {
	client, err := s.r.source()
	if err != nil {
		return err
	}
	md, err := client.Metadata(ctx, nil)
	if err != nil {
		return err
	}
	topics := make(map[string]*source.Topic, len(md.Topics))
	for i := range md.Topics {
		topics[md.Topics[i].Name] = &md.Topics[i]
	}
	image := s.m.o.Node.Image()
	var list []switched
	tidemark := true
	for t := range image.TopicsByName() {
		for p := range image.PartitionsOf(t.ID) {
			if p.Record == nil || !(part{Mirror: s.name}).isOf(t, p) {
				continue
			}
			tp := types.TopicPartition{Topic: t.Record.Name, Partition: p.ID.Number}
			if at := topics[tp.Topic]; at != nil && len(at.Partitions) > int(t.Record.Partitions) {
				return fmt.Errorf("topic %s has %d partitions at the source and %d here: %w; they are made here with the next look (mirror.metadata.refresh.ms), try again",
					tp.Topic, len(at.Partitions), t.Record.Partitions, ErrState)
			}
			k, failed := leaderOf(&copier{tp: tp, gone: goneLooks}, md, topics[tp.Topic])
			if failed.Reason != "" {
				return fmt.Errorf("%s: %s", tp, failed.Detail)
			}
			told, err := lineages(ctx, client, k.leader.broker, []*looked{k})
			if err != nil {
				return err
			}
			tidemark = tidemark && told != nil
			list = append(list, switched{id: p.ID, tp: tp, leader: k.leader.broker})
		}
	}
	// Invariant I-262: a switchover goes on only with partitions that it may promote.
	if len(list) == 0 && !s.m.o.Rules.SwitchesNothing {
		return fmt.Errorf("mirror %s: %w", s.name, errNothingLeft)
	}
	s.list, s.tidemark = list, tidemark
	return nil
}

func (s *sides) plan() []string {
	if s.tidemark {
		return []string{fmt.Sprintf("%d partitions of the source would be closed to writes, drained within %s, and promoted here.", len(s.list), s.timeout)}
	}
	return []string{fmt.Sprintf("The source is no Tidemark: stop its writers first. %d partitions would be promoted here once their ends have stood still for %s, within %s.", len(s.list), s.settle, s.timeout)}
}

// fenceAndDrain closes the source to writes and waits until all of it is here; it gives the ends that were reached.
func (s *sides) fenceAndDrain(ctx context.Context) (map[types.TopicPartition]types.Offset, error) {
	ctx, cancel := clock.WithTimeout(ctx, s.timeout)
	defer cancel()
	if !s.tidemark {
		return s.awaitStill(ctx)
	}
	c, err := s.close(ctx)
	if err != nil {
		return nil, err
	}
	s.m.log.Info("the source is closed to writes", "mirror", s.name, "partitions", len(c.ends))
	if c.transactions {
		if err := s.endTransactions(ctx); err != nil {
			return nil, err
		}
	}
	for c.open != "" {
		if !pause(ctx, switchLook) {
			return nil, fmt.Errorf("transactions aren't ended within %s: at the source %s; one that no coordinator knows is ended there by kafka-transactions abort", s.timeout, c.open)
		}
		if next, err := s.close(ctx); err == nil { // else its leader may move: what stood stands
			c = next
		}
	}
	for {
		behind := s.behind(c.ends)
		if behind == "" {
			return c.ends, nil
		}
		if !pause(ctx, switchLook) {
			return nil, fmt.Errorf("not drained within %s: %s", s.timeout, behind)
		}
	}
}

// closed is a source whose fences stand.
type closed struct {
	ends map[types.TopicPartition]types.Offset
	// open names a transaction that still wants a marker, "" if there is none: the ends are final then.
	open         string
	transactions bool // the source coordinates some
}

// close has the source's leaders fence every partition, or say again how they stand.
func (s *sides) close(ctx context.Context) (closed, error) {
	c := closed{ends: map[types.TopicPartition]types.Offset{}}
	answers, err := s.ask(ctx, askFence, true)
	for _, f := range answers {
		if f.Fault != "" {
			err = errors.Join(err, fmt.Errorf("%s can't be closed: %s", f.TopicPartition, f.Fault))
		}
		c.ends[f.TopicPartition] = f.LogEnd
		c.transactions = c.transactions || f.Transactions
		if len(f.Open) > 0 && c.open == "" {
			c.open = openWords(f.TopicPartition, f.Open)
		}
	}
	if err == nil {
		err = s.complete(c.ends)
	}
	if s.m.o.Rules.SwitchesOpen {
		c.open, c.transactions = "", false
	}
	return c, err
}

// complete refuses ends of which a partition is missing: it would count as drained.
func (s *sides) complete(ends map[types.TopicPartition]types.Offset) error {
	for _, p := range s.list {
		if _, ok := ends[p.tp]; !ok {
			return fmt.Errorf("%s: the source doesn't say where it ends", p.tp)
		}
	}
	return nil
}

// behind names a partition that doesn't have all of its source, or in which a
// transaction is open; "" if there is none.
func (s *sides) behind(ends map[types.TopicPartition]types.Offset) string {
	have, open := s.ends()
	for _, p := range s.list {
		if have[p.tp] < ends[p.tp] {
			return fmt.Sprintf("%s is at %d of %d", p.tp, have[p.tp], ends[p.tp])
		}
	}
	// Invariant I-271: a switchover promotes no copy in which a transaction is open. The
	// copies end where their source does, and that is final: what none of them has open stays so.
	for _, p := range s.list {
		if list := open[p.tp]; len(list) > 0 && !s.m.o.Rules.SwitchesOpen {
			return openWords(p.tp, list)
		}
	}
	return ""
}

// ends are the committed ends here, of leaders wherever they are, and the transactions
// open there. Brokers that don't answer may lead nothing of the mirror; what they lead is missing.
func (s *sides) ends() (map[types.TopicPartition]types.Offset, map[types.TopicPartition][]openTxn) {
	out, open := map[types.TopicPartition]types.Offset{}, map[types.TopicPartition][]openTxn{}
	list, _ := s.m.everywhere(s.r.ctx, partEnds, part{Mirror: s.name}, askPatience)
	for _, o := range list {
		if o.Plan != nil {
			out[o.TopicPartition], open[o.TopicPartition] = o.Plan.LogEnd, o.Open
		}
	}
	return out, open
}

// endsHere gives the high watermarks of the mirror's partitions that are led here, and
// what is open in them.
func (m *Mirrors) endsHere(p part) []outcome {
	var list []outcome
	for _, l := range m.ledHere(m.o.Node.Image(), p.isOf) {
		v, open := l.part.View()
		// After the view: a promoted log may have records of its own by then.
		if rec, _ := m.o.Node.Image().Partition(l.id.Topic, l.id.Number); open && rec != nil && rec.IsMirror() {
			o := outcome{TopicPartition: l.tp, Plan: &PartitionPlan{LogEnd: v.HighWatermark}}
			if at := l.part.Log(); at != nil {
				o.Open = openOf(at)
			}
			list = append(list, o)
		}
	}
	return list
}

// awaitStill waits until the source's ends stand still and are reached here.
func (s *sides) awaitStill(ctx context.Context) (map[types.TopicPartition]types.Offset, error) {
	last, err := s.sourceEnds(ctx)
	since := clock.Now(ctx)
	for {
		if !pause(ctx, max(switchLook, s.settle/10)) {
			return nil, s.unstill(last)
		}
		now, errNow := s.sourceEnds(ctx)
		if err = errNow; errors.Is(err, errNothingLeft) {
			return nil, err
		}
		if err != nil {
			continue
		}
		if !maps.Equal(last, now) {
			last, since = now, clock.Now(ctx)
			continue
		}
		if clock.Since(ctx, since) >= s.settle && s.behind(now) == "" {
			return now, nil
		}
	}
}

// unstill says why a source that can't be fenced was given up.
func (s *sides) unstill(ends map[types.TopicPartition]types.Offset) error {
	behind := s.behind(ends)
	why := "stop its writers first"
	if _, open := s.ends(); slices.ContainsFunc(s.list, func(p switched) bool { return len(open[p.tp]) > 0 }) {
		why += ", also those of transactions: what they leave open ends by its time-out (transaction.timeout.ms) or by kafka-transactions abort there"
	}
	return fmt.Errorf("the source's ends still move, or are not reached here, after %s: %s (%s)", s.timeout, why, behind)
}

// sourceEnds asks the source where its partitions end, as a consumer sees them.
func (s *sides) sourceEnds(ctx context.Context) (map[types.TopicPartition]types.Offset, error) {
	client, err := s.r.source()
	if err != nil {
		return nil, err
	}
	if err := s.find(ctx); err != nil {
		return nil, err
	}
	byLeader := map[types.BrokerID][]source.OffsetQuery{}
	for _, p := range s.list {
		byLeader[p.leader] = append(byLeader[p.leader], source.OffsetQuery{TopicPartition: p.tp, CurrentEpoch: types.NoLeaderEpoch, Timestamp: source.Latest})
	}
	out := map[types.TopicPartition]types.Offset{}
	for _, broker := range slices.Sorted(maps.Keys(byLeader)) {
		queries := byLeader[broker]
		answers, err := client.ListOffsets(ctx, broker, queries)
		if err != nil {
			return nil, err
		}
		for tp, a := range answers {
			if a.Code != 0 {
				return nil, fmt.Errorf("%s: the source answers %s", tp, a.Code)
			}
			out[tp] = a.Offset
		}
	}
	return out, s.complete(out)
}

// ask sends one question about all partitions to the source's leaders. again:
// partitions whose leader moved meanwhile are asked once more.
func (s *sides) ask(ctx context.Context, what string, again bool) ([]fenced, error) {
	client, err := s.r.source()
	if err != nil {
		return nil, err
	}
	byLeader := map[types.BrokerID]*asked{}
	for _, p := range s.list {
		q := byLeader[p.leader]
		if q == nil {
			q = &asked{ClusterID: s.m.o.Node.ClusterID(), StartID: s.start, Attempt: s.attempt}
			byLeader[p.leader] = q
		}
		q.add(p)
	}
	var all []fenced
	var faults []error
	for _, broker := range slices.Sorted(maps.Keys(byLeader)) {
		q := byLeader[broker]
		body, err := json.Marshal(q)
		if err != nil {
			return nil, err
		}
		raw, err := client.Verb(ctx, broker, what, body, askPatience)
		var list []fenced
		if err == nil {
			err = json.Unmarshal(raw, &list)
		}
		if err != nil {
			faults = append(faults, err)
		}
		all = append(all, list...)
	}
	moved := slices.ContainsFunc(all, func(f fenced) bool { return f.Fault != "" })
	if (moved || len(faults) > 0) && again && s.find(ctx) == nil && pause(ctx, switchLook) {
		return s.ask(ctx, what, false)
	}
	return all, errors.Join(faults...)
}

func (q *asked) add(p switched) {
	n := len(q.Topics)
	if n == 0 || q.Topics[n-1].ID != p.id.Topic {
		q.Topics = append(q.Topics, askedTopic{ID: p.id.Topic, Name: p.tp.Topic})
		n++
	}
	q.Topics[n-1].Partitions = append(q.Topics[n-1].Partitions, p.id.Number)
}

// reopen gives the attempt up and takes the fences back, with patience. A source that stays
// closed is asked again by whoever has the time (finishReturn), or, without an attempt,
// is the operator's to open (mirror reopen). It says in words what has become of both sides.
func (s *sides) reopen() string {
	const runsOn = "the mirror runs on"
	if !s.tidemark {
		return runsOn
	}
	ctx, cancel := clock.WithTimeout(s.m.ctx, s.timeout)
	defer cancel()
	if !s.attempt.IsZero() {
		if _, err := s.m.giveUp(ctx, s.name, s.attempt, func(core.Holder) bool { return true }); err != nil {
			return fmt.Sprintf("its fences are not taken back by this order: %v", err)
		}
	}
	for n := 1; ; n++ {
		answers, err := s.ask(ctx, askReopen, true)
		for _, f := range answers {
			if reason, _ := core.ReasonOf(f.Fault); reason == core.StaleRequest && !s.attempt.IsZero() {
				continue // no fence of this attempt stands there
			}
			if f.Fault != "" {
				err = errors.Join(err, fmt.Errorf("%s: %s", f.TopicPartition, f.Fault))
			}
		}
		if err == nil && !s.attempt.IsZero() {
			err = s.returned(ctx)
		}
		if err == nil {
			s.r.health.ok(syncSwitch)
			return "the source is written as before, and " + runsOn
		}
		s.r.health.failed(syncSwitch, err)
		s.m.log.Error("the source can't be opened again yet", "mirror", s.name, "err", err)
		if !pause(ctx, s.r.backoff(n)) || s.find(ctx) != nil && ctx.Err() != nil {
			if !s.attempt.IsZero() {
				return fmt.Sprintf("%s; its source is opened again once it answers (%v)", runsOn, err)
			}
			s.m.log.Error("the source stays closed to writes; `tidemark mirror reopen` there opens it", "mirror", s.name)
			return fmt.Sprintf("%s, but its source stays closed to writes (%v): `tidemark mirror reopen` there opens it", runsOn, err)
		}
	}
}

// syncGroups copies the groups' offsets once more, now that all records are here.
func (s *sides) syncGroups(ctx context.Context) error {
	if err := s.r.groups.sync(ctx); err != nil {
		return fmt.Errorf("group offsets: %w", err)
	}
	return nil
}

// lookAgain tells what the source has taken since it was drained.
func (s *sides) lookAgain(ctx context.Context, ends map[types.TopicPartition]types.Offset) []string {
	ctx, cancel := clock.WithTimeout(ctx, askPatience)
	defer cancel()
	client, err := s.r.source()
	if err != nil {
		return nil
	}
	byLeader := map[types.BrokerID][]source.OffsetQuery{}
	for _, p := range s.list {
		byLeader[p.leader] = append(byLeader[p.leader], source.OffsetQuery{TopicPartition: p.tp, CurrentEpoch: types.NoLeaderEpoch, Timestamp: source.Latest})
	}
	var words []string
	for _, broker := range slices.Sorted(maps.Keys(byLeader)) {
		queries := byLeader[broker]
		answers, err := client.ListOffsets(ctx, broker, queries)
		if err != nil {
			words = append(words, fmt.Sprintf("The source could not be looked at once more: %v.", err))
			continue
		}
		for tp, a := range answers {
			if a.Code == 0 && a.Offset > ends[tp] {
				words = append(words, fmt.Sprintf("SOURCE_MOVED: %s took offsets %d to %d at the source after it was drained: a writer was not stopped.", tp, ends[tp], a.Offset-1))
				s.m.events.add(s.m.log, Event{At: s.m.o.Node.Now(), Mirror: s.name, Kind: "SOURCE_MOVED", Topic: tp.Topic, Partition: tp.Partition,
					From: ends[tp], To: a.Offset, Records: int64(a.Offset - ends[tp]), Message: words[len(words)-1]})
			}
		}
	}
	slices.Sort(words)
	return words
}
