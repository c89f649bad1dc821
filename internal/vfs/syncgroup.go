package vfs

import (
	"sync"
)

const (
	// syncLeadersMax is how many syncs of one file system run side by side before
	// others queue. More than one, so that the sync of a large segment holds
	// nobody up who could go beside it; few, as the disk does them one after the other.
	syncLeadersMax = 4
	// syncGroupMin is how many queued syncs are worth one sync of the whole file system.
	syncGroupMin = 4
)

// syncGroup lets syncs that wait for each other on one file system share one
// syncfs: a failover or a start writes thousands of small files that must be
// durable, and the disk takes as long for one of them as for sixty.
//
// A sync that finds no crowd is the file's own fsync, as ever. The leader of a
// crowd syncs the whole file system once for all that queued before it began.
// If that fails, or would have to write out much else, each syncs its own
// file: fsync reports every file's own fault, whatever a syncfs reported to others.
type syncGroup struct {
	// all syncs the whole file system; false if it can't or shouldn't.
	all func() bool

	mu sync.Mutex
	// guards the following
	leaders int
	waiting []chan syncVerdict
}

// syncVerdict is what a queued sync is told.
type syncVerdict int

const (
	syncedByLeader syncVerdict = iota // it is done
	syncOwn                           // sync your own file
	syncLead                          // you are a leader now
)

// sync makes one file durable by own, or together with others.
func (g *syncGroup) sync(own func() error) error {
	g.mu.Lock()
	if g.leaders < syncLeadersMax {
		g.leaders++
		g.mu.Unlock()
		err := own()
		g.handOver()
		return err
	}
	told := make(chan syncVerdict, 1)
	g.waiting = append(g.waiting, told)
	g.mu.Unlock()
	switch <-told {
	case syncedByLeader:
		return nil
	case syncLead:
		return g.lead(own)
	default:
		return own()
	}
}

// lead syncs for the caller and for all that are queued now.
func (g *syncGroup) lead(own func() error) error {
	g.mu.Lock()
	crowd := g.waiting
	g.waiting = nil
	g.mu.Unlock()
	verdict := syncOwn
	if len(crowd)+1 >= syncGroupMin && g.all() {
		verdict = syncedByLeader
	}
	for _, told := range crowd {
		told <- verdict
	}
	var err error
	if verdict == syncOwn {
		err = own()
	}
	g.handOver()
	return err
}

// handOver ends a leader's turn: the first in the queue leads next.
func (g *syncGroup) handOver() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.leaders--
		return
	}
	next := g.waiting[0]
	g.waiting = g.waiting[1:]
	next <- syncLead // never blocks: each waiter is told once
}
