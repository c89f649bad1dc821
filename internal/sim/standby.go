package sim

import (
	"context"
	"log/slog"
	"time"

	"tidemark/internal/broker"
	"tidemark/internal/config"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/metastore/mem"
	"tidemark/internal/vault"
	"tidemark/internal/vfs"
)

const (
	logDir     = "/data"
	clusterID  = "standby-cluster"
	mirrorName = "dr"
	topicName  = "orders"
)

// standby is the node under test: one process after another on one disk.
type standby struct {
	w     *world
	k     *kernel
	id    types.BrokerID
	mem   *vfs.Mem // the disk; replaced by what a power loss leaves
	clock wallClock
	cfg   *config.Broker
	log   *slog.Logger

	// The rest is the present process's, gone with its end.

	up, closing bool
	creating    bool // the topic is being made
	electing    bool // an election is under way
	life        int  // counts the processes
	incarnation int  // counts the registrations
	disk        *disk
	cleanEpoch  types.BrokerEpoch
	clean       bool // the last process ended cleanly
	checkpoints *log.DirCheckpoints
	vault       *vault.Vault
	keeper      log.Keeper
	image       *meta.Image
	watcher     *mem.Watcher
	polling     bool
	awaiting    []await
	lease       meta.LeaseID
	leaseUntil  time.Duration
	serving     bool // the services have started
	parts       []*copyPart
	dirFault    error
}

// await is who waits for the image to show a revision.
type await struct {
	rev  meta.Revision
	done func(error)
}

func newStandby(w *world) *standby {
	n := &standby{w: w, k: w.k, id: 1, mem: vfs.NewMem(), cfg: config.Default(), log: slog.New(slog.DiscardHandler)}
	n.clock = wallClock{k: w.k, drift: (w.k.dice("clock drift").Float64() - 0.5) * 1e-4}
	n.cfg.NodeID = n.id
	n.mem.SetClock(func() time.Time { return time.UnixMilli(int64(n.clock.now())) })
	return n
}

func (n *standby) note(format string, args ...any) { n.k.note("standby", format, args...) }

// alive reports whether the present process still does anything.
func (n *standby) alive() bool { return n.up && !n.disk.dead }

// run lets the process do something, and ends it if it crashed in the middle.
func (n *standby) run(f func()) {
	if !n.alive() {
		return
	}
	f()
	if n.up && n.disk.dead {
		n.gone()
	}
}

// after is a timer of the present process.
func (n *standby) after(d time.Duration, what string, f func()) {
	life := n.life
	n.k.after(d, what, func() {
		if n.life == life {
			n.run(f)
		}
	})
}

// boot starts a process on the disk as it is.
func (n *standby) boot() {
	if n.up {
		return
	}
	n.up, n.closing, n.creating, n.electing = true, false, false, false
	n.life++
	n.disk = newDisk(n.mem)
	n.disk.crashed = n.diskCrashed
	n.disk.failed = func(op diskOp, name string) { n.k.note("disk", "%s of %s fails", diskOpNames[op], name) }
	n.image, n.watcher, n.awaiting, n.polling = nil, nil, nil, false
	n.lease, n.leaseUntil, n.serving, n.parts, n.dirFault = 0, 0, false, nil, nil
	n.note("starts, life %d", n.life)
	n.run(func() {
		if err := n.openDir(); err != nil {
			n.note("can't start: %v", err)
			n.stop(time.Second)
			return
		}
		n.readImage()
	})
}

// openDir opens what lies beside the partitions' folders.
func (n *standby) openDir() error {
	if err := n.disk.MkdirAll(logDir); err != nil {
		return err
	}
	if err := n.disk.SyncDir("/"); err != nil {
		return err
	}
	var err error
	if n.cleanEpoch, n.clean, err = log.TakeCleanShutdown(n.disk, logDir); err != nil {
		return err
	}
	if n.clean {
		n.k.probe("standby: clean start")
	}
	if n.checkpoints, _, err = log.OpenCheckpoints(n.disk, logDir); err != nil {
		return err
	}
	n.vault, err = vault.Open(vault.Options{
		FS: n.disk, Dir: logDir + "/vault", MaxBytes: n.w.o.VaultBytes, MaxAge: -1, Now: n.clock.now, Logger: n.log,
		OnOffline: n.dirFailed,
	})
	if err != nil {
		return err
	}
	n.keeper = n.w.mutation.keeper(n)
	return nil
}

// diskCrashed decides what the process leaves behind: it runs in the middle of an operation.
func (n *standby) diskCrashed(op diskOp, name string) {
	n.k.probe("disk: crash before a " + diskOpNames[op])
	n.k.note("disk", "crash before the %s of %s", diskOpNames[op], name)
	n.lose()
}

// lose makes the disk what the crash leaves of it.
func (n *standby) lose() {
	d := n.k.dice("crash")
	power := d.chance(n.w.o.PowerLoss)
	n.w.check.crashing(n, power)
	if !power {
		n.k.probe("disk: process killed")
		return
	}
	n.k.probe("disk: power lost")
	n.mem = n.mem.CrashClone(vfs.CrashConfig{Seed: d.Uint64(), KeepBlock: n.w.o.KeepBlock, KeepEntry: n.w.o.KeepEntry})
}

// crash ends the process at once.
func (n *standby) crash() {
	if !n.alive() {
		return
	}
	n.lose()
	n.disk.dead = true
	n.gone()
}

// gone is the end of a process that crashed; another one starts later.
func (n *standby) gone() {
	n.up = false
	if n.watcher != nil {
		_ = n.watcher.Close()
	}
	n.k.after(n.k.dice("restart").between(50*time.Millisecond, 4*time.Second), "restart", n.boot)
}

// stop ends a process that can't go on, as a crash without loss of power.
func (n *standby) stop(wait time.Duration) {
	n.w.check.crashing(n, false)
	n.disk.dead, n.up = true, false
	if n.watcher != nil {
		_ = n.watcher.Close()
	}
	n.k.after(wait, "restart", n.boot)
}

// shutDown ends the process cleanly (Broker.Close).
func (n *standby) shutDown() {
	if !n.alive() || n.image == nil || n.closing {
		return
	}
	n.closing = true
	epoch := types.NoBrokerEpoch
	if e, ok := n.image.BrokerEpoch(n.id); ok {
		epoch = e
	}
	clean := n.dirFault == nil
	for _, c := range n.parts {
		c.halt()
		if err := c.inline.Close(); err != nil {
			n.note("%s can't be closed cleanly: %v", c.tp, err)
			clean = false
		}
	}
	if n.lease != 0 && !n.w.storeIsDown {
		_ = n.w.store.Revoke(context.Background(), n.lease) // a lease that has ended has nothing to revoke
		n.w.storeChanged()
	}
	if err := n.checkpoints.Write(); err == nil && clean {
		if err := log.WriteCleanShutdown(n.disk, logDir, epoch); err == nil {
			n.note("stopped cleanly, epoch %d", epoch)
		}
	}
	if n.alive() {
		n.stop(n.k.dice("restart").between(50*time.Millisecond, 2*time.Second))
	}
}

// dirFailed is what a node does when its only log dir went offline: nothing any
// more. The operator restarts it, on the disk that a reboot leaves.
func (n *standby) dirFailed(cause error) {
	if n.dirFault != nil || n.disk.dead {
		return
	}
	n.dirFault = cause
	n.k.probe("standby: log dir offline")
	n.note("log dir offline: %v", cause)
	n.after(n.k.dice("restart").between(time.Second, 10*time.Second), "operator restarts", n.crash)
}

// me is this node as the writer of plans (Broker.me).
func (n *standby) me() control.Me {
	e, ok := n.image.BrokerEpoch(n.id)
	if !ok {
		e = types.NoBrokerEpoch
	}
	return control.Me{ID: n.id, Epoch: e}
}

// leads is R10 without R19 (Broker.leads).
func (n *standby) leads(image *meta.Image, r *meta.PartitionRecord) bool {
	e, ok := image.BrokerEpoch(n.id)
	return r != nil && ok && r.Leader == n.id && r.LeaderBrokerEpoch == e
}

// leaseIsOver is what gates every client's request (Broker.get).
func (n *standby) leaseIsOver() bool { return n.k.now >= n.leaseUntil }

func (n *standby) limits() control.Limits { return control.Limits{Ops: n.w.store.MaxTxnOps()} }

// topicConfig is the mirrored topic's configuration.
func (n *standby) topicConfig() config.Topic {
	t := n.cfg.Topic(nil)
	t.SegmentBytes, t.RetentionBytes, t.RetentionMs = n.w.o.SegmentBytes, n.w.o.RetentionBytes, -1
	t.Compact, t.Delete = n.w.o.Compacted, !n.w.o.Compacted
	t.FlushMs, t.IndexIntervalBytes = types.Millis(n.w.o.FlushEvery/time.Millisecond), 300
	t.FlushMessages, t.ProducerIDExpirationMs, t.DeleteRetentionMs = 1<<62, 0, 15_000
	t.TimestampAfterMaxMs, t.TimestampBeforeMaxMs = 1<<62, 1<<62
	return t
}

// showPartition tells a partition what the image says of it (Broker.showPartition).
func (n *standby) showPartition(image *meta.Image, e *meta.Partition) {
	t, ok := image.Topic(e.ID.Topic)
	if !ok || e.Record == nil {
		return
	}
	c := n.part(e.ID)
	if c == nil {
		tp := types.TopicPartition{Topic: t.Record.Name, Partition: e.ID.Number}
		c = &copyPart{n: n, k: n.k, id: e.ID, tp: tp, leader: -1}
		c.inline = broker.NewInline(broker.InlineOptions{
			Node: n.id, FS: n.disk, LogDir: logDir, ID: e.ID.Topic, Name: tp, Clean: n.clean,
			Checkpoints: n.checkpoints, Keeper: n.keeper, Now: n.clock.now, Logger: n.log, Metrics: n.w.metrics,
			Rules: broker.VirtualRules{Log: n.w.mutation.Log}, DirFailed: n.dirFailed, IDs: n.fresh,
		})
		n.parts = append(n.parts, c)
	}
	if n.closing {
		return
	}
	wasOpen := c.isOpen()
	c.inline.Show(e.Record, e.ModRevision, n.topicConfig(), n.leads(image, e.Record))
	if !n.alive() {
		return
	}
	if !wasOpen && c.isOpen() {
		v, _ := c.inline.Partition().View()
		n.note("%s opened: [%d, %d) hw %d, history %v, synced to %d", c.tp, v.LogStart, v.LogEnd, v.HighWatermark, v.History, v.RecoveryPoint)
		n.w.check.opened(c)
	}
	n.w.check.shown(c)
}

func (n *standby) part(id meta.PartitionID) *copyPart {
	for _, c := range n.parts {
		if c.id == id {
			return c
		}
	}
	return nil
}

// chores are what a node does from time to time (broker/schedule.go).
func (n *standby) chores() {
	d := n.k.dice("chores")
	n.after(d.between(500*time.Millisecond, 1500*time.Millisecond), "chores", n.chores)
	if n.closing || n.dirFault != nil {
		return
	}
	for _, c := range n.parts {
		if !n.alive() {
			return
		}
		if !c.isOpen() && d.chance(0.1) {
			n.note("%s is not open; the operator restarts the node", c.tp)
			n.crash()
			return
		}
		c.chores(d)
	}
	if d.chance(0.2) && n.alive() {
		if err := n.checkpoints.Write(); err != nil && !vfs.IsNoSpace(err) && n.alive() {
			n.dirFailed(err)
		}
	}
}

// fresh is the seed's randomness for what a partition names.
func (n *standby) fresh(b []byte) {
	d := n.k.dice("node ids")
	for i := range b {
		b[i] = byte(d.IntN(256))
	}
}
