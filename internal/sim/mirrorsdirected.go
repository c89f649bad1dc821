package sim

import (
	"fmt"
	"slices"
	"time"

	"tidemark/internal/broker/coordinator"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
)

// Directed actions order several things that must meet: left to chance, a mixture
// needs thousands of runs for them. What they order is what operators and faults may do.

// overslept is how long an oversleep may take.
const overslept = 25 * time.Second

// oversleep has the image of an in-sync follower stand still while its partition fails back
// to another cluster and is failed over again. Then the leader stops, in order, and the
// follower is elected: the next record that it sees has it lead another history than
// the one that it followed (R19).
func (w *mirrors) oversleep(d dice) string {
	c, id, ok := w.anyPart(d)
	if !ok {
		return ""
	}
	sleeper, far := c.inSyncFollower(c.record(id)), w.writtenBeside(c, id)
	if sleeper == nil || far == nil {
		return ""
	}
	asleep := direction{c.watchName(), sleeper.name}
	if w.net.isCut(asleep.from, asleep.to) {
		return ""
	}
	w.net.cut[asleep]++
	over, tries := w.k.now+overslept, 0
	promoting, stopping := false, false
	var next func()
	next = func() {
		r := c.record(id)
		switch {
		case w.healed: // nothing is cut any more
			return
		case r == nil || w.k.now > over || stopping && r.Leader == sleeper.id:
			c.store.Compact(1 << 40) // its watch can't go on: it reads anew, and sees nothing of what was in between
			w.net.cut[asleep]--
			c.pokeAll()
			return
		case !promoting && r.Writable:
			if tries++; tries%10 == 1 { // a plan may have been out of date
				w.failBackTo(d, c, far)
			}
		case !promoting && r.IsMirror() && r.Mirror.State != meta.MirrorStarting:
			promoting = w.ask(c, "failover", r.Mirror.Name)
		case promoting && !stopping && r.Writable:
			if m := c.machine(r.Leader); m != nil {
				stopping = m.shutDown(10 * time.Second)
			}
		}
		w.k.after(200*time.Millisecond, "oversleep", next)
	}
	next()
	return fmt.Sprintf("%s's image stands still, and its cluster fails back to %s and over", sleeper.name, far.clusterID())
}

// oversleepOffice has a group commit at a partition's end. A while later the coordinator of
// the cluster's groups stops, in order, while the image of the replica that is elected in its
// place stands still, and the partition fails back to another cluster: its cut meets a
// coordinator that has yet to hear of its office (I-250).
func (w *mirrors) oversleepOffice(d dice) string {
	c, id, ok := w.anyPart(d)
	if !ok || w.writtenBeside(c, id) == nil {
		return ""
	}
	m := c.machine(c.record(id).Leader)
	if m == nil || !m.serves() {
		return ""
	}
	what := w.commitAs(d, m, pick(d, groupsAt(c.number)...), id.Number, 0)
	if what != "" {
		w.k.after(lateCommit+time.Second, "oversleep", func() { w.moveOffice(c, id) })
	}
	return what
}

// moveOffice is the rest of oversleepOffice.
func (w *mirrors) moveOffice(c *cluster, id meta.PartitionID) {
	office, r := c.offsetsRecord(), c.record(id)
	if office == nil || r == nil || w.healed {
		return
	}
	far, sleeper, held, lead := w.writtenBeside(c, id), c.inSyncFollower(office), c.machine(office.Leader), c.machine(r.Leader)
	switch {
	case far == nil, sleeper == nil, held == nil, lead == nil, lead == sleeper, lead == held:
		return
	}
	asleep := direction{c.watchName(), sleeper.name}
	if w.net.isCut(asleep.from, asleep.to) || !held.shutDown(time.Second) {
		return
	}
	w.k.note(c.prefix+"store", "%s's image stands still", sleeper.name)
	w.net.cut[asleep]++
	over, tries, cut := w.k.now+overslept, 0, time.Duration(0)
	var next func()
	next = func() {
		r, o := c.record(id), c.offsetsRecord()
		switch {
		case w.healed: // nothing is cut any more
			return
		case r == nil || o == nil || w.k.now > over || cut > 0 && w.k.now > cut+time.Second:
			w.net.cut[asleep]--
			c.pokeAll()
			return
		case o.Leader != sleeper.id:
		case r.Writable:
			if tries++; tries%10 == 1 { // a plan may have been out of date
				w.order(lead, "failback "+mirrorOf(far), w.failingBack(c, far, 0, true, true))
			}
		case cut == 0 && r.IsMirror() && r.Mirror.State != meta.MirrorStarting:
			w.k.probe("directed: a cut beside a coordinator that has yet to hear of its office")
			cut = w.k.now
		}
		w.k.after(200*time.Millisecond, "oversleep", next)
	}
	next()
}

// offsetsRecord is the record of the groups' one partition at a site, nil if there is none.
func (c *cluster) offsetsRecord() *meta.PartitionRecord {
	return c.record(meta.PartitionID{Topic: c.topicNamed(coordinator.OffsetsTopic)})
}

// writtenBeside finds another cluster at which clients may write a partition, and
// a failback to which takes records of c; nil if there is none.
func (w *mirrors) writtenBeside(c *cluster, id meta.PartitionID) farCluster {
	ours := c.record(id)
	if ours == nil || !ours.Writable {
		return nil
	}
	for _, f := range w.fars {
		t, ok := f.(tideFar)
		if !ok || t.c == c {
			continue
		}
		theirs := t.c.record(id)
		if theirs == nil || !theirs.Writable {
			continue
		}
		n := timeline.Compare(ours.Timelines, theirs.Timelines).Shared
		for _, l := range []timeline.List{ours.Timelines, theirs.Timelines} {
			if n > 0 && n < len(l) && l[n].FirstOffset < w.leaderEnd(c, id) {
				return f
			}
		}
	}
	return nil
}

// inSyncFollower finds a replica that is in sync and doesn't lead; nil if there is none.
func (c *cluster) inSyncFollower(r *meta.PartitionRecord) *machine {
	for _, m := range c.machines {
		if m.serves() && m.id != r.Leader && r.InISR(m.id) && slices.Contains(r.Replicas, m.id) {
			return m
		}
	}
	return nil
}
