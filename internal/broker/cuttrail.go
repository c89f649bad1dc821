package broker

import "tidemark/internal/core/types"

// cutTrail says whether committed offsets of groups may lie beyond a log, and where
// it was cut: of a mirror's leader no client reads before they have followed (DESIGN
// §6.3). The zero value owes nothing. The shard owns it.
//
// It belongs to the partition and not to whoever makes the cut: it outlives a mirror's
// run, and a log that a process finds when it starts owes as well, since the process
// before may have ended between a cut and what follows it. Whoever accepts an answer
// of a leader owes nothing any more: that leader answers only once its own are followed.
type cutTrail struct {
	at   types.Offset // the lowest end that a cut has left since
	made uint64       // counts the cuts; what follows one must not count for a later one
	owed bool
}

// cut takes note that the log ends at an offset, and may have ended higher.
func (t *cutTrail) cut(end types.Offset) {
	if !t.owed || end < t.at {
		t.at = end
	}
	t.owed = true
	t.made++
}

// follow takes note that offsets have followed the cuts up to that one.
func (t *cutTrail) follow(made uint64) {
	if t.made == made {
		t.owed = false
	}
}

// settle ends what is owed.
func (t *cutTrail) settle() { t.owed = false }
