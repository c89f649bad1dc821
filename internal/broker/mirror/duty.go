package mirror

import "sync/atomic"

// duty is work that one goroutine at a time does, as often as it is asked for: who asks
// while it is being done has it done once more, because it may have looked already at
// what has changed since.
type duty struct{ state atomic.Int32 }

const (
	dutyIdle  = iota
	dutyBusy  // being done
	dutyAsked // being done, and due once more
)

// ask has f done by spawn's goroutine, now or once more after the present time.
func (d *duty) ask(spawn func(func()), f func()) {
	for {
		switch {
		case d.state.CompareAndSwap(dutyIdle, dutyBusy):
			spawn(func() { d.run(f) })
			return
		case d.state.CompareAndSwap(dutyBusy, dutyAsked), d.state.Load() == dutyAsked:
			return
		}
	}
}

func (d *duty) run(f func()) {
	for {
		f()
		if d.state.CompareAndSwap(dutyBusy, dutyIdle) {
			return
		}
		d.state.Store(dutyBusy) // asked again: what was asked for is done from here on
	}
}
