package replica

import (
	"testing"

	"tidemark/internal/core/types"
)

// Two logs that hold other records in one epoch: the follower cuts all of it, and whatever
// the epoch was given to twice, it ends with the leader's records.
func TestTailDiverges(t *testing.T) {
	leader := &Log{LogEnd: 12, History: history(t, [][2]int64{{0, 0}, {2, 4}, {3, 8}})}
	own := types.Tail{Base: 9, Next: 10, Epoch: 3, Sum: 7, EpochStart: 8, Known: true}
	f := func(change func(*types.Tail), own types.Tail, want EpochEnd, differs bool) {
		t.Helper()
		asked := types.Tail{Base: 9, Next: 10, Epoch: 3, Sum: 7, EpochStart: 8, Known: true}
		change(&asked)
		got, diverges := TailDiverges(leader, asked.Next, asked, own)
		if got != want || diverges != differs {
			t.Errorf("%+v beside %+v: %v, %v; want %v, %v", asked, own, got, diverges, want, differs)
		}
	}
	cut := EpochEnd{Epoch: 2, End: 8}
	f(func(*types.Tail) {}, own, EpochEnd{}, false)
	f(func(a *types.Tail) { a.Sum++ }, own, cut, true)
	f(func(a *types.Tail) { a.Base = 8 }, own, cut, true)
	f(func(a *types.Tail) { a.EpochStart = 6 }, own, cut, true)
	f(func(a *types.Tail) { a.EpochStart = types.NoOffset }, own, EpochEnd{}, false)
	longer := own
	longer.Next = 11 // the leader's batch goes on where the follower's ends
	f(func(*types.Tail) {}, longer, cut, true)
	// What isn't known proves nothing.
	f(func(a *types.Tail) { a.Sum++; a.Known = false }, own, EpochEnd{}, false)
	f(func(a *types.Tail) { a.Sum++ }, types.Tail{}, EpochEnd{}, false)
	// The first epoch of all goes to its beginning.
	first := types.Tail{Base: 0, Next: 4, Epoch: 0, Sum: 7, EpochStart: types.NoOffset, Known: true}
	f(func(a *types.Tail) { *a = first; a.Sum++ }, first, EpochEnd{Epoch: 0, End: 0}, true)
	follower := &Log{LogEnd: 4, History: history(t, [][2]int64{{0, 0}})}
	if at := CutPoint(follower, EpochEnd{Epoch: 0, End: 0}); at != 0 {
		t.Errorf("cut at %d", at)
	}
}
