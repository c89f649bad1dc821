package sim

import (
	"container/heap"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// kernel is virtual time: events in the order of their moments, and the streams
// of random numbers that everything draws from. The zero time is the run's start.
type kernel struct {
	seed    uint64
	now     time.Duration
	seq     uint64
	queue   eventHeap
	steps   int
	streams map[string]dice
	trace   uint64 // hash of everything that has happened
	story   *story
	probes  map[string]int
	sites   map[string]bool // buggify sites, whether they are active in this run
	buggify bool
	failure *Failure
	stopped bool
}

// event is something that happens at a moment. Events of one moment happen in
// the order in which they were made.
type event struct {
	at   time.Duration
	seq  uint64
	what string
	run  func()
}

// eventHeap implements heap.Interface.
type eventHeap []event

// Len implements heap.Interface.
func (h eventHeap) Len() int { return len(h) }

// Less implements heap.Interface.
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}

// Swap implements heap.Interface.
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *eventHeap) Push(x any) { *h = append(*h, x.(event)) }

// Pop implements heap.Interface.
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}

func newKernel(seed uint64, s *story) *kernel {
	return &kernel{seed: seed, streams: map[string]dice{}, trace: seed, story: s, probes: map[string]int{}, sites: map[string]bool{}}
}

// after makes an event happen d from now; what names its kind in the trace.
func (k *kernel) after(d time.Duration, what string, run func()) {
	k.seq++
	heap.Push(&k.queue, event{at: k.now + max(d, 0), seq: k.seq, what: what, run: run})
}

// runUntil lets events happen until the moment given, the number of steps given
// (0: no bound), or a failure. It reports whether it came to the moment.
func (k *kernel) runUntil(end time.Duration, steps int) bool {
	for len(k.queue) > 0 && k.queue[0].at <= end {
		if k.failure != nil || k.stopped || steps > 0 && k.steps >= steps {
			return false
		}
		e := heap.Pop(&k.queue).(event)
		// Invariant I-160: virtual time never goes back.
		if e.at < k.now {
			panic(fmt.Sprintf("I-160: event %s at %v after %v", e.what, e.at, k.now))
		}
		k.now = e.at
		k.steps++
		k.mix(uint64(e.at), e.what)
		e.run()
	}
	if k.failure != nil {
		return false
	}
	k.now = max(k.now, end)
	return true
}

// mix adds to the trace.
func (k *kernel) mix(n uint64, s string) {
	const prime = 0x100000001b3
	h := k.trace
	for range 8 {
		h = (h ^ n&0xff) * prime
		n >>= 8
	}
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * prime
	}
	k.trace = h
}

// note writes one line of the story, and into the trace.
func (k *kernel) note(who, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	k.mix(uint64(k.now), text)
	k.story.add(k.now, who, text)
}

// fail ends the run; the first failure stays.
func (k *kernel) fail(invariant, format string, args ...any) {
	if k.failure != nil {
		return
	}
	k.failure = &Failure{Invariant: invariant, Text: fmt.Sprintf(format, args...), At: k.now, Step: k.steps}
	k.note("CHECK", "%s broken: %s", invariant, k.failure.Text)
}

// Failure is what a run found.
type Failure struct {
	Invariant string        // its name in DESIGN §9, or PANIC
	Text      string        // with the numbers
	At        time.Duration // virtual
	Step      int
}

// String is the failure in one line.
func (f *Failure) String() string {
	return fmt.Sprintf("%s at step %d, %v: %s", f.Invariant, f.Step, f.At, f.Text)
}

// dice draws from the stream of one name.
type dice struct{ *rand.Rand }

// dice gives the stream of a name; the same seed and name give the same numbers.
func (k *kernel) dice(name string) dice {
	d, ok := k.streams[name]
	if !ok {
		h := fnv.New64a()
		_, _ = h.Write([]byte(name)) // never fails
		d = dice{rand.New(rand.NewPCG(k.seed, h.Sum64()))}
		k.streams[name] = d
	}
	return d
}

// chance is true with probability p.
func (d dice) chance(p float64) bool { return p > 0 && d.Float64() < p }

// some is 0, or with probability p something up to most.
func (d dice) some(p, most float64) float64 {
	on, x := d.chance(p), d.Float64()
	if !on {
		return 0
	}
	return x * most
}

// between draws a time in [lo, hi).
func (d dice) between(lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	return lo + time.Duration(d.Int64N(int64(hi-lo)))
}

// around draws an exponential time with the mean given, at most eight times it.
func (d dice) around(mean time.Duration) time.Duration {
	return min(time.Duration(d.ExpFloat64()*float64(mean)), 8*mean)
}

// buggified reports whether a rare path is to be taken here: a site is active in a
// quarter of the runs, and then fires a quarter of the time (FoundationDB's BUGGIFY).
func (k *kernel) buggified(site string) bool {
	if !k.buggify {
		return false
	}
	d := k.dice("buggify " + site)
	active, known := k.sites[site]
	if !known {
		active = d.chance(0.25)
		k.sites[site] = active
	}
	return active && d.chance(0.25)
}

// probe counts that a rare branch was reached.
func (k *kernel) probe(name string) { k.probes[name]++ }
