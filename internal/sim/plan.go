package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// action is one thing that happens from outside: a client's, an operator's, a
// fault. All of them are planned before the run; the shrinker leaves some out.
type action struct {
	number int
	at     time.Duration
	kind   string
	dice   dice // its own, so that leaving out another action changes nothing
}

// actionKinds are a system's kinds of actions, in the order in which options and plans are
// drawn: new kinds go to the end.
type actionKinds[W any] []actionKind[W]

// actionKind is a kind of action with its usual rate per virtual minute.
type actionKind[W any] struct {
	name string
	rate float64
	do   func(w W, d dice) string // says what it did, "" if there was nothing to do
}

// act carries out one action of the plan.
func (kinds actionKinds[W]) act(w W, kind string, d dice) string {
	for _, a := range kinds {
		if a.name == kind {
			return a.do(w, d)
		}
	}
	return ""
}

// plan draws the plan of a run.
func (kinds actionKinds[W]) plan(seed uint64, rates map[string]float64, length time.Duration) []action {
	names := make([]string, len(kinds))
	for i, a := range kinds {
		names[i] = a.name
	}
	return makePlan(seed, names, rates, length)
}

// describe lists what happens how often, as the end of a run's options.
func (kinds actionKinds[W]) describe(rates map[string]float64) string {
	out := "\nper minute:"
	for _, a := range kinds {
		if r := rates[a.name]; r > 0 {
			out += fmt.Sprintf(" %s %.1f", a.name, r)
		}
	}
	return out
}

// worldActions are the mirror's. They are filled by init because the actions themselves plan nothing.
var worldActions actionKinds[*world]

func init() {
	worldActions = actionKinds[*world]{
		{"produce", 60, (*world).produce},
		{"elect", 6, (*world).electCleanly},
		{"elect-unclean", 5, (*world).electUncleanly},
		{"source-down", 2, (*world).sourceDown},
		{"source-loses-tail", 1, (*world).sourceLosesTail},
		{"retain", 3, (*world).sourceRetention},
		{"compact", 4, (*world).sourceCompaction},
		{"recreate", 0.1, (*world).recreateTopic},
		{"rewrite", 0.1, (*world).sourceRewrites},
		{"cut-link", 2, (*world).cutLink},
		{"crash", 2, (*world).crashNow},
		{"crash-in-write", 4, (*world).crashInWrite},
		{"restart-cleanly", 0.7, (*world).restartCleanly},
		{"disk-full", 0.7, (*world).diskFull},
		{"disk-error", 1, (*world).diskError},
		{"store-down", 1, (*world).storeDown},
		{"hold-watch", 2, (*world).holdWatch},
		{"expire-lease", 1, (*world).expireLease},
		{"clock-jump", 1, (*world).clockJump},
		{"pause", 0.7, (*world).pauseMirror},
		{"failover", 0.4, (*world).failover},
		{"write-here", 12, (*world).writeHere},
		{"purge-vault", 1, (*world).purgeVault},
		{"contradict", 0, (*world).sourceContradicts}, // of a profile of its own
	}
}

// makePlan draws the plan of a run: each kind comes at random moments of its own stream.
func makePlan(seed uint64, kinds []string, rates map[string]float64, length time.Duration) []action {
	var plan []action
	for i, kind := range kinds {
		rate := rates[kind]
		if rate <= 0 {
			continue
		}
		d := dice{rand.New(rand.NewPCG(seed, 0x706c616e_00+uint64(i)))}
		for at := time.Duration(0); ; {
			at += time.Duration(d.ExpFloat64() * float64(time.Minute) / rate)
			if at >= length {
				break
			}
			own := dice{rand.New(rand.NewPCG(d.Uint64(), seed))}
			plan = append(plan, action{at: at, kind: kind, dice: own})
		}
	}
	slices.SortStableFunc(plan, func(a, b action) int { return cmp.Compare(a.at, b.at) })
	for i := range plan {
		plan[i].number = i
	}
	return plan
}

// schedule puts the plan's actions on the clock, but for those left out.
func (k *kernel) schedule(plan []action, keep func(int) bool, do func(kind string, d dice) string) {
	for _, a := range plan {
		if !keep(a.number) {
			continue
		}
		k.after(a.at, "plan "+a.kind, func() {
			if what := do(a.kind, a.dice); what != "" {
				k.note("PLAN", "#%d %s: %s", a.number, a.kind, what)
			}
		})
	}
}

func (w *world) act(kind string, d dice) string { return worldActions.act(w, kind, d) }

// String is the action's number, moment and kind.
func (a action) String() string {
	return fmt.Sprintf("#%d %v %s", a.number, a.at.Round(time.Millisecond), a.kind)
}
