package mirror

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
)

// SplitBrainAlarm says that the old source of a promoted partition moved after its failover.
type SplitBrainAlarm struct {
	// From and To are the offsets that the source took since, To exclusive; equal if only its epoch moved.
	From types.Offset `json:"from"`
	To   types.Offset `json:"to"`
	// Epoch is the source's leader epoch now.
	Epoch types.LeaderEpoch `json:"epoch"`
	// FirstAt and LastAt are when a move was seen first and last.
	FirstAt types.Millis `json:"firstAt"`
	LastAt  types.Millis `json:"lastAt"`
	// Producers wrote there after the failover, as far as the source says.
	Producers []AlarmProducer `json:"producers,omitempty"`
}

// AlarmProducer is a producer that the old source remembers.
type AlarmProducer struct {
	ID     types.ProducerID `json:"id"`
	Epoch  int16            `json:"epoch"`
	LastAt types.Millis     `json:"lastAt"` // of its last record
}

// watcher watches the old source after a failover: nobody may write there any more.
type watcher struct {
	run *run

	mu sync.Mutex
	// guards the following
	seen map[meta.PartitionID]*watched
}

// watched is one promoted partition at its old source.
type watched struct {
	promoted types.LeaderEpoch // of the promotion that it belongs to
	end      types.Offset      // of the source, as last seen
	epoch    types.LeaderEpoch
	alarm    *SplitBrainAlarm
	told     time.Time // of the last event
}

// retellEvery bounds how often a source that goes on moving is told again.
const retellEvery = time.Minute

func newWatcher(r *run) *watcher { return &watcher{run: r, seen: map[meta.PartitionID]*watched{}} }

// loop looks at the old source every mirror.watch.source.ms, as long as there is something promoted.
func (w *watcher) loop() {
	for {
		every := w.run.settings.Load().WatchSourceMs
		if every < 0 {
			every = 1000 // it may be asked for later
		}
		if !pause(w.run.ctx, millis(max(every, 50))) {
			return
		}
		list := w.promoted()
		w.count()
		if len(list) == 0 || w.run.settings.Load().WatchSourceMs < 0 || w.run.client == nil {
			continue
		}
		if err := w.look(w.run.ctx, list); err != nil {
			w.run.health.failed(syncWatch, err) // a source that is gone is what a failover is for
			continue
		}
		w.run.health.ok(syncWatch)
	}
}

// syncWatch names the watch among the syncs whose health is told.
const syncWatch = "old source"

// target is a promoted partition that is led here.
type target struct {
	id     meta.PartitionID
	tp     types.TopicPartition
	made   *meta.PromotionRecord
	source source.Partition
	end    types.Offset // of the source
	after  types.Offset // first record at the source with a time stamp after the promotion, -1: none
}

// promoted lists what is to be watched, and forgets what no longer is.
func (w *watcher) promoted() []*target {
	node := w.run.m.o.Node
	image := node.Image()
	var list []*target
	for t := range image.TopicsByName() {
		for p := range image.PartitionsOf(t.ID) {
			rec := p.Record
			if rec == nil || rec.Mirror == nil || rec.Mirror.Name != w.run.name || !rec.Writable || rec.Leader != node.NodeID() || len(rec.Promotions) == 0 {
				continue
			}
			list = append(list, &target{id: p.ID, tp: types.TopicPartition{Topic: t.Record.Name, Partition: p.ID.Number}, made: &rec.Promotions[len(rec.Promotions)-1]})
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.seen {
		if !slices.ContainsFunc(list, func(t *target) bool { return t.id == id }) {
			delete(w.seen, id) // a mirror again, deleted, or led elsewhere
		}
	}
	return list
}

// look asks the source once for all partitions.
func (w *watcher) look(ctx context.Context, list []*target) error {
	client := w.run.client
	names := map[string]bool{}
	for _, t := range list {
		names[t.tp.Topic] = true
	}
	md, err := client.Metadata(ctx, slices.Sorted(keysOf(names)))
	if err != nil {
		return err
	}
	if rec := w.run.record.Load(); rec.SourceClusterID != "" && md.ClusterID != rec.SourceClusterID {
		return fmt.Errorf("another cluster (%s) answers at the source's address", md.ClusterID)
	}
	topics := map[string]*source.Topic{}
	for i := range md.Topics {
		topics[md.Topics[i].Name] = &md.Topics[i]
	}
	byLeader := map[types.BrokerID][]*target{}
	for _, t := range list {
		at := topics[t.tp.Topic]
		if at == nil || at.Code != 0 || int(t.tp.Partition) >= len(at.Partitions) || (!at.ID.IsZero() && at.ID != t.id.Topic) {
			continue // deleted, or made anew: that is another topic
		}
		if t.source = at.Partitions[t.tp.Partition]; t.source.Leader != types.NoBroker {
			byLeader[t.source.Leader] = append(byLeader[t.source.Leader], t)
		}
	}
	for _, leader := range slices.Sorted(maps.Keys(byLeader)) {
		for chunk := range slices.Chunk(byLeader[leader], partitionsPerListOffsets) {
			if err := w.lookAt(ctx, leader, chunk); err != nil {
				return err
			}
		}
	}
	w.count()
	return nil
}

func keysOf(m map[string]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// lookAt asks one leader, and judges what it says of each partition.
func (w *watcher) lookAt(ctx context.Context, leader types.BrokerID, list []*target) error {
	client := w.run.client
	queries := make([]source.OffsetQuery, len(list))
	lineage := make([]source.LineageQuery, len(list))
	for i, t := range list {
		queries[i] = source.OffsetQuery{TopicPartition: t.tp, CurrentEpoch: types.NoLeaderEpoch, Timestamp: source.Latest}
		lineage[i] = source.LineageQuery{TopicPartition: t.tp, TopicID: t.id.Topic}
	}
	told, err := client.Lineage(ctx, leader, lineage)
	if err != nil {
		return err
	}
	ends, err := client.ListOffsets(ctx, leader, queries)
	if err != nil {
		return err
	}
	for i, t := range list {
		queries[i].Timestamp = t.made.At + 1
	}
	after, err := client.ListOffsets(ctx, leader, queries)
	if err != nil {
		return err
	}
	var moved []*target
	for _, t := range list {
		if ends[t.tp].Code != 0 || after[t.tp].Code != 0 {
			continue
		}
		if l, ok := told[t.tp]; ok && (l.IsMirror || !l.Writable) {
			w.forget(t.id) // a mirror again, ours perhaps, or fenced: nobody writes to it
			continue
		}
		t.end, t.after = ends[t.tp].Offset, after[t.tp].Offset
		if w.judge(t) {
			moved = append(moved, t)
		}
	}
	if len(moved) > 0 {
		w.alarm(ctx, leader, moved)
	}
	return nil
}

func (w *watcher) forget(id meta.PartitionID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.seen, id)
}

// judge compares a look with the one before, and reports whether it is an alarm.
// At the first look after the failover, records that the source took before it died are no
// alarm: they are what the failover lacks, and are told as that. Records with a time stamp
// after the promotion are one at once.
func (w *watcher) judge(t *target) bool {
	m := w.run.m
	now := m.o.Node.Now()
	w.mu.Lock()
	s := w.seen[t.id]
	first := s == nil || s.promoted != t.made.PromotedEpoch
	if first {
		s = &watched{promoted: t.made.PromotedEpoch, end: t.end, epoch: t.source.LeaderEpoch}
		if known, ok := w.remembered(t); ok { // from before the last start
			s.end, first = known, false
		}
		w.seen[t.id] = s
	}
	from, to := t.end, t.end
	switch {
	case t.end > s.end:
		from = s.end
	case t.after >= 0 && t.after < t.end && s.alarm == nil:
		from = t.after
	}
	epochMoved := t.source.LeaderEpoch > s.epoch
	s.end, s.epoch = t.end, max(s.epoch, t.source.LeaderEpoch)
	isAlarm := from < to || epochMoved
	if isAlarm {
		if s.alarm == nil {
			s.alarm = &SplitBrainAlarm{From: from, To: to, FirstAt: now}
		} else if s.alarm.From == s.alarm.To {
			s.alarm.From = from
		}
		next := *s.alarm // shown ones aren't changed
		next.To, next.LastAt, next.Epoch = max(next.To, to), now, t.source.LeaderEpoch
		s.alarm = &next
	}
	w.mu.Unlock()
	if first && from == to && t.end > t.made.LogEnd {
		m.events.add(m.log, Event{
			At: now, Mirror: w.run.name, Kind: SourceAhead, Topic: t.tp.Topic, Partition: t.tp.Partition, From: t.made.LogEnd, To: t.end, Records: int64(t.end - t.made.LogEnd),
			Message: fmt.Sprintf("%s: the old source is back and has offsets %d to %d that the failover did not take (epoch %d); a failback shows them first and keeps them in its vault", t.tp, t.made.LogEnd, t.end-1, t.source.LeaderEpoch),
		})
	}
	return isAlarm
}

// remembered finds in the event log where the source was seen to end after the
// promotion; it outlives restarts.
func (w *watcher) remembered(t *target) (end types.Offset, ok bool) {
	for _, e := range w.run.m.events.list() {
		if (e.Kind == SplitBrain || e.Kind == SourceAhead) && e.Mirror == w.run.name && e.Topic == t.tp.Topic && e.Partition == t.tp.Partition && e.At >= t.made.At {
			end, ok = e.To, true
		}
	}
	return end, ok
}

// alarm tells what has moved, with the producers if the source says them.
func (w *watcher) alarm(ctx context.Context, leader types.BrokerID, moved []*target) {
	tps := make([]types.TopicPartition, len(moved))
	for i, t := range moved {
		tps[i] = t.tp
	}
	producers, err := w.run.client.Producers(ctx, leader, tps)
	if err != nil {
		w.run.m.log.Warn("the old source doesn't say who writes to it", "mirror", w.run.name, "err", err)
	}
	for _, t := range moved {
		w.tell(t, producers[t.tp])
	}
}

func (w *watcher) tell(t *target, producers []source.Producer) {
	w.mu.Lock()
	s := w.seen[t.id]
	if s == nil || s.alarm == nil {
		w.mu.Unlock()
		return
	}
	next := *s.alarm
	next.Producers = nil
	for _, p := range producers {
		if p.LastAt > t.made.At || p.LastAt < 0 {
			next.Producers = append(next.Producers, AlarmProducer{ID: p.ID, Epoch: p.Epoch, LastAt: p.LastAt})
		}
	}
	s.alarm = &next
	due := clock.Since(w.run.ctx, s.told) >= retellEvery
	if due {
		s.told = clock.Now(w.run.ctx)
	}
	w.mu.Unlock()
	if !due {
		return
	}
	m := w.run.m
	m.events.add(m.log, Event{
		At: next.LastAt, Mirror: w.run.name, Kind: SplitBrain, Topic: t.tp.Topic, Partition: t.tp.Partition, From: next.From, To: next.To, Records: int64(next.To - next.From),
		Message: fmt.Sprintf("%s: SPLIT BRAIN: %s", t.tp, next.words()),
	})
}

// words says an alarm and what to do.
func (a *SplitBrainAlarm) words() string {
	what := fmt.Sprintf("the old source took offsets %d to %d after the failover", a.From, a.To-1)
	if a.From == a.To {
		what = fmt.Sprintf("the old source elected a leader (epoch %d) after the failover", a.Epoch)
	}
	switch n := len(a.Producers); {
	case n > 0:
		var ids []string
		for _, p := range a.Producers[:min(n, 5)] {
			ids = append(ids, fmt.Sprintf("%d (epoch %d, last record %s)", p.ID, p.Epoch, utc(p.LastAt)))
		}
		what += fmt.Sprintf(", from %d producers: %s", n, strings.Join(ids, ", "))
	case a.From < a.To:
		what += "; it doesn't say from whom"
	}
	return what + ". Stop its writers: what they write there is on another history than what is written here"
}

// count shows how many partitions are alarmed.
func (w *watcher) count() {
	w.mu.Lock()
	n := 0
	for _, s := range w.seen {
		if s.alarm != nil {
			n++
		}
	}
	w.mu.Unlock()
	w.run.m.o.Metrics.Mirror.SplitBrain.WithLabelValues(w.run.name).Set(float64(n))
}

// alarmOf gives a partition's alarm, nil for none.
func (w *watcher) alarmOf(id meta.PartitionID) *SplitBrainAlarm {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.seen[id]; s != nil {
		return s.alarm
	}
	return nil
}
