package broker

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"sync/atomic"
	"time"

	"tidemark/internal/vfs"
)

const (
	// roomProbeBytes is what a look for room writes: as much as the largest batch that
	// clients send by default (message.max.bytes).
	roomProbeBytes = 1 << 20
	// roomProbeEvery bounds how often a log dir is looked at.
	roomProbeEvery = time.Second
)

// room knows whether a log dir has refused a write because its disk is full. Any
// goroutine may use it. Nothing is written to find out while no write was refused.
type room struct {
	lacking atomic.Bool
	looking atomic.Bool  // somebody looks
	looked  atomic.Int64 // when that was last, in milliseconds since 1970
}

// refused notes that the disk was full; taken that it took what was written.
func (r *room) refused() { r.lacking.Store(true) }

func (r *room) taken() {
	if r.lacking.Load() {
		r.lacking.Store(false)
	}
}

// lacksRoom says that writes to the dir are refused, or nil. After a refusal it tries
// whether there is room again: clients that were sent elsewhere would never tell.
func (d *logDir) lacksRoom() error {
	r := &d.room
	if !r.lacking.Load() {
		return nil
	}
	if now := time.Now(); now.Sub(time.UnixMilli(r.looked.Load())) >= roomProbeEvery && r.looking.CompareAndSwap(false, true) {
		r.looked.Store(now.UnixMilli())
		if err := d.tryRoom(); err == nil {
			r.taken()
		}
		r.looking.Store(false)
	}
	if r.lacking.Load() {
		return fmt.Errorf("the disk of log dir %s is full: writes are refused until there is room", d.path)
	}
	return nil
}

// tryRoom writes and removes a file. What a crash leaves of it is written over.
func (d *logDir) tryRoom() error {
	name := path.Join(d.path, "room"+vfs.TempSuffix)
	f, err := d.fs.Create(name)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(make([]byte, roomProbeBytes), 0)
	return cmp.Or(err, errors.Join(f.Close(), d.fs.Remove(name)))
}
