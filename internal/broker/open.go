package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// show opens the partition if need be and shows it what the image says of it. On
// a full disk nothing of that is lost: the clock tries again (tickISR), with what was shown last.
func (p *Partition) show(rec *meta.PartitionRecord, rev meta.Revision, topic config.Topic, leading bool) {
	first := p.showAgain == nil
	p.showAgain = nil
	err := p.open(topic, rec)
	if err == nil {
		if p.unread != nil {
			p.unread.show = func() { p.show(rec, rev, topic, leading) }
		}
		p.shown(rec, rev, topic, leading)
		return
	}
	p.showAgain = func() { p.show(rec, rev, topic, leading) }
	p.asks.Store(pressing)
	if first {
		p.env.logger.Error("partition can't be opened; trying again when there is room", "partition", p.tp.String(), "err", err)
	}
}

// open opens the partition's log if it isn't open yet. It runs on the shard, so
// that as many logs open at a time as there are shards. A write or sync that
// fails takes the log dir offline (DESIGN §3), anything else this partition alone, and
// what can't be read is tried again (couldNotOpen); a disk without room is waited for, and is the only error that it gives.
func (p *Partition) open(topic config.Topic, record *meta.PartitionRecord) error {
	if p.log != nil || p.offline != nil || p.deleted {
		return nil
	}
	if cause := p.dir.failure(); cause != nil {
		p.goOffline(cause)
		return nil
	}
	defer p.dir.admit()()
	p.topic = topic
	p.setChoreFlags()
	var l *log.Log
	var rec log.Recovery
	err := p.dir.takeFork(meta.PartitionID{Topic: p.id, Number: p.tp.Partition}, p.tp)
	if err == nil {
		l, rec, err = p.openLog(topic, record)
	}
	if errors.Is(err, log.ErrTopicID) {
		if wrong := p.wrongID(record); wrong != nil {
			err = wrong
		}
	}
	if errors.Is(err, log.ErrTopicID) {
		// A deletion that a crash interrupted left the folder of an older topic of this
		// name; after a restore it is that of a newer one, which is kept.
		suffix := deleteSuffix
		if !p.dir.trusts.Load() {
			suffix = straySuffix
		}
		if _, err = p.dir.setAside(p.tp.String(), suffix); err == nil {
			p.dir.checkpoints.Forget(p.tp) // what they say was that folder's
			l, rec, err = p.openLog(topic, record)
		}
	}
	switch {
	case vfs.IsNoSpace(err):
		p.dir.room.refused()
		return err
	case err != nil:
		p.env.logger.Error("partition can't be opened", "partition", p.tp.String(), "err", err)
		p.goOffline(err)
		p.couldNotOpen(err)
		return nil
	}
	p.log, p.unread, p.holed = l, nil, len(rec.Missing) > 0
	p.dir.checkpoints.Attach(l)
	p.tellRecovery(rec)
	return nil
}

// openLog opens the log, or makes one where there is none: then the checkpoint
// files must not say anything of that name any more, as a deleted topic had it.
func (p *Partition) openLog(topic config.Topic, record *meta.PartitionRecord) (*log.Log, log.Recovery, error) {
	_, err := p.dir.fs.Stat(filepath.Join(p.dir.path, p.tp.String()))
	found := err == nil
	if errors.Is(err, fs.ErrNotExist) {
		if err := p.lostFork(record); err != nil {
			return nil, log.Recovery{}, err
		}
		p.tellGone(record)
		err = p.dir.checkpoints.Begin(p.tp)
	}
	if err != nil {
		if vfs.IsDiskFault(err) {
			err = fmt.Errorf("%w: %w", log.ErrOffline, err)
		}
		return nil, log.Recovery{}, err
	}
	l, rec, err := log.Open(p.logOptions(topic))
	if err == nil && found {
		p.trail.cut(l.View().LogEnd)
	}
	return l, rec, err
}

// admit waits until this dir may open one more log: while the dir recovers from
// an unclean stop, num.recovery.threads.per.data.dir at a time, else any number.
func (d *logDir) admit() (leave func()) {
	if !d.recovering.Load() {
		return func() {}
	}
	d.opening <- struct{}{}
	return func() { <-d.opening }
}

func (p *Partition) logOptions(topic config.Topic) log.Options {
	d := p.dir
	o := log.Options{
		FS: d.fs, Dir: filepath.Join(d.path, p.tp.String()), TopicPartition: p.tp, TopicID: p.id,
		Config: logConfig(topic, p.tp), Now: p.env.now, Logger: p.env.logger,
		CleanShutdown: d.clean, Keeper: p.env.keeper, Checkpoints: d.checkpoints, Random: d.fresh, Rules: p.env.rules.Log,
	}
	m := d.checkpoints.Get(p.tp)
	o.RecoveryPoint, o.LogStart, o.HighWatermark, o.Cleaned, o.Evidence = m.RecoveryPoint, m.LogStart, m.HighWatermark, m.Cleaned, m.Evidence
	return o
}

// tellRecovery says what opening had to repair, if anything.
func (p *Partition) tellRecovery(r log.Recovery) {
	if r.TruncatedBecause == "" && !r.HistoryRebuilt && r.IndexesRebuilt == 0 && !r.BelowMark {
		return
	}
	level := p.env.logger.Info
	if r.BelowMark || r.TruncatedBecause != "" {
		level = p.env.logger.Warn
	}
	level("log recovered", "partition", p.tp.String(), "truncatedBytes", r.TruncatedBytes, "at", r.TruncatedAt,
		"because", r.TruncatedBecause, "indexesRebuilt", r.IndexesRebuilt, "historyRebuilt", r.HistoryRebuilt, "belowHighWatermark", r.BelowMark)
}

// setAside renames a partition's folder out of the way, <name>.<id><suffix> as
// Kafka names them, and gives its new path.
func (d *logDir) setAside(name, suffix string) (string, error) {
	to := filepath.Join(d.path, name+"."+d.fresh.Fresh()+suffix)
	err := d.fs.Rename(filepath.Join(d.path, name), to)
	if err == nil {
		err = d.fs.SyncDir(d.path)
	}
	if vfs.IsDiskFault(err) {
		err = fmt.Errorf("%w: %w", log.ErrOffline, err)
	}
	if err != nil {
		return "", err
	}
	return to, nil
}

// delete ends the partition with its topic: nobody is answered any more, and the
// folder is renamed. It gives the renamed folder, to be removed later; "" if there is none.
func (p *Partition) delete() string {
	if p.deleted {
		return ""
	}
	p.endFlush()
	p.unfollow()
	p.deleted = true
	p.publish()
	p.moved.fire()
	if p.log == nil {
		return ""
	}
	p.dir.checkpoints.Detach(p.tp)
	folder, err := p.log.Delete()
	if err != nil {
		p.env.logger.Error("folder of a deleted partition stays", "partition", p.tp.String(), "err", err)
		if vfs.IsDiskFault(err) {
			p.dir.fail(fmt.Errorf("%w: %w", log.ErrOffline, err))
		}
		return ""
	}
	return folder
}

// close ends the partition with the node: synced and clean, unless it is offline.
func (p *Partition) close() error {
	if p.log == nil || p.deleted {
		return nil
	}
	p.endFlush()
	p.unfollow()
	closing := errNotLeader("the broker is shutting down")
	p.serving.Store(&serving{err: closing, readErr: closing, epoch: types.NoLeaderEpoch, leader: types.NoBroker})
	p.abandon(closing)
	p.moved.fire()
	l := p.log
	p.log, p.deleted = nil, true
	if p.offline != nil {
		l.CloseUnclean()
		return p.offline
	}
	return l.Close()
}
