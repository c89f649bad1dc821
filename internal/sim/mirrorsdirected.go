package sim

import (
	"fmt"
	"slices"
	"time"

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
