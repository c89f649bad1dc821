package sim

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"tidemark/internal/broker"
	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// machine is one machine of the cluster: a disk, clocks, and one process of the
// broker after another. All of the broker is production code (broker.Virtual).
type machine struct {
	c    *cluster
	k    *kernel
	id   types.BrokerID
	name string
	mem  *vfs.Mem // replaced by what a power loss leaves
	wall wallClock
	rate float64 // of the monotonic clock

	// The rest is the present process's.

	life    int
	p       *process
	disk    *disk
	link    *storeLink
	node    *broker.Virtual
	closing bool
	waiting bool // an operator will restart it
	work    sync.WaitGroup
	image   *meta.Image // at the last look
	parts   []*held
	leaving []*held // not this broker's any more, with a log that is still open
	// bootedAt is when it began; lateKept are removals that a mutation still holds back.
	bootedAt time.Duration
	lateKept int
	// followedTo is how far the folder had followed the metadata before the start.
	followedTo meta.Revision
	// knew are the last leader epochs that its folders knew before the start.
	knew map[string]types.LeaderEpoch
	// bootedOn is the revision of the metadata that the process read before it registered:
	// what others write beside its start may lift it up to what its folder has followed.
	bootedOn meta.Revision
	// since is the first registration or office in it that was taken after it went back, 0 if none was.
	since meta.Revision
	// pastGone: the store held nothing any more of what the folder had followed.
	pastGone bool
	// joinedBack: a process has read metadata that was put back, and its folder knew nothing newer.
	// What the folder says since is of that metadata.
	joinedBack, toldBack bool
	// kept is what the logs held when the last process ended, where nobody has looked since.
	kept map[meta.PartitionID]*remembered
	owed map[meta.PartitionID][]shadowBatch // cut, and not yet kept: a mutation
}

// held is a partition that the process holds.
type held struct {
	id   meta.PartitionID
	part *broker.Partition
	*shadowLog
}

func newMachine(c *cluster, id types.BrokerID) *machine {
	d := c.k.dice(c.prefix + fmt.Sprintf("machine %d", id))
	m := &machine{c: c, k: c.k, id: id, name: c.prefix + fmt.Sprintf("broker %d", id), mem: vfs.NewMem(), kept: map[meta.PartitionID]*remembered{}, owed: map[meta.PartitionID][]shadowBatch{}, rate: 1 + (d.Float64()-0.5)*2*c.o.Drift}
	m.wall = wallClock{k: c.k, drift: (d.Float64() - 0.5) * 1e-4}
	m.mem.SetClock(func() time.Time { return time.UnixMilli(int64(m.wall.now())) })
	return m
}

func (m *machine) note(format string, args ...any) { m.k.note(m.name, format, args...) }

// up reports whether there is a process.
func (m *machine) up() bool { return m.p != nil && !m.p.dead }

// serves reports whether the broker answers requests.
func (m *machine) serves() bool { return m.up() && m.node.IsReady() && !m.closing }

// task runs something of the process that may block.
func (m *machine) task(f func()) {
	if m.up() {
		m.p.Go(&m.work, f)
	}
}

// boot starts a process on the disk as it is.
func (m *machine) boot() {
	if m.up() || m.c.stopped {
		return
	}
	m.life++
	m.bootedAt, m.lateKept = m.k.now, 0
	m.noteFollowed()
	m.noteHistories()
	m.closing, m.waiting, m.image, m.parts, m.leaving = false, false, nil, nil, nil
	p := newProcess(m.k, m.name, m.rate)
	m.p, m.disk = p, newDisk(m.mem)
	disk := m.disk
	disk.crashed = m.diskCrashed
	disk.failed = func(op diskOp, name string) { m.k.note("disk", "%s: %s of %s fails", m.name, diskOpNames[op], name) }
	p.ended, p.gone, p.looked = func() bool { return disk.dead && !p.dead }, m.gone, m.look
	m.link = newStoreLink(m)
	m.node = broker.NewVirtual(m.config(), broker.VirtualOptions{
		Logger: slog.New(&storyHandler{m: m}), FS: disk, Store: m.link, Clock: p, Wall: m.wall.now, Metrics: sharedMetrics,
		Turns: m.turns(p), Random: m.random("ids"), IDs: m.random("node ids"), SessionIdle: sessionIdle,
		Peers: &peerLinks{m: m}, Frames: m.framesOf(), Rules: m.c.mutation.rulesOf(m), Mirrors: m.c.mirrorsOf(m),
	})
	m.note("starts, life %d", m.life)
	life := m.life
	m.task(func() {
		if err := m.node.Start(); err != nil && m.life == life {
			m.note("can't start: %v", err)
			m.restartLater("it can't start")
		}
	})
	p.settle()
}

// random gives randomness of the seed: a stream of this name for each machine.
func (m *machine) random(name string) func(b []byte) {
	return func(b []byte) {
		d := m.k.dice(name + " " + m.name)
		for i := range b {
			b[i] = byte(d.IntN(256))
		}
	}
}

// turns says when a shard runs what was sent to it.
func (m *machine) turns(p *process) func(func()) {
	name := "shards " + m.name
	return func(f func()) {
		most := 200 * time.Microsecond
		if m.k.buggified("slow shard") {
			m.k.probe("broker: slow shard")
			most = 300 * time.Millisecond
		}
		p.later(m.k.dice(name).between(0, most), "shard", f)
	}
}

func (m *machine) config() *config.Broker {
	c, o := config.Default(), m.c.o
	c.NodeID, c.ClusterID, c.LogDirs, c.NumShards = m.id, m.c.id, []string{logDir}, 2
	c.MetadataTTLMs, c.ReplicaLagTimeMaxMs = types.Millis(o.Lease/time.Millisecond), types.Millis(o.LagMax/time.Millisecond)
	c.LogFlushAcks, c.LogFlushCheckpointMs, c.LogRetentionCheckIntervalMs = o.FlushAcks, 3000, 20_000
	if o.RetentionBytes > 0 {
		c.LogRetentionCheckIntervalMs = 4000
	}
	c.LogCleanerEnable, c.LogCleanerBackoffMs, c.LogSegmentDeleteDelayMs = o.Compacted || o.Members > 0 || o.NewMembers > 0 || o.Txns > 0, 5000, 2000
	c.Group.MinSessionTimeoutMs, c.Group.InitialRebalanceDelayMs = 1, 200
	c.Group.ConsumerSessionTimeoutMs, c.Group.ConsumerHeartbeatIntervalMs = types.Millis(consumerSession/time.Millisecond), types.Millis(consumerBeat/time.Millisecond)
	c.Offsets.TopicPartitions = offsetsPartitions
	c.Transactions.TopicPartitions, c.Transactions.SweepIntervalMs = txnPartitions, 1000
	if o.SessionSlots > 0 {
		c.FetchSessionCacheSlots = o.SessionSlots
	}
	if o.VaultBytes > 0 {
		c.Vault.MaxBytes = o.VaultBytes
	}
	c.Replica.FetchMaxBytes, c.Replica.FetchResponseMaxBytes = int32(o.FetchBytes), int32(o.FetchBytes)
	c.AutoLeaderRebalance, c.LeaderImbalanceCheckSeconds = o.Rebalance, 20
	c.NumRecoveryThreadsPerDir = 64
	m.c.configure(c)
	return c
}

// topicConfigs are the settings of the topic.
func (o *ClusterOptions) topicConfigs() map[string]string {
	s := map[string]string{
		"min.insync.replicas": fmt.Sprint(o.MinISR), "segment.bytes": fmt.Sprint(o.SegmentBytes), "index.interval.bytes": "300",
		"flush.ms": fmt.Sprint(o.FlushEvery.Milliseconds()), "unclean.leader.election.enable": fmt.Sprint(o.Unclean), "retention.ms": "-1",
		"message.timestamp.after.max.ms": "9223372036854775807",
	}
	if o.RetentionBytes > 0 {
		s["retention.bytes"] = fmt.Sprint(o.RetentionBytes)
	}
	if o.Compacted {
		s["cleanup.policy"], s["min.cleanable.dirty.ratio"], s["segment.ms"] = "compact", "0.1", "10000"
		if o.DeleteRetention > 0 {
			s["delete.retention.ms"] = fmt.Sprint(o.DeleteRetention.Milliseconds())
		}
	}
	return s
}

// diskCrashed decides what the process leaves behind: it runs in the middle of an operation.
func (m *machine) diskCrashed(op diskOp, name string) {
	m.k.probe("disk: crash before a " + diskOpNames[op])
	m.k.note("disk", "%s: crash before the %s of %s", m.name, diskOpNames[op], name)
	m.lose()
}

// lose makes the disk what the crash leaves of it.
func (m *machine) lose() {
	d := m.k.dice("crash")
	if !d.chance(m.c.o.PowerLoss) || m.c.stopped || m.c.restores.wentBack {
		m.k.probe("disk: process killed")
		m.c.eye().lost(m, false)
		return
	}
	m.losePower(d.Uint64(), m.c.o.KeepBlock, m.c.o.KeepEntry)
}

func (m *machine) losePower(seed uint64, keepBlock, keepEntry float64) {
	m.k.probe("disk: power lost")
	m.c.eye().lost(m, true)
	m.mem = m.mem.CrashClone(vfs.CrashConfig{Seed: seed, KeepBlock: keepBlock, KeepEntry: keepEntry})
}

// crash ends the process at once.
func (m *machine) crash() {
	if !m.up() {
		return
	}
	m.lose()
	m.disk.dead = true
	m.gone()
}

// gone is the end of a process that crashed; another one starts later.
func (m *machine) gone() {
	m.end()
	wait := m.k.dice("restart").between(50*time.Millisecond, m.c.o.RestartMost)
	if !m.c.manual {
		m.k.after(wait, "restart", m.boot)
	}
}

func (m *machine) end() {
	m.disk.dead = true
	m.p.kill()
	m.disk.unlock()
}

// restartLater is the operator who restarts a node that can't go on.
func (m *machine) restartLater(why string) {
	if m.waiting {
		return
	}
	m.waiting = true
	life := m.life
	m.k.after(m.k.dice("restart").between(time.Second, 8*time.Second), "operator restarts", func() {
		if m.life == life && m.up() {
			m.note("is restarted by the operator: %s", why)
			m.crash()
		}
	})
}

// shutDown ends the process cleanly.
func (m *machine) shutDown(back time.Duration) bool {
	if !m.serves() {
		return false
	}
	m.closing = true
	life := m.life
	m.task(func() {
		err := m.node.Close()
		m.k.after(0, "stopped", func() {
			if m.life != life || !m.up() {
				return
			}
			m.note("stopped (%v)", err)
			m.c.eye().lost(m, false)
			m.end()
			m.k.after(back, "restart", m.boot)
		})
	})
	return true
}

func (m *machine) heal() {
	m.mem.SetCapacity(0)
	if m.disk != nil {
		m.disk.crashIn, m.disk.failIn = -1, -1
	}
}

// look is called after everything that the process does.
func (m *machine) look() {
	if m.p.dead {
		return
	}
	image := m.node.Image()
	if image != m.image {
		m.image = image
		m.listParts()
	}
	for _, h := range m.parts {
		m.c.eye().look(m, h)
	}
	m.lookLeaving()
	m.c.check.started(m)
	if !m.node.IsReady() || m.waiting {
		return
	}
	if err := m.node.Broker().Health(); err != nil {
		m.k.probe("broker: log dir offline")
		m.restartLater(err.Error())
	}
}

// lookLeaving looks at partitions that aren't this broker's any more until their logs
// are closed: a write that was queued before its shard heard of that is still a leader's.
func (m *machine) lookLeaving() {
	m.leaving = slices.DeleteFunc(m.leaving, func(h *held) bool {
		if _, open := h.part.View(); !open {
			return true
		}
		m.c.eye().look(m, h)
		return false
	})
}

func (m *machine) listParts() {
	old := m.parts
	m.parts = nil
	for part := range m.node.Broker().Partitions() {
		id := meta.PartitionID{Topic: part.TopicID(), Number: part.Name().Partition}
		h := &held{id: id, part: part, shadowLog: &shadowLog{serving: -1}}
		for _, o := range old {
			if o.part == part {
				h = o
			}
		}
		m.parts = append(m.parts, h)
	}
	for _, o := range old {
		if !slices.Contains(m.parts, o) {
			m.leaving = append(m.leaving, o)
		}
	}
}

func (m *machine) held(id meta.PartitionID) *held {
	for _, h := range m.parts {
		if h.id == id {
			return h
		}
	}
	return nil
}

// storyHandler puts what a broker logs into the story, and counts each kind of line
// as a probe: that its branch was reached. It changes no trace.
type storyHandler struct {
	m     *machine
	attrs string
}

// Enabled implements slog.Handler.
func (h *storyHandler) Enabled(_ context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo
}

// Handle implements slog.Handler.
func (h *storyHandler) Handle(_ context.Context, r slog.Record) error {
	what := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "kind" { // of an event: its words come with names and figures
			return true
		}
		what = "event " + a.Value.String()
		return false
	})
	h.m.k.probe("broker says: " + what)
	if h.m.k.story == nil {
		return nil
	}
	var b strings.Builder
	b.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	h.m.k.story.add(h.m.k.now, h.m.name, b.String()+h.attrs)
	return nil
}

// WithAttrs implements slog.Handler.
func (h *storyHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	out := *h
	for _, a := range attrs {
		out.attrs += fmt.Sprintf(" %s=%v", a.Key, a.Value)
	}
	return &out
}

// WithGroup implements slog.Handler.
func (h *storyHandler) WithGroup(string) slog.Handler { return h }
