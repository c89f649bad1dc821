package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// What follows when a partition can't be used here: another replica in sync leads it
// (DESIGN §3), and where it was a file that could not be read, it is opened again later (ADR 0018).

// How long a partition waits that could not be opened, in milliseconds: twice as long each time.
const (
	reopenFirst types.Millis = 1_000
	reopenMost  types.Millis = 300_000
)

// unread is a partition whose files could not be read. The disk takes writes.
type unread struct {
	show func() // what the image said last
	at   types.Millis
	wait types.Millis
}

// diskProbeFile is written to learn whether a disk still takes writes.
const diskProbeFile = "disk-probe"

// probe asks the disk, after a file on it could not be read, or one that may be lost
// could not be written, whether it still takes a small file: a bad file is one
// partition's trouble, a disk that can't be written is that of all of them, and goes
// offline. A full disk says nothing.
func (d *logDir) probe(cause error) {
	name := filepath.Join(d.path, diskProbeFile)
	err := vfs.WriteAtomic(d.fs, name, []byte(d.id+"\n"))
	if err == nil {
		err = d.fs.Remove(name)
	}
	if vfs.IsDiskFault(err) {
		d.fail(fmt.Errorf("%w: a file can't be used, nor is one written: %w: %w", log.ErrOffline, cause, err))
	}
}

// forNotes is the file system for files in the dir whose loss does no harm: the event
// log, reports. A write or sync of theirs that fails is told by whoever writes them and
// costs what it was about to keep, and the disk is asked whether it goes on.
func (d *logDir) forNotes() vfs.FS {
	return vfs.Watched{FS: d.fs, Note: func(err error) error {
		if vfs.IsDiskFault(err) && d.failure() == nil {
			d.probe(err)
		}
		return err
	}}
}

// holds reports whether a file or folder lies in the dir.
func (d *logDir) holds(name string) bool {
	rest, err := filepath.Rel(d.path, name)
	return err == nil && filepath.IsLocal(rest)
}

// vaultOffline follows a write or sync that failed in the vault: the log dir that holds
// it is offline as well (DESIGN §3). A vault elsewhere stops the cuts alone.
func (b *Broker) vaultOffline(dir string, cause error) {
	for _, d := range b.dirs {
		if d.holds(dir) {
			d.fail(fmt.Errorf("%w: %w", log.ErrOffline, cause))
			return
		}
	}
	b.logger.Error("the vault can't be written: no log is cut on this node before it is started again, with a disk that works", "dir", dir, "err", cause)
}

// couldNotOpen follows an error of opening, behind goOffline: is it the disk, and when is the
// partition to be tried again? What is damaged by its content is for the operator to mend.
func (p *Partition) couldNotOpen(err error) {
	before := p.unread
	p.unread = nil
	var file *fs.PathError
	isFork := errors.Is(err, errForkLost)
	if !isFork && !errors.As(err, &file) || p.dir.failure() != nil {
		return
	}
	if vfs.IsDiskFault(err) {
		if p.dir.probe(err); p.dir.failure() != nil {
			return
		}
	}
	wait := reopenFirst
	if before != nil {
		wait = min(2*before.wait, reopenMost)
	}
	p.unread = &unread{at: p.env.ticks() + wait, wait: wait}
	if isFork {
		return // its error says what to do
	}
	p.env.logger.Warn("partition will be opened again later; to have it copied anew from the other replicas, stop the node and move its folder away",
		"partition", p.tp.String(), "inMs", int64(wait), "file", file.Path)
}

// blame follows a failure that has ended an open log: a write or sync is final for the log dir
// (DESIGN §3). What could not be read, for a cut or by the compaction, is this log's trouble
// alone as long as the disk takes writes (ADR 35): one bad sector takes no other replica
// away. The log isn't opened again in this process: it would have to end where it did, with its high watermark, to be in sync.
func (p *Partition) blame(cause error) {
	file, unread := unreadFile(cause)
	if unread && p.dir.failure() == nil {
		p.dir.probe(cause)
	}
	switch {
	case !unread:
		p.dir.fail(cause)
	case p.dir.failure() == nil:
		p.env.logger.Error("a file of an open log can't be read: the partition is offline here until the node is started again, and another replica in sync leads it; "+
			"where the file stays so, stop the node and move the partition's folder away, to have it copied anew from the other replicas",
			"partition", p.tp.String(), "file", file, "err", cause)
	}
}

// unreadFile names the file that could not be read, if nothing else is what went wrong.
func unreadFile(err error) (file string, unread bool) {
	changes := false
	var walk func(error)
	walk = func(err error) {
		if e, ok := err.(*fs.PathError); ok {
			if e.Op == "read" {
				file = e.Path
			} else {
				changes = true
			}
			return
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		case interface{ Unwrap() []error }:
			for _, each := range e.Unwrap() {
				walk(each)
			}
		}
	}
	walk(err)
	return file, file != "" && !changes
}

// reopen tries a partition again whose files could not be read. It runs on the shard.
func (p *Partition) reopen() {
	u := p.unread
	if u == nil || u.show == nil || p.offline == nil || p.deleted || p.dir.failure() != nil || p.env.ticks() < u.at {
		return
	}
	p.offline = nil
	u.show()
	if p.log != nil {
		p.down.Store(false)
		p.env.logger.Info("partition could be opened again", "partition", p.tp.String())
	}
}

// mindOffline looks after the partitions that are offline here.
func (b *Broker) mindOffline() {
	var unusable []control.Unusable
	for p := range b.Partitions() {
		if p.down.Load() {
			unusable = append(unusable, control.Unusable{Partition: meta.PartitionID{Topic: p.id, Number: p.tp.Partition}, Lost: p.lost.Load() || p.dir.failure() != nil})
		}
	}
	if len(unusable) == 0 {
		return
	}
	b.standAside(unusable)
	for p := range b.Partitions() {
		if p.down.Load() {
			b.tell(p, p.reopen)
		}
	}
}

const (
	// asideTries is how often standAside plans anew after a refusal, in transactions
	// that are smaller by asideDivisor; the next second goes on.
	asideTries   = 3
	asideDivisor = 16
)

// standAside has another replica lead what this node leads and can't use, and takes the
// node out of the ISR of what it follows and can't use: acks=all doesn't wait for it.
// Where no other replica may lead clients are told KAFKA_STORAGE_ERROR.
func (b *Broker) standAside(list []control.Unusable) {
	limits := b.limits()
	for range asideTries {
		changes, plans := control.StandAside(b.Image(), list, b.me(), limits)
		refused := false
		for _, plan := range plans {
			_, err := b.Commit(b.chores.ctx, plan)
			refused = refused || errors.Is(err, ErrRefused)
			if err != nil && !errors.Is(err, ErrRefused) {
				if b.chores.ctx.Err() == nil {
					b.logger.Warn("the metadata can't be told of partitions that are offline here; trying again", "partitions", len(changes), "err", err)
				}
				return
			}
		}
		b.tellAside(changes)
		if !refused {
			return
		}
		limits.Ops = max(limits.Ops/asideDivisor, 1)
	}
}

// tellAside says which changes the image shows.
func (b *Broker) tellAside(changes []control.Change) {
	image := b.Image()
	for _, c := range changes {
		rec, _ := image.Partition(c.Partition.Topic, c.Partition.Number)
		switch {
		case rec == nil || rec.InISR(b.cfg.NodeID):
		case c.Kind != "":
			b.logger.Warn("leadership of an offline partition is handed over", "partition", b.nameOf(image, c.Partition), "to", c.Record.Leader)
		default:
			b.logger.Warn("an offline replica leaves the ISR", "partition", b.nameOf(image, c.Partition), "isr", c.Record.ISRIDs())
		}
	}
}
