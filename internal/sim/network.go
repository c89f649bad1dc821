package sim

import (
	"fmt"
	"time"
)

// network carries messages between named nodes: late, out of order, twice or not at all.
type network struct {
	k    *kernel
	o    *Messages
	calm bool // the liveness phase: nothing is lost, delays are short
	// cut says which directions are cut now: cut[{from, to}] counts the cuts in force.
	cut map[direction]int
}

// Messages are the probabilities of what happens to a message.
type Messages struct{ SlowMessage, DropMessage, DuplicateMessage float64 }

type direction struct{ from, to string }

func newNetwork(k *kernel, o *Messages) *network {
	return &network{k: k, o: o, cut: map[direction]int{}}
}

func (n *network) isCut(from, to string) bool { return n.cut[direction{from, to}] > 0 }

// sever cuts the links between two groups of names for a while, in one direction or both, and
// says in which and for how long.
func (n *network) sever(d dice, most time.Duration, from, to []string) string {
	there, back := d.chance(0.8), d.chance(0.8)
	span := d.between(100*time.Millisecond, most)
	cut := func(by int) {
		for _, a := range from {
			for _, b := range to {
				if there {
					n.cut[direction{a, b}] += by
				}
				if back {
					n.cut[direction{b, a}] += by
				}
			}
		}
	}
	cut(1)
	n.k.after(span, "link back", func() {
		if !n.calm { // then nothing is cut any more
			cut(-1)
		}
	})
	return fmt.Sprintf("(to it %v, from it %v) for %v", there, back, span.Round(time.Millisecond))
}

// delay draws how long one message takes.
func (n *network) delay(d dice) time.Duration {
	base := d.between(200*time.Microsecond, 3*time.Millisecond)
	if !n.calm && d.chance(n.o.SlowMessage) {
		return base + d.around(800*time.Millisecond)
	}
	return base
}

// send delivers a message once, twice or never.
func (n *network) send(from, to, what string, deliver func()) {
	d := n.k.dice("network " + from + " " + to)
	if n.isCut(from, to) || !n.calm && d.chance(n.o.DropMessage) {
		n.k.probe("network: message lost")
		return
	}
	arrive := func() {
		if n.isCut(from, to) {
			n.k.probe("network: message lost")
			return
		}
		deliver()
	}
	n.k.after(n.delay(d), what, arrive)
	if !n.calm && d.chance(n.o.DuplicateMessage) {
		n.k.probe("network: message twice")
		n.k.after(n.delay(d), what, arrive)
	}
}

// call sends a request and brings its answers back. answered runs for each
// answer that arrives, late ones and duplicates too; lost runs once if none has by
// the time-out. serve may keep reply and call it later.
func (n *network) call(from, to, what string, timeout time.Duration, serve func(reply func(func())), lost func()) {
	arrived := false
	n.send(from, to, what, func() {
		serve(func(answered func()) {
			n.send(to, from, what+" answer", func() {
				arrived = true
				answered()
			})
		})
	})
	n.k.after(timeout, what+" timeout", func() {
		if !arrived {
			n.k.probe("network: request timed out")
			lost()
		}
	})
}
