package mirror

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/meta"
)

// Mirrors are the mirrors of one node. Make them with New; Close ends them.
type Mirrors struct {
	o      Options
	log    *slog.Logger
	events *journal
	// reports are those of verifications.
	reports *reportBook
	writer  *writer

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	// drilling is held while a drill is made through this node.
	drilling sync.Mutex
	// starting counts the verbs that start partitions which are led here.
	starting atomic.Int32

	mu sync.Mutex
	// guards the following
	runs    map[string]*run
	changed map[meta.PartitionID]bool // partitions to look at again
	all     bool                      // look at everything again
	wake    chan struct{}
	proved  map[meta.PartitionID]provedTo
	// unsettled counts the promotions of a partition of which it isn't known yet whether they happened.
	unsettled map[meta.PartitionID]int
	// switching counts the switchovers of a mirror, by its name, that this node works at.
	switching map[string]int
}

// New makes the mirrors that the image knows and starts those that should run.
func New(o Options) *Mirrors {
	m := &Mirrors{
		o: o, log: o.Logger, events: newJournal(o.Node.NodeID(), o.Events, o.EventHistory, eventMetrics(o.Metrics)), runs: map[string]*run{}, changed: map[meta.PartitionID]bool{},
		all: true, wake: make(chan struct{}, 1), proved: map[meta.PartitionID]provedTo{},
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	m.reports = newReportBook(o.FS, o.ReportDir, m.log)
	if o.Context == nil {
		o.Context = context.Background()
	}
	m.ctx, m.cancel = context.WithCancel(o.Context)
	m.writer = newWriter(m)
	clock.Go(m.ctx, &m.work, m.writer.loop)
	clock.Go(m.ctx, &m.work, m.follow)
	m.poke()
	return m
}

// Close stops all mirroring and waits for it. What is on disk and in the metadata stays as it is.
func (m *Mirrors) Close() {
	m.cancel()
	clock.Join(m.ctx, &m.work)
}

// ImageChanged is told of every new image, after the partitions were. It doesn't block.
func (m *Mirrors) ImageChanged(_ *meta.Image, delta meta.Delta) {
	m.mu.Lock()
	for _, c := range delta.Partitions {
		if c.New != nil {
			m.changed[c.New.ID] = true
		} else {
			m.changed[c.Old.ID] = true
		}
	}
	m.all = m.all || len(delta.Brokers) > 0 || len(delta.Mirrors) > 0
	m.mu.Unlock()
	m.poke()
}

// LookAgain has everything compared with the image once more: for whoever could
// not tell of a change in time.
func (m *Mirrors) LookAgain() {
	m.mu.Lock()
	m.all = true
	m.mu.Unlock()
	m.poke()
}

func (m *Mirrors) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// follow brings runs and copiers in line with the image, again and again.
func (m *Mirrors) follow() {
	for {
		if _, err := clock.Wait(m.ctx, clock.Forever, m.wake); err == nil {
			m.reconcile()
			continue
		}
		m.mu.Lock()
		runs := m.runs
		m.runs = map[string]*run{}
		m.mu.Unlock()
		for _, name := range slices.Sorted(maps.Keys(runs)) {
			runs[name].close()
		}
		return
	}
}

// reconcile looks at what has changed since the last time.
func (m *Mirrors) reconcile() {
	image := m.o.Node.Image()
	m.mu.Lock()
	changed, all := m.changed, m.all
	m.changed, m.all = map[meta.PartitionID]bool{}, false
	m.mu.Unlock()
	if all {
		m.reconcileRuns(image)
		for p := range image.Partitions() {
			if p.Record != nil && p.Record.Mirror != nil {
				changed[p.ID] = true
			}
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(changed), comparePartitionIDs) {
		m.showPartition(image, id)
	}
}

// reconcileRuns has one run for each mirror that wants one. A mirror whose
// record says where to connect differently gets a new run.
func (m *Mirrors) reconcileRuns(image *meta.Image) {
	gone := map[string]*run{}
	m.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(m.runs)) {
		r := m.runs[name]
		e, ok := image.Mirror(name)
		if !ok || !wantsRun(e.Record) || !r.fits(e.Record) {
			delete(m.runs, name)
			gone[name] = r
		}
	}
	m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		gone[name].close()
	}
	for e := range image.Mirrors() {
		if !wantsRun(e.Record) {
			continue
		}
		m.mu.Lock()
		r := m.runs[e.ID]
		if r == nil {
			r = newRun(m, e.Record)
			if old := gone[e.ID]; old != nil {
				r.promoting = old.promoting // a verb's failover may still be at work on the old one
			}
			m.runs[e.ID] = r
			r.start()
		}
		m.mu.Unlock()
		r.setRecord(e.Record)
	}
}

// beginsPromotion says that a partition's promotion, or the abandon of its start, is being
// made: until its outcome is certain no copier may go on beside it, of this run or of one that takes its place.
//
// Invariant I-251 (R23): no copier is made while a promotion isn't known to have happened, or not.
func (m *Mirrors) beginsPromotion(id meta.PartitionID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unsettled == nil {
		m.unsettled = map[meta.PartitionID]int{}
	}
	m.unsettled[id]++
}

// settlesPromotion ends what beginsPromotion began, and has the partition looked at again.
func (m *Mirrors) settlesPromotion(id meta.PartitionID) {
	m.mu.Lock()
	if m.unsettled[id]--; m.unsettled[id] == 0 {
		delete(m.unsettled, id)
	}
	if m.changed != nil {
		m.changed[id] = true
	}
	m.mu.Unlock()
	m.poke()
}

func (m *Mirrors) isUnsettled(id meta.PartitionID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unsettled[id] > 0
}

func wantsRun(r *meta.MirrorRecord) bool {
	return r.Want == meta.WantRunning || r.Want == meta.WantPaused || r.Want == meta.WantStopped
}

// showPartition has a copier for each mirrored partition held here, and shows it the record.
func (m *Mirrors) showPartition(image *meta.Image, id meta.PartitionID) {
	e, ok := image.PartitionEntry(id.Topic, id.Number)
	mirror := ""
	if ok && e.Record != nil && e.Record.Mirror != nil {
		mirror = e.Record.Mirror.Name
	}
	m.mu.Lock()
	runs := make([]*run, 0, len(m.runs))
	for _, name := range slices.Sorted(maps.Keys(m.runs)) {
		runs = append(runs, m.runs[name])
	}
	m.mu.Unlock()
	for _, r := range runs {
		if r.name == mirror {
			r.show(id)
		} else {
			r.drop(id)
		}
	}
}

func (m *Mirrors) run(name string) *run {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.runs[name]
}

// pause waits for d or until ctx ends, and reports whether it waited to the end.
func pause(ctx context.Context, d time.Duration) bool {
	return clock.Sleep(ctx, d) == nil
}
