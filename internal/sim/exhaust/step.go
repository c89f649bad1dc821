package exhaust

import (
	"fmt"
	"math"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/mirror"
	"tidemark/internal/core/modellog"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
)

// step is one step under way on a state of its own.
type step struct {
	w *world
	s *state

	mine        [clusters][replicas]bool // the node is a copy of this step's
	mineLeader  [clusters][replicas]bool
	mineMachine [clusters][replicas]bool

	// cutAt stops the node that cuts before the cut's n-th part from 1 on, by a loss
	// of power; cutParts counts the parts that were done.
	cutAt, cutParts int
	stopped         bool // it was stopped there
	// timing is when the first transaction of the step reaches the store, and whose
	// image lags; timed, once that has happened.
	timing int
	timed  bool

	// copied is the log that what is being copied was answered from.
	copied *modellog.Log

	problem *violation
	notes   []string // what happened, if the story is wanted
	telling bool
}

// violation is a broken invariant.
type violation struct {
	invariant, detail string
}

func (x *step) problemf(invariant, format string, args ...any) {
	if x.problem == nil && !x.w.mute[invariant] {
		x.problem = &violation{invariant, fmt.Sprintf(format, args...)}
	}
}

func (x *step) note(format string, args ...any) {
	if x.telling {
		x.notes = append(x.notes, fmt.Sprintf(format, args...))
	}
}

// node gives a node to change.
func (x *step) node(c, i int) *node {
	k := &x.s.c[c]
	if !x.mine[c][i] {
		x.mine[c][i] = true
		k.nodes[i] = k.nodes[i].copyOf()
	}
	return k.nodes[i]
}

// leaderOf gives a node's count of its followers to change.
func (x *step) leaderOf(c, i int) *replica.Leader {
	n := x.node(c, i)
	if !x.mineLeader[c][i] {
		x.mineLeader[c][i] = true
		n.leader = n.leader.Clone()
	}
	return n.leader
}

// newLeader gives the node a count that has seen nothing.
func (x *step) newLeader(c, i int) *replica.Leader {
	n := x.node(c, i)
	n.leader = &replica.Leader{Rules: x.w.rules.leader}
	x.mineLeader[c][i] = true
	return n.leader
}

// machineOf gives a node's machine to change.
func (x *step) machineOf(c, i int) *mirror.Partition {
	n := x.node(c, i)
	if !x.mineMachine[c][i] {
		x.mineMachine[c][i] = true
		n.machine = n.machine.Clone()
	}
	return n.machine
}

// name is what a story calls a replica.
func name(c, i int) string { return names[c][i] }

var names = [clusters][replicas]string{{"a1", "a2"}, {"b1", "b2"}}

// printed are records, put into words only if they are told.
type printed []modellog.Record

// String prints runs of records.
func (p printed) String() string {
	if len(p) == 0 {
		return "no records"
	}
	return modellog.Print(p)
}

// now is the time of everything: nothing but lag depends on it, and who lags is
// a step's choice.
const now types.Millis = 1

// isDown reports whether a node has lost its power in this step, or before.
func (x *step) isDown(c, i int) bool { return !x.s.c[c].nodes[i].up }

// cutting is one cut of a replica's log.
type cutting struct {
	at      types.Offset
	restart bool // the whole log, which then begins at at
	cause   mirror.Cause
	// checkpoint, if not nil, follows in R1's step 6.
	checkpoint *mirror.SetCheckpoint
}

// cut is R1: vault, log, timeline checkpoint, each of which a loss of power may
// come before. What a loss right after the truncation leaves is either what was, or
// what is: both are tried.
func (x *step) cut(c, i int, how cutting) {
	n := x.node(c, i)
	gone := n.log.Records[n.log.Index(how.at):]
	if how.restart {
		gone = n.log.Records
	}
	from, to := how.at, n.log.End
	if how.restart {
		from = n.log.Start
	}
	vault := func() {
		if len(gone) > 0 && !x.w.rules.noVault {
			n.vault = append(n.vault, kept{from, to, append([]modellog.Record{}, gone...)})
		}
	}
	truncate := func() {
		x.checkCut(c, i, how, gone)
		history := n.log.History
		if how.restart {
			n.log.Restart(how.at)
		} else {
			n.log.Cut(how.at)
		}
		if x.w.rules.keepHistory && !how.restart {
			n.log.History = history
		}
		n.synced = n.log.End
		x.note("%s cuts at %d (%s): %s go to the vault", name(c, i), how.at, how.cause, printed(gone))
	}
	point := func() {
		if how.checkpoint != nil {
			n.point, n.hasPoint = how.checkpoint.Checkpoint, true
		}
	}
	order := []func(){vault, truncate, point}
	switch {
	case x.w.rules.vaultLate:
		order[0], order[1] = order[1], order[0]
	case x.w.rules.pointEarly:
		order = []func(){vault, point, truncate}
	}
	gone, synced := slices.Clone(gone), n.synced
	for _, f := range order {
		if x.cutParts+1 == x.cutAt {
			x.stopped, x.cutAt = true, 0
			x.note("%s loses power before part %d of the cut", name(c, i), x.cutParts+1)
			x.crash(c, i, 0)
			break
		}
		x.cutParts++
		f()
	}
	x.checkVault(c, i, gone, synced)
}

// crash ends a process. Of what was not synced the newest lost records go.
func (x *step) crash(c, i, lost int) {
	n := x.node(c, i)
	to := max(n.synced, n.log.End-types.Offset(lost), n.log.Start)
	if lost == math.MaxInt {
		to = max(n.synced, n.log.Start)
	}
	gone := n.log.Cut(to)
	n.synced = n.log.End
	n.recover()
	n.mark = types.NoBrokerEpoch
	n.endProcess()
	x.lostForGood(gone)
}

// endProcess forgets what a process knew.
func (n *node) endProcess() {
	*n = node{id: n.id, log: n.log, synced: n.synced, point: n.point, hasPoint: n.hasPoint, vault: n.vault, mark: n.mark, clean: types.NoBrokerEpoch, assigned: types.NoLeaderEpoch}
}

// recover is what opening a log makes of it: the history is the one that the
// batches imply (R2); nothing above the log start is known to be committed.
func (n *node) recover() {
	old := n.log.History
	n.log.History.Clear()
	if n.log.Start > 0 && len(n.log.Records) > 0 {
		// The entry that covers the log start stays, where it begins.
		old.TruncateFromStart(n.log.Start)
	}
	kept := old.Entries()
	next := 0
	end := n.log.Start
	for _, r := range n.log.Records {
		// An epoch's beginning within a gap is known to the checkpoint alone.
		start := end
		for next < len(kept) && kept[next].Epoch < r.Epoch {
			next++
		}
		if next < len(kept) && kept[next].Epoch == r.Epoch {
			start = kept[next].Start
		}
		if last, ok := n.log.History.Latest(); !ok || last.Epoch != r.Epoch {
			_, err := n.log.History.Assign(r.Epoch, start)
			e, covered := n.log.History.EpochForOffset(r.Offset)
			// Invariant I-301: the history is the one that the batches imply (R2).
			assert.That(err == nil && covered && e == r.Epoch, "I-301: epoch %d recovered at %d: %v, history %v", r.Epoch, start, err, &n.log.History)
		}
		end = r.Offset + 1
	}
	n.log.HighWatermark = n.log.Start
}

// start begins a process: registered anew, in no leadership (R10).
func (x *step) start(c, i int) {
	k := &x.s.c[c]
	n := x.node(c, i)
	k.revision++
	n.up, n.epoch, n.clean = true, types.BrokerEpoch(k.revision), n.mark
	n.mark = types.NoBrokerEpoch
	x.shown(c, i)
	for j := range k.nodes {
		if j != i && k.nodes[j].leads() && k.nodes[j].rev == k.rev {
			x.setBrokers(c, j)
		}
	}
}

// stop ends a process in order: everything is synced, and the next registration says so.
func (x *step) stop(c, i int) {
	n := x.node(c, i)
	n.synced, n.mark = n.log.End, n.epoch
	n.recover()
	n.endProcess()
}
