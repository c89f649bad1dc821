package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/mem"
)

// What a node does with the metadata store off its shards: the calls of
// broker/view.go, commit.go and register.go, and broker/mirror/writer.go, each
// with its answer as a later event.

const (
	storeTimeout   = 2 * time.Second
	commitPatience = 20 * time.Second
	leaseTTL       = 6 * time.Second
)

// askStore sends one call to the store. do runs there and gives what the answer
// does here; lost runs if no answer came in time. Exactly one of the two runs.
func (n *standby) askStore(what string, do func(s *mem.Store) func(), lost func()) {
	life, settled := n.life, false
	once := func(f func()) {
		if settled || n.life != life {
			return
		}
		settled = true
		n.run(f)
	}
	n.w.net.call("standby", "store", what, storeTimeout, func(reply func(func())) {
		answered := do(n.w.store)
		n.w.storeChanged()
		reply(func() { once(answered) })
	}, func() { once(lost) })
}

// readImage is the linearizable read that an image starts with (R9).
func (n *standby) readImage() {
	again := func() { n.after(200*time.Millisecond, "read metadata again", n.readImage) }
	n.askStore("read metadata", func(s *mem.Store) func() {
		kvs, rev, err := s.Range(context.Background(), meta.KeysOf(clusterID).Root())
		if err != nil {
			return again
		}
		return func() { n.imageRead(kvs, rev) }
	}, again)
}

func (n *standby) imageRead(kvs []meta.KV, rev meta.Revision) {
	n.image, _ = meta.Load(clusterID, kvs, rev)
	n.watcher = n.w.store.NewWatcher(context.Background(), n.image.Keys().Root(), rev)
	for p := range n.image.Partitions() {
		if n.alive() {
			n.showPartition(n.image, p)
		}
	}
	if n.alive() {
		n.poll()
		n.register()
	}
}

// poll looks for what the watch has, soon.
func (n *standby) poll() {
	if n.polling || n.watcher == nil {
		return
	}
	n.polling = true
	d := n.k.dice("watch")
	wait := d.between(100*time.Microsecond, 3*time.Millisecond)
	if !n.w.net.calm && d.chance(n.w.o.SlowWatch) {
		n.k.probe("store: watch lags")
		wait = d.around(time.Second)
	}
	n.after(wait, "watch", func() {
		n.polling = false
		if n.w.net.isCut("store", "standby") || n.w.storeIsDown {
			n.after(100*time.Millisecond, "watch again", n.poll)
			return
		}
		n.watched()
	})
}

func (n *standby) watched() {
	ev, ok, err := n.watcher.Poll()
	switch {
	case errors.Is(err, metastore.ErrCompacted):
		n.k.probe("store: watch compacted")
		n.reload()
	case err != nil, !ok:
	default:
		old := n.image
		image, d := old.Apply(ev)
		n.take(old, image, d)
		if n.alive() {
			n.poll()
		}
	}
}

// reload reads everything again after the watch has lost its place (viewer.reload).
func (n *standby) reload() {
	again := func() { n.after(100*time.Millisecond, "reload", n.reload) }
	n.askStore("reload metadata", func(s *mem.Store) func() {
		kvs, rev, err := s.Range(context.Background(), n.image.Keys().Root())
		if err != nil {
			return again
		}
		return func() {
			old := n.image
			image, d, err := old.Reload(kvs, rev)
			if err != nil {
				n.note("the metadata can't be believed: %v", err)
				n.crash()
				return
			}
			_ = n.watcher.Close()
			n.watcher = n.w.store.NewWatcher(context.Background(), image.Keys().Root(), rev)
			n.take(old, image, d)
			if n.alive() {
				n.poll()
			}
		}
	}, again)
}

// take publishes an image (viewer.take): partitions first, then who reads it,
// then who waits for it.
func (n *standby) take(old, image *meta.Image, d meta.Delta) {
	if image == old {
		return
	}
	mine := slices.ContainsFunc(d.Brokers, func(c meta.Change[meta.Broker]) bool { return true })
	told := map[meta.PartitionID]bool{}
	for _, c := range d.Partitions {
		if c.New != nil && n.alive() {
			n.showPartition(image, c.New)
			told[c.New.ID] = true
		}
	}
	if mine {
		for p := range image.Partitions() {
			if !told[p.ID] && n.alive() {
				n.showPartition(image, p)
			}
		}
	}
	if !n.alive() {
		return
	}
	n.image = image
	if !d.IsEmpty() && n.serving {
		n.after(n.k.dice("mirrors").between(0, 2*time.Millisecond), "mirrors see the image", n.showMirrors)
		n.after(n.k.dice("controller").between(0, 20*time.Millisecond), "controller", n.elect)
	}
	waiting := n.awaiting
	n.awaiting = nil
	for _, a := range waiting {
		if image.Revision() >= a.rev {
			a.done(nil)
		} else {
			n.awaiting = append(n.awaiting, a)
		}
	}
}

// await runs done once the image shows a revision (viewer.await).
func (n *standby) await(rev meta.Revision, done func(error)) {
	if n.image.Revision() >= rev {
		done(nil)
		return
	}
	answered := false
	n.awaiting = append(n.awaiting, await{rev, func(err error) {
		if !answered {
			answered = true
			done(err)
		}
	}})
	n.after(commitPatience, "await timeout", func() {
		if !answered {
			answered = true
			done(context.DeadlineExceeded)
		}
	})
}

// committing is one transaction under way: metastore.Commit and Broker.Commit.
type committing struct {
	n       *standby
	plan    meta.Plan
	done    func(error)
	until   time.Duration
	pause   time.Duration
	unknown bool // an earlier attempt may have happened, or may yet
}

// commit carries out a plan as one transaction and ends when the image shows it.
func (n *standby) commit(plan meta.Plan, done func(error)) {
	c := &committing{n: n, plan: plan, done: done, until: n.k.now + commitPatience, pause: 10 * time.Millisecond}
	c.try()
}

func (c *committing) try() {
	n := c.n
	n.askStore("transaction", func(s *mem.Store) func() {
		if f := n.w.txnFault(); f != mem.NoFault {
			s.FailTxns(f)
		}
		res, err := s.Txn(context.Background(), metastore.Txn{If: c.plan.If, Then: c.plan.Then})
		return func() { c.answered(res, err) }
	}, func() { c.answered(metastore.TxnResult{}, metastore.ErrUnknownOutcome) })
}

func (c *committing) answered(res metastore.TxnResult, err error) {
	n := c.n
	switch {
	case err == nil && res.Succeeded:
		n.await(res.Revision, c.done)
		return
	case err == nil && !c.unknown:
		n.k.probe("store: transaction refused")
		c.settle(fmt.Errorf("%s: %w", c.plan.Why, metastore.ErrRefused))
		return
	case err == nil:
		c.look()
		return
	case errors.Is(err, metastore.ErrUnknownOutcome):
		n.k.probe("store: outcome unknown")
		c.unknown = true
	case !c.unknown || !errors.Is(err, metastore.ErrUnavailable):
		c.done(err)
		return
	}
	if n.k.now+c.pause > c.until {
		c.settle(metastore.ErrUnknownOutcome)
		return
	}
	n.after(c.pause, "transaction again", c.try)
	c.pause = min(2*c.pause, time.Second)
}

// look finds out whether an earlier attempt happened, after a repetition was refused.
func (c *committing) look() {
	n := c.n
	fail := func() { c.settle(metastore.ErrUnknownOutcome) }
	n.askStore("look", func(s *mem.Store) func() {
		for _, op := range c.plan.Then {
			kv, _, err := s.Get(context.Background(), op.Key)
			if err != nil {
				return fail
			}
			if op.Kind == meta.OpPut && kv.ModRevision != 0 && bytes.Equal(kv.Value, op.Value) {
				rev := kv.ModRevision
				return func() {
					n.k.probe("store: unknown outcome had happened")
					n.await(rev, c.done)
				}
			}
		}
		return fail
	}, fail)
}

// settle waits until the image shows what there is now (R8).
func (c *committing) settle(err error) {
	n := c.n
	fail := func() { c.done(err) }
	n.askStore("read revision", func(s *mem.Store) func() {
		_, now, readErr := s.Get(context.Background(), n.image.Keys().Cluster())
		if readErr != nil {
			return fail
		}
		return func() { n.await(now, func(error) { c.done(err) }) }
	}, fail)
}

// plan makes plans from the newest image and commits them in order, anew after a refusal (Broker.plan).
func (n *standby) plan(make func(*meta.Image) ([]meta.Plan, error), done func(error)) {
	const tries = 10
	var attempt func(try int)
	var next func(plans []meta.Plan, try int)
	attempt = func(try int) {
		plans, err := make(n.image)
		if err != nil {
			done(err)
			return
		}
		next(plans, try)
	}
	next = func(plans []meta.Plan, try int) {
		if len(plans) == 0 {
			done(nil)
			return
		}
		n.commit(plans[0], func(err error) {
			switch {
			case err == nil:
				next(plans[1:], try)
			case errors.Is(err, metastore.ErrRefused) && try < tries:
				attempt(try + 1)
			default:
				done(err)
			}
		})
	}
	attempt(1)
}

// register writes the node's registration until it is there, and starts the rest
// (broker/register.go).
func (n *standby) register() {
	n.registerOnce(func(err error) {
		if err != nil {
			n.note("can't register: %v", err)
			n.after(500*time.Millisecond, "register again", n.register)
			return
		}
		n.serving = true
		n.keepLease()
		n.chores()
		n.controllerStep()
		n.showMirrors()
		n.discover()
	})
}

func (n *standby) registerOnce(done func(error)) {
	from := n.k.now
	fail := func() { done(metastore.ErrUnavailable) }
	n.askStore("grant lease", func(s *mem.Store) func() {
		id, err := s.Grant(context.Background(), leaseTTL)
		if err != nil {
			return fail
		}
		return func() { n.registerUnder(id, from, done) }
	}, fail)
}

func (n *standby) registerUnder(id meta.LeaseID, from time.Duration, done func(error)) {
	n.incarnation++
	record := meta.BrokerRecord{
		ID: n.id, Endpoints: []meta.Endpoint{{Listener: "PLAINTEXT", Host: "standby", Port: 9092, Security: "PLAINTEXT"}},
		DirectoryID: "disk-1", Incarnation: fmt.Sprint(n.incarnation), CleanShutdownEpoch: n.cleanEpoch, StartedAt: n.clock.now(),
	}
	n.plan(func(i *meta.Image) ([]meta.Plan, error) { return control.RegisterBroker(i, record, id) }, func(err error) {
		if err == nil {
			n.lease, n.leaseUntil = id, from+leaseTTL
			e, _ := n.image.BrokerEpoch(n.id)
			n.note("registered, broker epoch %d", e)
		}
		done(err)
	})
}

// keepLease renews the lease, and registers anew when it was lost: one thing at a time.
func (n *standby) keepLease() {
	n.after(leaseTTL/4, "keep lease", func() {
		from := n.k.now
		n.askStore("keep alive", func(s *mem.Store) func() {
			left, err := s.KeepAlive(context.Background(), n.lease)
			return func() {
				switch {
				case err == nil:
					n.leaseUntil = from + left
				case errors.Is(err, metastore.ErrLeaseNotFound):
					n.k.probe("standby: registration lapsed")
					n.note("the registration has lapsed")
					n.registerOnce(func(error) { n.keepLease() })
					return
				}
				n.keepLease()
			}
		}, n.keepLease)
	})
}

// controllerStep elects leaders where partitions need one, as a controller does
// at every change of the image and from time to time.
func (n *standby) controllerStep() {
	n.elect()
	n.after(n.k.dice("controller").between(500*time.Millisecond, 1500*time.Millisecond), "controller", n.controllerStep)
}

func (n *standby) elect() {
	if n.electing || n.closing || !n.serving {
		return
	}
	if _, ok := n.image.BrokerEpoch(n.id); !ok {
		return
	}
	n.electing = true
	n.plan(func(i *meta.Image) ([]meta.Plan, error) {
		_, plans := control.ElectAll(i, n.id, nil, n.me(), n.limits())
		return plans, nil
	}, func(error) { n.electing = false })
}

// change is a new record for one partition on its way (broker/mirror/writer.go).
type change struct {
	n      *standby
	id     meta.PartitionID
	from   meta.Revision
	record meta.PartitionRecord
	done   func(applied bool)
}

// write commits a change of a partition record; done runs once the outcome is
// certain and the image shows it (R8).
func (n *standby) write(c *change) {
	c.n = n
	c.attempt()
}

func (c *change) attempt() {
	n := c.n
	old, rev := n.image.Partition(c.id.Topic, c.id.Number)
	if rev != c.from || old == nil {
		c.done(false)
		return
	}
	plan, err := control.UpdatePartition(n.image, c.id.Topic, c.id.Number, c.record, n.me())
	if err != nil || len(plan.Then) == 0 {
		c.done(false)
		return
	}
	c.commit(plan)
}

func (c *change) commit(plan meta.Plan) {
	n := c.n
	n.commit(plan, func(err error) {
		if err == nil {
			c.done(true)
			return
		}
		if decided, applied := c.outcome(); decided {
			c.done(applied)
			return
		}
		if errors.Is(err, metastore.ErrRefused) {
			c.done(false)
			return
		}
		n.after(200*time.Millisecond, "settle", func() {
			if decided, applied := c.outcome(); decided {
				c.done(applied)
				return
			}
			c.commit(plan)
		})
	})
}

// outcome looks the change up in the image (writer.outcome).
func (c *change) outcome() (decided, applied bool) {
	rec, rev := c.n.image.Partition(c.id.Topic, c.id.Number)
	if rev == c.from {
		return false, false
	}
	return true, rec != nil && bytes.Equal(rec.Encode(), c.record.Encode())
}

// discover makes the mirrored topic once the source shows it (broker/mirror/discover.go).
func (n *standby) discover() {
	if _, ok := n.image.TopicByName(topicName); ok {
		return
	}
	again := func() { n.after(300*time.Millisecond, "discover again", n.discover) }
	life := n.life
	n.w.net.call("standby", "source", "metadata", time.Second, func(reply func(func())) {
		id, count := n.w.src.topic, int32(len(n.w.src.parts))
		reply(func() {
			if n.life != life {
				return
			}
			n.run(func() { n.createTopic(id, count) })
		})
	}, func() {
		if n.life == life {
			n.run(again)
		}
	})
}

func (n *standby) createTopic(id types.TopicID, count int32) {
	if _, ok := n.image.TopicByName(topicName); ok || n.creating {
		return
	}
	n.creating = true
	n.plan(func(i *meta.Image) ([]meta.Plan, error) {
		if _, ok := i.TopicByName(topicName); ok {
			return nil, nil
		}
		r := control.CreateTopicRequest{Name: topicName, ID: id, Partitions: count, ReplicationFactor: 1, TimelineID: "unused"}
		for range count {
			r.Mirrors = append(r.Mirrors, *newMirrored(startID))
		}
		return control.CreateTopic(i, r, n.me(), n.limits())
	}, func(err error) {
		n.creating = false
		if err != nil {
			n.after(300*time.Millisecond, "discover again", n.discover)
		}
	})
}

// newChange is a change whose outcome nobody waits for.
func newChange(id meta.PartitionID, from meta.Revision, rec meta.PartitionRecord) *change {
	return &change{id: id, from: from, record: rec, done: func(bool) {}}
}
