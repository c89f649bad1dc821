package embed

import (
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/sys/unix"
)

// ending is how an etcd comes to its end where it would end the process: a write to its
// log or database that failed, a log that contradicts itself. What was at work there has
// stopped where it stood, perhaps with locks held: nobody may wait for that etcd any more.
type ending struct {
	once sync.Once
	done chan struct{} // closed at the end
	err  error         // why; set before done is closed
}

func newEnding() *ending { return &ending{done: make(chan struct{})} }

// end notes the first cause.
func (e *ending) end(err error) {
	e.once.Do(func() {
		e.err = err
		close(e.done)
	})
}

func (e *ending) hasCome() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// isNoSpace reports an error of a disk, or a quota, that is full.
func isNoSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// endedFault says why the member of a folder has ended while it ran, and the way out.
func endedFault(dir string, free int64, err error) error {
	if isNoSpace(err) {
		return fmt.Errorf("metadata folder %s: its disk is full (%d MiB left) and the metadata store has ended: make room and start the node again (%w)", dir, free>>20, err)
	}
	return fmt.Errorf("metadata folder %s: the metadata store has ended (%w): look at the disk and start the node again; if it doesn't start, it says what can be done", dir, err)
}

// watchEnding tells of an etcd that ended by itself.
func (s *Server) watchEnding() {
	select {
	case <-s.ended.done:
		s.fail(endedFault(s.o.Dir, freeBytes(s.o.Dir), s.ended.err))
	case <-s.ctx.Done():
	}
}

// startEtcd starts the server. Where etcd would end the process, it gives an error.
func startEtcd(cfg *embed.Config, ended *ending) (*embed.Etcd, error) {
	// etcd opens its database in a goroutine and waits for it: look first.
	if err := checkMember(cfg.Dir); err != nil {
		return nil, err
	}
	type started struct {
		etcd *embed.Etcd
		err  error
	}
	came := make(chan started, 1)
	go func() { // its end by ended is that of this goroutine, too
		var s started
		defer func() {
			if p := recover(); p != nil {
				s.err = fmt.Errorf("etcd: %v", p)
			}
			if s.etcd != nil || s.err != nil {
				came <- s
			}
		}()
		s.etcd, s.err = embed.StartEtcd(cfg)
	}()
	select {
	case s := <-came:
		return s.etcd, s.err
	case <-ended.done:
		return nil, ended.err
	}
}
