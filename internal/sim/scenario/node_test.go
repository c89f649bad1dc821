package scenario

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"tidemark/internal/broker"
	"tidemark/internal/broker/follow"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/clock"
	"tidemark/internal/config"
	"tidemark/internal/core/control"
	"tidemark/internal/core/epoch"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/metastore"
	"tidemark/internal/telemetry"
	"tidemark/internal/vfs"
)

const (
	logDir    = "/data"
	topicName = "t"
)

var (
	background = context.Background()
	metrics    = telemetry.New()
	errLost    = fmt.Errorf("the answer was lost: %w", metastore.ErrUnknownOutcome)
)

// node is one broker with its replica: one process after another on one disk.
type node struct {
	c    *cluster
	name string
	id   types.BrokerID
	mem  *vfs.Mem

	up          bool
	epoch       types.BrokerEpoch // of the present registration
	cleanEpoch  types.BrokerEpoch // that the last clean shutdown left a mark of
	clean       bool
	incarnation int
	room        int // of the vault, in records; below 0: any
	last        lastSeen

	// The rest is the present process's.

	disk        *disk
	keeper      *keeper
	checkpoints *log.DirCheckpoints
	logger      *slog.Logger
	in          *broker.Inline
	seen        meta.Revision
	step        *mirror.Stepper
	asked       core.Effect // what the copier waits for
	data        []byte
	want        *follow.Want
	tasks       []func()
	outcome     string // of the next ISR change
	dieInVault  bool
	startBefore types.Offset // log start before the last answer
	idleShown   bool         // an answer without records was given since the last one with some
	firstCut    timeline.Rules
}

// lastSeen is what is known of a log whose node is down.
type lastSeen struct {
	start, end, hw types.Offset
	history        []epoch.Entry
	applied        []byte
}

// boot starts the process and registers it.
func (n *node) boot() {
	n.up, n.seen, n.step, n.asked, n.want, n.tasks, n.in = true, 0, nil, nil, nil, nil, nil
	n.disk = &disk{FS: n.mem}
	n.logger = slog.New(&operatorLog{n: n})
	n.must(n.disk.MkdirAll(logDir))
	n.must(n.disk.SyncDir("/"))
	var err error
	n.cleanEpoch, n.clean, err = log.TakeCleanShutdown(n.disk, logDir)
	n.must(err)
	if !n.clean {
		n.cleanEpoch = types.NoBrokerEpoch
	}
	n.checkpoints, _, err = log.OpenCheckpoints(n.disk, logDir)
	n.must(err)
	n.keeper = &keeper{n: n}
	n.must(n.keeper.open(n.room))
	n.register()
}

func (n *node) must(err error) {
	if err != nil {
		panic(fmt.Sprintf("%s: %v", n.name, err))
	}
}

// register makes a new registration: a new broker epoch (R10).
func (n *node) register() {
	n.incarnation++
	lease, err := n.c.store.Grant(background, time.Hour)
	n.must(err)
	plans, err := control.RegisterBroker(n.c.image, meta.BrokerRecord{
		ID: n.id, DirectoryID: n.name, Incarnation: fmt.Sprint(n.name, n.incarnation), CleanShutdownEpoch: n.cleanEpoch,
		Endpoints: []meta.Endpoint{{Listener: "PLAINTEXT", Host: n.name, Port: 1, Security: "PLAINTEXT"}},
	}, lease)
	n.must(err)
	for _, p := range plans {
		n.must(n.c.commit(p))
	}
	n.epoch, _ = n.c.image.BrokerEpoch(n.id)
}

// unregister ends the registration.
func (n *node) unregister() {
	plan, err := control.UnregisterBroker(n.c.image, n.me())
	n.must(err)
	n.must(n.c.commit(plan))
}

func (n *node) me() control.Me { return control.Me{ID: n.id, Epoch: n.epoch} }

// newPartition makes the partition's object; see opens its log.
func (n *node) newPartition() {
	n.in = broker.NewInline(broker.InlineOptions{
		Node: n.id, FS: n.disk, LogDir: logDir, ID: n.c.topic, Name: types.TopicPartition{Topic: topicName}, Clean: n.clean,
		Checkpoints: n.checkpoints, Keeper: n.keeper, Now: n.c.w.clock, Logger: n.logger, Metrics: metrics,
		Rules: nodeRules(n.c.w.mutation), FirstCut: &n.firstCut, Fetching: fetching{n},
		DirFailed: func(err error) { panic(fmt.Sprintf("%s: log dir offline: %v", n.name, err)) },
		Context:   clock.With(background, nodeClock{n}),
		Peer:      n.peer, ChangeISR: n.changeISR,
	})
}

func (n *node) peer(id types.BrokerID) replica.BrokerView {
	e, ok := n.c.image.BrokerEpoch(id)
	if !ok {
		return replica.BrokerView{Barred: true, Epoch: types.NoBrokerEpoch}
	}
	return replica.BrokerView{Epoch: e}
}

// see shows the node the newest record of its partition, as its image would.
func (n *node) see() {
	e, ok := n.c.image.PartitionEntry(n.c.topic, 0)
	if !ok || !n.up {
		return
	}
	if n.in == nil {
		n.newPartition()
	}
	rec := e.Record
	if n.c.w.mutation == "R14" {
		r := rec.Clone()
		r.MinISR = 1
		rec = &r
	}
	before := n.history()
	n.firstCut = n.c.firstCutRules(n)
	n.seen = e.ModRevision
	n.in.Show(rec, e.ModRevision, n.c.topicConfig(), n.leads(rec))
	n.mutateHistory(before)
	if rec.Mirror == nil || !rec.IsMirror() {
		n.halt()
	}
}

func (n *node) leads(r *meta.PartitionRecord) bool {
	return r.Leader == n.id && (r.LeaderBrokerEpoch == n.epoch || n.c.w.mutation == "R10")
}

func (n *node) halt() {
	if n.step != nil {
		n.step.Halt()
		n.step, n.asked = nil, nil
	}
}

// view is the log as it is, or as it was when the node went down.
func (n *node) view() lastSeen {
	if !n.up || n.in == nil {
		return n.last
	}
	v, ok := n.in.Partition().View()
	if !ok {
		return n.last
	}
	s := lastSeen{start: v.LogStart, end: v.LogEnd, hw: v.HighWatermark}
	if v.History != nil {
		s.history = v.History.Entries()
	}
	s.applied, _ = n.in.Partition().Log().TimelineCheckpoint()
	return s
}

func (n *node) history() []epoch.Entry { return slices.Clone(n.view().history) }

// kill ends the process as kill -9 does; lose takes the last records off the
// disk, as a machine does that had not written them.
func (n *node) kill(lose int) {
	if n.in != nil {
		n.last = n.view()
		n.must(n.checkpoints.Write())
	}
	n.up, n.in, n.want = false, nil, nil
	n.halt()
	if lose > 0 {
		n.last.end = n.loseTail(lose)
		n.last.hw = min(n.last.hw, n.last.end)
	}
}

// stop is a clean shutdown with its mark.
func (n *node) stop() {
	n.last = n.view()
	n.halt()
	if n.in != nil {
		n.must(n.in.Close())
	}
	n.must(n.checkpoints.Write())
	n.must(log.WriteCleanShutdown(n.disk, logDir, n.epoch))
	n.up, n.in, n.want = false, nil, nil
}

// do runs f on the partition's shard.
func (n *node) do(f func(o *broker.Owned) error) error { return n.in.Partition().Do(background, f) }

// changeISR is the node's commit of a proposal of its leader (R15).
func (n *node) changeISR(from meta.Revision, isr []meta.ISRMember) error {
	plan, err := control.ChangeISR(n.c.image, n.c.topic, 0, from, isr, n.me())
	if err != nil {
		return err
	}
	how := n.outcome
	n.outcome = ""
	if how != "unknown_not_applied" {
		if err := n.c.commit(plan); err != nil {
			return err
		}
	}
	if how == "" {
		n.see()
		return nil
	}
	if n.c.w.mutation == "R8" {
		return control.ErrRecordChanged
	}
	return errLost
}

// runTasks runs what the partition has started beside its shard.
func (n *node) runTasks() {
	for len(n.tasks) > 0 {
		f := n.tasks[0]
		n.tasks = n.tasks[1:]
		f()
	}
}

// nodeClock starts background work when the player says so; nothing waits.
type nodeClock struct{ n *node }

func (c nodeClock) Now() time.Time { return time.UnixMilli(int64(c.n.c.w.now)) }

var errNoWait = errors.New("nothing waits in a story")

func (c nodeClock) Wait(context.Context, time.Duration, <-chan struct{}) (bool, error) {
	return false, errNoWait
}

func (c nodeClock) WaitAny(context.Context, time.Duration, ...<-chan struct{}) (int, error) {
	return -1, errNoWait
}

func (c nodeClock) Go(_ *sync.WaitGroup, f func()) { c.n.tasks = append(c.n.tasks, f) }

func (c nodeClock) Join(*sync.WaitGroup) { c.n.runTasks() }

func (c nodeClock) WithTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return ctx, func() {}
}

// fetching keeps what the partition wants of its leader until it is replicated.
type fetching struct{ n *node }

func (f fetching) Want(w follow.Want) { f.n.want = &w }

func (f fetching) Stop(types.BrokerID, types.TopicPartition) { f.n.want = nil }

// operatorLog hears what is told in the log alone.
type operatorLog struct{ n *node }

func (o *operatorLog) Enabled(context.Context, slog.Level) bool { return true }

func (o *operatorLog) WithAttrs([]slog.Attr) slog.Handler { return o }

func (o *operatorLog) WithGroup(string) slog.Handler { return o }

func (o *operatorLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "records that the promotion found are lost" {
		at := map[string]types.Offset{}
		r.Attrs(func(a slog.Attr) bool {
			if v, ok := a.Value.Any().(types.Offset); ok {
				at[a.Key] = v
			}
			return true
		})
		o.n.c.tell("BELOW_PROMOTION", "log_end", at["from"], "promoted_log_end", at["to"], "missing", []any{at["from"], at["to"] - 1})
	}
	return nil
}

// mirrorNode is the node as its copier sees it.
type mirrorNode struct {
	mirror.Node
	n *node
}

func (m mirrorNode) ClusterID() string      { return m.n.c.id }
func (m mirrorNode) NodeID() types.BrokerID { return m.n.id }
func (m mirrorNode) Image() *meta.Image     { return m.n.c.image }
func (m mirrorNode) Me() control.Me         { return m.n.me() }
func (m mirrorNode) Now() types.Millis      { return m.n.c.w.now }

// stepper gives the node's copier.
func (n *node) stepper() *mirror.Stepper {
	if n.step == nil {
		settings := n.c.w.settings(n.c)
		n.step = mirror.NewStepper(mirror.StepperOptions{
			Node: mirrorNode{n: n}, Mirror: "m", ID: meta.PartitionID{Topic: n.c.topic}, Part: n.in.Mirrored(), Settings: settings,
			Logger: n.logger, Metrics: metrics, Rules: n.c.mirrorRules(n),
		})
		n.asked = nil
	}
	return n.step
}

// own is the log as the core sees it.
func (n *node) own() core.Own {
	settings := n.c.w.settings(n.c)
	s := mirror.NewStepper(mirror.StepperOptions{Node: mirrorNode{n: n}, Mirror: "m", ID: meta.PartitionID{Topic: n.c.topic},
		Part: n.in.Mirrored(), Settings: settings, Logger: n.logger, Metrics: metrics})
	own, _, _, err := s.Own()
	n.must(err)
	return own
}

func (w *world) settings(c *cluster) *config.Mirror {
	s := config.Default().Mirror
	s.EpochHeadroom, s.PromotionStep = w.story.Params.EpochHeadroom, w.story.Params.PromotionStep
	s.GapPolicy = "fail"
	if c.spec.GapPolicy == "continue" {
		s.GapPolicy = "continue"
	}
	return &s
}
