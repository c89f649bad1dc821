// Package probe marks rare branches of the product, so that a search of the
// simulator can show that each was reached: a branch that no seed has ever taken is
// one that nothing has tested.
//
// A probe is a package variable made by New and counted by Reached; it costs one
// atomic addition where it stands and changes nothing else, so that also the pure
// core may hold some. Counts are the process's: tests and the simulator compare them before and after.
// Names begin with the part of the product that they are in ("log: …").
package probe

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Probe counts how often one branch was taken.
type Probe struct {
	name string
	n    atomic.Int64
}

var (
	mu  sync.Mutex // guards the following
	all = map[string]*Probe{}
)

// New makes a probe. It is called for package variables alone; a name that is taken is a mistake in the program.
func New(name string) *Probe {
	mu.Lock()
	defer mu.Unlock()
	if all[name] != nil {
		panic(fmt.Sprintf("probe %q is made twice", name))
	}
	p := &Probe{name: name}
	all[name] = p
	return p
}

// Reached counts one visit. Any goroutine.
func (p *Probe) Reached() { p.n.Add(1) }

// Names lists the probes of all packages that are linked in, sorted.
func Names() []string {
	mu.Lock()
	defer mu.Unlock()
	return slices.Sorted(maps.Keys(all))
}

// Counts gives the visits since the program began, by name, those never reached included.
func Counts() map[string]int64 {
	mu.Lock()
	defer mu.Unlock()
	out := make(map[string]int64, len(all))
	for name, p := range all {
		out[name] = p.n.Load()
	}
	return out
}
