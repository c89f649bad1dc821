package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/clock"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// forkSuffix ends the names of folders that a drill made of a mirror's logs, until
// the metadata has their topics: <topic id>-<partition>.fork, in the log dir of the
// log that they were made from. docs/format/fork.md.
const forkSuffix = ".fork"

func forkFolder(id meta.PartitionID) string {
	return fmt.Sprintf("%s-%d%s", id.Topic, id.Number, forkSuffix)
}

// parseForkFolder is the inverse of forkFolder.
func parseForkFolder(name string) (meta.PartitionID, bool) {
	rest, ok := strings.CutSuffix(name, forkSuffix)
	i := strings.LastIndexByte(rest, '-')
	if !ok || i < 0 {
		return meta.PartitionID{}, false
	}
	topic, err := types.ParseTopicID(rest[:i])
	n, fault := strconv.ParseInt(rest[i+1:], 10, 32)
	id := meta.PartitionID{Topic: topic, Number: int32(n)}
	return id, err == nil && fault == nil && forkFolder(id) == name
}

// forkSet are the forks in one log dir that wait for their topics.
type forkSet struct {
	mu sync.Mutex // guards the following

	waiting map[meta.PartitionID]waitingFork
	// spent are the forks that waited here and don't any more, with their drill's run
	// until that is gone: none of them is made once more.
	spent map[meta.PartitionID]meta.DrillMark
}

// waitingFork is one of them.
type waitingFork struct {
	tp  types.TopicPartition // its name in a topic to come; empty for one found at the start
	run meta.DrillMark       // whose it is
	// made: it is complete. While it isn't, whoever makes it removes it.
	made   bool
	making *forkMaking // nil of one found at the start
}

// forkMaking is the one making of a fork: a request for it that comes twice has the
// same answer.
type forkMaking struct {
	done chan struct{}
	size mirror.ForkSize // with err, once done is closed
	err  error
}

// claim lets the caller make a fork that nobody was asked for before; else it gives
// the making that is under way or done.
func (s *forkSet) claim(id meta.PartitionID, w waitingFork) (*forkMaking, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, over := s.spent[id]; over {
		return nil, errors.New("this fork was made before, or given up")
	}
	if earlier, ok := s.waiting[id]; ok {
		if earlier.making == nil {
			return nil, errors.New("this fork was begun before the broker started")
		}
		return earlier.making, nil
	}
	s.putLocked(id, w)
	return w.making, nil
}

func (s *forkSet) put(id meta.PartitionID, w waitingFork) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putLocked(id, w)
}

func (s *forkSet) putLocked(id meta.PartitionID, w waitingFork) {
	if s.waiting == nil {
		s.waiting = make(map[meta.PartitionID]waitingFork)
	}
	s.waiting[id] = w
}

func (s *forkSet) has(id meta.PartitionID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.waiting[id]
	return ok
}

// take gives a fork to the caller alone.
func (s *forkSet) take(id meta.PartitionID) (waitingFork, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.waiting[id]
	if !ok {
		return w, false
	}
	delete(s.waiting, id)
	if s.spent == nil {
		s.spent = make(map[meta.PartitionID]meta.DrillMark)
	}
	s.spent[id] = w.run
	return w, true
}

// finish notes that a fork is made.
func (s *forkSet) finish(id meta.PartitionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w, ok := s.waiting[id]; ok {
		w.made = true
		s.waiting[id] = w
	}
}

// ended lists the forks that are made and will be no partition's: their drill isn't
// being made any more, and wants says that none of its topics is theirs. Of drills that
// are gone nothing more is remembered: a request for one is refused by its state.
func (s *forkSet) ended(image *meta.Image, wants func(meta.PartitionID) bool) []meta.PartitionID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []meta.PartitionID
	for id, w := range s.waiting {
		if w.made && image.DrillState(&w.run) != meta.DrillMaking && !wants(id) {
			list = append(list, id)
		}
	}
	maps.DeleteFunc(s.spent, func(_ meta.PartitionID, run meta.DrillMark) bool {
		return run.Run != "" && image.DrillState(&run) == ""
	})
	return list
}

// Fork implements mirror.Node: it makes the fork of a partition held here, once. A
// request may arrive twice, and the drill counts on what either of them was answered.
func (n mirrorNode) Fork(ctx context.Context, r mirror.ForkRequest) (mirror.ForkSize, error) {
	p, ok := n.Broker.Partition(r.Of.Topic, r.Of.Number)
	if !ok {
		return mirror.ForkSize{}, errors.New("this broker doesn't hold the partition")
	}
	// An image that doesn't know the drill yet can't tell it from one that is over.
	if err := n.view.await(ctx, r.Begun); err != nil {
		return mirror.ForkSize{}, err
	}
	if n.Image().DrillState(&r.Run) != meta.DrillMaking {
		return mirror.ForkSize{}, fmt.Errorf("drill %s was given up", r.Run.Name)
	}
	if _, taken := n.Image().NameEntry(r.Name.Topic); taken {
		return mirror.ForkSize{}, fmt.Errorf("topic %s exists", r.Name.Topic)
	}
	// A deleted topic of that name may have its folder and its marks still.
	if err := n.passed(ctx, p, r.Name); err != nil {
		return mirror.ForkSize{}, err
	}
	mine := &forkMaking{done: make(chan struct{})}
	making, err := p.dir.forks.claim(r.As, waitingFork{tp: r.Name, run: r.Run, making: mine})
	switch {
	case err != nil:
		return mirror.ForkSize{}, err
	case making == mine:
		mine.size, mine.err = n.makeFork(ctx, p, r)
		close(mine.done)
	default:
		if _, err := p.shard.wait(ctx, clock.Forever, making.done); err != nil {
			return mirror.ForkSize{}, err
		}
	}
	return making.size, making.err
}

// makeFork makes a fork that the caller has claimed, or removes what it made of it.
func (n mirrorNode) makeFork(ctx context.Context, p *Partition, r mirror.ForkRequest) (mirror.ForkSize, error) {
	// Gone before the claim, it may be that its forks are forgotten (ended).
	if n.Image().DrillState(&r.Run) != meta.DrillMaking {
		p.dir.forks.take(r.As)
		return mirror.ForkSize{}, fmt.Errorf("drill %s was given up meanwhile", r.Run.Name)
	}
	size, err := p.fork(ctx, r)
	if err == nil {
		// In this order: either the image tells now that the drill is over, or whoever
		// shows a later one finds a fork that is made.
		p.dir.forks.finish(r.As)
		if n.Image().DrillState(&r.Run) != meta.DrillMaking {
			err = fmt.Errorf("drill %s was given up meanwhile", r.Run.Name)
		}
	}
	if err != nil {
		n.dropFork(p.dir, r.As)
	}
	return size, forkFault(err)
}

// forkFault adds the way out to what a disk refuses and what does no harm.
func forkFault(err error) error {
	switch {
	case vfs.IsNoSpace(err):
		return fmt.Errorf("%w; there is no room on the disk: make some, or fork fewer topics (--topics)", err)
	case vfs.IsNoHandle(err):
		return fmt.Errorf("%w; there is no file handle left: raise the limit of the node (ulimit -n, LimitNOFILE), or fork fewer topics (--topics)", err)
	case vfs.IsNoLink(err):
		return fmt.Errorf("%w; the file system allows no other name of that file: delete earlier drills (mirror drill list), which hold some", err)
	}
	return err
}

// passed returns once what was queued for a name's partition has run.
func (b *Broker) passed(ctx context.Context, on *Partition, tp types.TopicPartition) error {
	s, done := b.shardOf(tp), make(chan struct{})
	if err := s.send(ctx, event{p: on, f: func() { close(done) }}); err != nil {
		return err
	}
	_, err := s.wait(ctx, clock.Forever, done)
	return err
}

// ForksMade implements mirror.Node: the forks' names, and what the checkpoint files
// say of them, are durable once it has returned.
func (n mirrorNode) ForksMade() error {
	for _, d := range n.dirs {
		d.forks.mu.Lock()
		any := len(d.forks.waiting) > 0
		d.forks.mu.Unlock()
		if !any {
			continue
		}
		if err := errors.Join(d.fs.SyncDir(d.path), d.checkpoints.Write()); err != nil {
			if vfs.IsDiskFault(err) {
				d.fail(fmt.Errorf("%w: %w", log.ErrOffline, err))
			}
			return err
		}
	}
	return nil
}

// dropFork removes a fork that waits for its topic.
func (b *Broker) dropFork(d *logDir, id meta.PartitionID) {
	w, ok := d.forks.take(id)
	if !ok {
		return
	}
	if w.tp.Topic != "" {
		d.checkpoints.Forget(w.tp)
	}
	b.chores.removeLater(d, filepath.Join(d.path, forkFolder(id)), 0)
}

// dropEndedForks removes the forks of drills that came to nothing.
func (b *Broker) dropEndedForks(image *meta.Image) {
	wants := func(id meta.PartitionID) bool {
		rec, _ := image.Partition(id.Topic, id.Number)
		return b.isReplica(rec)
	}
	for _, d := range b.dirs {
		for _, id := range d.forks.ended(image, wants) {
			b.logger.Warn("fork of a drill that came to nothing is removed", "folder", filepath.Join(d.path, forkFolder(id)))
			b.dropFork(d, id)
		}
	}
}

// forkTries is how often a fork is begun anew because segments went meanwhile.
const forkTries = 10

// fork makes a fork of the partition's log.
func (p *Partition) fork(ctx context.Context, r mirror.ForkRequest) (mirror.ForkSize, error) {
	for try := 1; ; try++ {
		size, err := p.forkOnce(ctx, r)
		if !errors.Is(err, log.ErrForkMoved) || try == forkTries {
			return size, err
		}
		if err := p.dir.fs.RemoveAll(filepath.Join(p.dir.path, forkFolder(r.As))); err != nil {
			return size, err
		}
	}
}

func (p *Partition) forkOnce(ctx context.Context, r mirror.ForkRequest) (mirror.ForkSize, error) {
	f := log.Fork{
		Dir: filepath.Join(p.dir.path, forkFolder(r.As)), TopicID: r.As.Topic, Start: r.Start,
		Timelines: timeline.Checkpoint{List: timeline.FreshRoot(r.TimelineID), LeaderEpoch: r.Epoch}.Format(),
	}
	var job *log.ForkJob
	err := p.Do(ctx, func(*Owned) error {
		if err := p.mayFork(r); err != nil {
			return err
		}
		var err error
		job, err = p.log.StartFork(r.To)
		return err
	})
	if job == nil {
		return mirror.ForkSize{}, err
	}
	defer job.Release()
	if err == nil {
		err = job.Make(f)
	}
	made := err
	err = p.Do(context.WithoutCancel(ctx), func(*Owned) error {
		if err := p.log.EndFork(job, made); err != nil {
			return err
		}
		return p.mayFork(r)
	})
	if err != nil {
		return mirror.ForkSize{}, err
	}
	p.dir.checkpoints.Put(r.Name, job.Marks(f))
	linked, copied := job.Size()
	return mirror.ForkSize{Linked: linked, Copied: copied}, nil
}

// mayFork says why this replica's log may not be what the mirror's leader has
// committed: it was in sync in the leader epoch in which the leader said where the
// fork ends, or it isn't asked. Then it holds the same bytes up to there (R14), and
// no cut takes them within that epoch (R20).
func (p *Partition) mayFork(r mirror.ForkRequest) error {
	v := p.log.View()
	switch {
	case p.record == nil || p.record.LeaderEpoch != r.LeaderEpoch:
		return fmt.Errorf("%s has another leader epoch by now", p.tp)
	case !p.record.InISR(p.env.nodeID):
		return fmt.Errorf("%s is not in sync here any more", p.tp)
	case v.LogEnd < r.To || v.LogStart > r.To:
		return fmt.Errorf("the log of %s has %d to %d here, the fork ends at %d", p.tp, v.LogStart, v.LogEnd, r.To)
	}
	if last, ok := v.History.EpochForOffset(r.To - 1); r.To > v.LogStart && (!ok || last != r.LastEpoch) {
		return fmt.Errorf("the record before %d of %s is of epoch %d here and of %d at the leader", r.To, p.tp, last, r.LastEpoch)
	}
	return nil
}

// takeFork gives a partition the folder that a drill made for it, before its log is
// opened. What an older topic of its name left there is set aside.
func (d *logDir) takeFork(id meta.PartitionID, tp types.TopicPartition) error {
	if !d.forks.has(id) {
		return nil
	}
	final := filepath.Join(d.path, tp.String())
	if _, err := d.fs.Stat(final); err == nil {
		if _, err := d.setAside(tp.String(), deleteSuffix); err != nil {
			return err
		}
	}
	// Not synced: after a crash the folder is found under either name.
	if err := d.fs.Rename(filepath.Join(d.path, forkFolder(id)), final); err != nil && !errors.Is(err, fs.ErrNotExist) {
		if vfs.IsDiskFault(err) {
			err = fmt.Errorf("%w: %w", log.ErrOffline, err)
		}
		return err
	}
	d.forks.take(id)
	return nil
}

// errForkLost is matched by the error of a fork's replica without its folder.
var errForkLost = errors.New("the folder of this fork is gone, and with it the mirror's records in it")

// lostFork is the error for a partition that has no folder here and is a drill's fork,
// held by this replica in sync: empty it would pass for what a failover finds. Taken
// out of the ISR it may copy the fork from the others.
func (p *Partition) lostFork(rec *meta.PartitionRecord) error {
	drill, _, forked := core.Forked(rec)
	if !forked || rec.Promotions[0].LogEnd <= 0 || !rec.InISR(p.env.nodeID) {
		return nil
	}
	return fmt.Errorf("%w (%s in %s): delete the drill (mirror drill delete %s) and make it again", errForkLost, p.tp, p.dir.path, drill)
}

// clearFork removes a fork that was found at the start and whose topic never came.
func (b *Broker) clearFork(image *meta.Image, d *logDir, name string) {
	id, ok := parseForkFolder(name)
	if !ok {
		return
	}
	if rec, _ := image.Partition(id.Topic, id.Number); rec != nil && b.isReplica(rec) {
		return // it becomes the partition's when its log is opened
	}
	d.forks.take(id)
	b.logger.Warn("fork of a drill that came to nothing is removed", "folder", filepath.Join(d.path, name))
	b.chores.removeLater(d, filepath.Join(d.path, name), 0)
}

// Prove implements mirror.Node: one record is written to a partition with acks=all,
// and read back.
func (n mirrorNode) Prove(ctx context.Context, id meta.PartitionID, key, value []byte, patience time.Duration) error {
	p, err := n.get(id.Topic, id.Number)
	if err != nil {
		return err
	}
	build := batch.NewBuilder(batch.BuilderOptions{})
	build.Append(n.Now(), key, value)
	raw, err := build.Build()
	if err != nil {
		return err
	}
	done, err := p.Append(ctx, raw, api.AppendRequest{Acks: -1, Timeout: patience, LeaderEpoch: types.NoLeaderEpoch, Origin: api.OriginClient})
	if err != nil {
		return fmt.Errorf("a record can't be written: %w", err)
	}
	return readBack(p.Log(), done.BaseOffset, value)
}

// readBack looks for a record's value where a consumer of committed records would find it.
func readBack(l *log.Log, at types.Offset, value []byte) error {
	c, err := l.Read(at, log.ReadLimit{To: l.View().LastStable, MaxBytes: 1, MinOne: true})
	if err != nil {
		return fmt.Errorf("the record written at %d can't be read: %w", at, err)
	}
	defer c.Release()
	raw, err := c.ReadInto(nil)
	if err != nil {
		return fmt.Errorf("the record written at %d can't be read: %w", at, err)
	}
	for it := batch.Records(raw, nil); it.Next(); {
		if it.Record.Offset == at && bytes.Equal(it.Record.Value, value) {
			return nil
		}
	}
	return fmt.Errorf("the record written at %d is not what is read there", at)
}
