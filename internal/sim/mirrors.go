package sim

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"tidemark/internal/broker"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/metastore/mem"
)

// mirrors is a run of two or three clusters that mirror each other, with
// operators on all of them, and perhaps a cluster of another make where the topic
// began. Each cluster is that of cluster.go: production nodes, whose mirrors
// reach the other clusters over a simulated link.
type mirrors struct {
	k        *kernel
	o        *MirrorsOptions
	mutation *mirrorsMutation
	net      *network
	sites    []*cluster
	kafka    *world // the model of a Kafka cluster and what happens to it; nil if there is none
	fars     []farCluster
	pens     []*pen
	check    *arbiter
	authors  *authors // of transactions; nil: there are none
	// crossings are transactions with coordinators at all clusters; nil: there are none.
	crossings *crossings

	pids     types.ProducerID
	healed   bool
	healedAt time.Duration
	verbs    map[string]int // that operators asked for, by name
	paused   map[string]bool
}

const siteNames = "ABC"

func newMirrors(seed uint64, o *MirrorsOptions, m *Mutation, s *story) *mirrors {
	k := newKernel(seed, s)
	k.buggify = o.Buggify
	w := &mirrors{k: k, o: o, mutation: m.Mirrors, pids: 1000, verbs: map[string]int{}}
	if w.mutation == nil {
		w.mutation = &mirrorsMutation{}
	}
	w.net = newNetwork(k, &o.Messages)
	w.check = newArbiter(w)
	if o.Kafka {
		w.addKafka()
	}
	for i := range o.Sites {
		w.addSite(i)
	}
	for n := range o.Partitions {
		for i := range o.Producers {
			w.pens = append(w.pens, newPen(w, i, n))
		}
	}
	w.advanceStores()
	if !o.Kafka {
		w.sites[0].orderTopic()
	}
	w.check.watchGroups()
	w.beginAuthors()
	w.beginCrossings()
	return w
}

// addSite makes a Tidemark cluster.
func (w *mirrors) addSite(number int) {
	c := &cluster{
		k: w.k, o: w.o.clusterOptions(), net: w.net, store: mem.New(), registrations: map[string]life{}, quiet: slog.New(slog.DiscardHandler),
		mutation: &clusterMutation{rules: broker.VirtualRules{Mirrors: w.mutation.rules, Log: w.mutation.log}, change: w.mutation.change, noVault: w.mutation.noVault, vaultLate: w.mutation.vaultLate},
	}
	c.check = newJudge(c) // it judges one cluster alone; the world's own is used
	c.site = site{id: "cluster-" + siteNames[number:number+1], prefix: siteNames[number:number+1] + " ", number: number, world: w}
	c.judged = newSiteJudge(w.check, c)
	for i := range w.o.Brokers {
		c.machines = append(c.machines, newMachine(c, types.BrokerID(i+1)))
	}
	for i, m := range c.machines {
		w.k.after(time.Duration(i)*time.Millisecond, "boot", m.boot)
	}
	w.sites = append(w.sites, c)
	w.fars = append(w.fars, tideFar{c})
}

func (w *mirrors) addKafka() {
	o := &Options{
		Partitions: w.o.Partitions, Messages: w.o.Messages, SlowReplica: w.o.SlowReplica, Zombie: w.o.Zombie, Compacted: w.o.Compacted,
		FetchBytes: w.o.FetchBytes,
	}
	w.kafka = &world{k: w.k, o: o, net: w.net, src: newSource(w.k, o)}
	w.fars = append(w.fars, kafkaFar{w: w, s: w.kafka.src})
}

// mirrorsStepsMost bounds a run.
const mirrorsStepsMost = 900_000

func (w *mirrors) kernel() *kernel { return w.k }

func (w *mirrors) bounds() (time.Duration, time.Duration, int) {
	return w.o.Length, w.o.Calm, mirrorsStepsMost
}

func (w *mirrors) end() {
	for _, c := range w.sites {
		c.end()
	}
	if w.authors != nil {
		w.authors.p.current = nil
		w.authors.p.kill()
	}
}

// advanceStores moves the stores' clocks now and then, as advanceStore does.
func (w *mirrors) advanceStores() {
	for _, c := range w.sites {
		c.storeNow()
		c.storeChanged()
	}
	w.k.after(250*time.Millisecond, "store clock", w.advanceStores)
}

// topicID is the topic's at a site; zero if it has none.
func (c *cluster) topicID() types.TopicID { return c.topicNamed(clusterTopic) }

// topicNamed is a topic's id at a site; zero if there is none of the name.
func (c *cluster) topicNamed(name string) types.TopicID {
	for _, m := range c.machines {
		if m.serves() {
			if t, ok := m.node.Image().TopicByName(name); ok {
				return t.ID
			}
		}
	}
	return types.TopicID{}
}

// heal ends all faults.
func (w *mirrors) heal() {
	w.k.note("PLAN", "all faults end")
	w.healed, w.healedAt = true, w.k.now
	w.net.calm = true
	clear(w.net.cut)
	w.k.buggify = false
	for _, c := range w.sites {
		c.healed, c.healedAt, c.storeIsDown = true, w.k.now, false
		c.store.SetDown(false)
		c.store.HoldWatches(false)
		c.store.ReleaseLate()
		for _, m := range c.machines {
			m.heal()
			if w.o.VaultBytes >= 0 && m.up() {
				m.restartLater("vault.max.bytes is raised")
			}
		}
		c.storeChanged()
	}
	w.o.VaultBytes = -1 // an operator raises vault.max.bytes
	if w.kafka != nil {
		w.healKafka()
	}
	w.push()
}

func (w *mirrors) healKafka() {
	w.kafka.o.SlowReplica, w.kafka.o.Zombie = 0, 0
	d := w.k.dice("heal")
	for b := range srcReplicas {
		w.kafka.src.setUp(b, d, false)
	}
	for _, p := range w.kafka.src.parts {
		for _, r := range p.replicas {
			if r.broker != p.leader {
				r.leads = -1
			}
		}
		p.replicate()
	}
}

// push has clients and operators go on after the faults: a record now and then where
// one may be written, and the verbs that end what only an operator may end.
func (w *mirrors) push() {
	if since := w.k.now - w.healedAt; since > 10*time.Second && since < 40*time.Second {
		for _, l := range w.pens {
			if len(l.queue) == 0 {
				l.write(1)
			}
		}
		w.pushKafka()
	}
	for _, c := range w.sites {
		c.electStuck()
		w.pushDrills(c)
		w.tidyUp(c)
	}
	w.k.after(2*time.Second, "clients go on", w.push)
}

// pushKafka has the cluster that is no Tidemark take a record in every epoch that has
// none. Without one, a mirror whose source is a mirror doesn't learn of an unclean election at the
// root: its source lacks records of the last epoch that both know, as if it were behind, and it
// waits for them (R27).
func (w *mirrors) pushKafka() {
	if w.kafka == nil || !w.kafka.src.exist {
		return
	}
	for _, p := range w.kafka.src.parts {
		if r := p.lead(); r != nil && (r.tail == nil || r.tail.epoch < p.epoch) {
			w.kafka.write(p, 1, w.k.dice("kafka goes on"))
		}
	}
}

// tidyUp is the operator who looks at a cluster after the faults: fences whose
// switchover died are opened, paused mirrors go on, gaps are accepted, a broker on
// which a partition couldn't be opened is started anew.
func (w *mirrors) tidyUp(c *cluster) {
	if w.k.now-w.healedAt < 15*time.Second {
		return
	}
	image := c.image(w.k.dice("heal"))
	if image == nil {
		return
	}
	for e := range image.Mirrors() {
		if e.Record.Want == meta.WantPaused {
			w.ask(c, "resume", e.ID)
		}
	}
	for p := range image.PartitionsOf(c.topicID()) {
		c.restartUnopened(p)
		switch r := p.Record; {
		case r == nil:
		case r.Fence != nil && w.k.now-w.healedAt > 2*time.Minute:
			w.leftClosed(c, r.Fence)
			w.ask(c, "reopen", "")
		case r.IsMirror() && r.Mirror.State == meta.MirrorFailed:
			if reason, _ := core.ReasonOf(r.Mirror.Reason); reason == core.SourceGap {
				w.ask(c, "accept-gap", r.Mirror.Name)
			}
		}
	}
}

// restartUnopened restarts the brokers whose log of a partition failed to open. A file that
// can't be read is its partition's trouble alone, for as long as the process lives.
func (c *cluster) restartUnopened(p *meta.Partition) {
	for _, m := range c.machines {
		if !m.serves() {
			continue
		}
		if part, ok := m.node.Broker().Partition(p.ID.Topic, p.ID.Number); ok {
			if _, open := part.View(); !open {
				m.restartLater("a partition isn't open")
			}
		}
	}
}

// unfinished says what has not converged, "" if everything has.
func (w *mirrors) unfinished() string {
	for _, c := range w.sites {
		if why := w.unsettled(c); why != "" {
			return c.id + ": " + why
		}
	}
	for _, l := range w.pens {
		if why := l.behind(); why != "" {
			return why
		}
	}
	return w.crossings.unfinished()
}

// unsettled says what one cluster lacks.
func (w *mirrors) unsettled(c *cluster) string {
	for _, m := range c.machines {
		if !m.serves() {
			return m.name + " doesn't serve"
		}
	}
	image := c.machines[0].node.Image()
	for e := range image.Mirrors() {
		if e.Record.Want == meta.WantPaused {
			return "mirror " + e.ID + " is paused"
		}
	}
	if why := w.drillsUnsettled(c, image); why != "" {
		return why
	}
	topic := c.topicID()
	if topic.IsZero() {
		if c.number == 0 && !w.o.Kafka {
			return "the topic isn't there"
		}
		return w.mayLackTopic(c, image)
	}
	for p := range image.PartitionsOf(topic) {
		if why := c.behind(p); why != "" && !servesNobody(p.Record) {
			return fmt.Sprintf("partition %d: %s", p.ID.Number, why)
		}
		if why := w.astray(c, image, p); why != "" {
			return fmt.Sprintf("partition %d: %s", p.ID.Number, why)
		}
	}
	return ""
}

// servesNobody reports whether a partition has adopted no list yet: its leader answers
// no follower (R19), so that the ISR doesn't grow, and there is nothing to follow.
// Whether it may stand like that, astray judges.
func servesNobody(r *meta.PartitionRecord) bool {
	return r != nil && r.IsMirror() && len(r.Timelines) == 0
}

// mayLackTopic says why a site without the topic ought to have it.
func (w *mirrors) mayLackTopic(c *cluster, image *meta.Image) string {
	for e := range image.Mirrors() {
		if e.Record.Want != meta.WantRunning {
			continue
		}
		far := w.farAt(e.Record.Bootstrap)
		if t, ok := far.(tideFar); ok && t.c.topicID().IsZero() {
			continue // nothing there to copy
		}
		if id := e.Record.SourceClusterID; id != "" && w.farOf(id) != far {
			continue // an operator has led it to another cluster than the one that it follows, which is refused (R26)
		}
		return "mirror " + e.ID + " runs and has not made the topic"
	}
	return ""
}

// astray says what is wrong with a partition that mirrors, or was to be something else by now.
func (w *mirrors) astray(c *cluster, image *meta.Image, p *meta.Partition) string {
	r := p.Record
	switch {
	case r.Fence != nil:
		return "it is fenced"
	case r.Writable:
		return ""
	case r.Mirror == nil:
		return "it is read-only and no mirror"
	}
	e, ok := image.Mirror(r.Mirror.Name)
	if !ok {
		return "its mirror " + r.Mirror.Name + " is gone"
	}
	if e.Record.Want == meta.WantStopped {
		return "its mirror was failed over and it isn't writable"
	}
	reason, _ := core.ReasonOf(r.Mirror.Reason)
	switch r.Mirror.State {
	case meta.MirrorFailed:
		return w.mayFail(c, p, w.farAt(e.Record.Bootstrap), reason, r.Mirror.Reason)
	case meta.MirrorMirroring:
		return w.behindSource(c, p, w.farAt(e.Record.Bootstrap))
	}
	if w.roundabout(c, p.ID, map[int]bool{}) || r.Mirror.State == meta.MirrorLogAlignment && w.hasNoList(p.ID, w.farAt(e.Record.Bootstrap)) {
		return ""
	}
	return "it is " + r.Mirror.State + " " + r.Mirror.Reason
}

// hasNoList reports whether a source is a mirror that has adopted no list itself, so that
// there is none to adopt from it. Whether it may stand like that is judged where it is.
func (w *mirrors) hasNoList(id meta.PartitionID, far farCluster) bool {
	f, ok := far.(tideFar)
	if !ok {
		return false
	}
	r := f.c.record(id)
	return r != nil && r.IsMirror() && len(r.Timelines) == 0
}

// roundabout reports whether a partition waits for mirrors that wait for it: two
// sites that were made mirrors of each other's mirrors have no primary. R25
// refuses it where it is seen; nothing is lost by it.
func (w *mirrors) roundabout(c *cluster, id meta.PartitionID, seen map[int]bool) bool {
	if seen[c.number] {
		return true
	}
	seen[c.number] = true
	r := c.record(id)
	if r == nil || r.Writable || r.Mirror == nil {
		return false
	}
	for _, e := range c.mirrorRecords() {
		if e.Name == r.Mirror.Name {
			if t, ok := w.farAt(e.Bootstrap).(tideFar); ok {
				return w.roundabout(t.c, id, seen)
			}
		}
	}
	return false
}

func (c *cluster) mirrorRecords() []*meta.MirrorRecord {
	var out []*meta.MirrorRecord
	for _, m := range c.machines {
		if m.serves() {
			for e := range m.node.Image().Mirrors() {
				out = append(out, e.Record)
			}
			return out
		}
	}
	return out
}

// mayFail reports whether a partition may stay FAILED for its reason.
func (w *mirrors) mayFail(c *cluster, p *meta.Partition, far farCluster, reason core.Reason, text string) string {
	// An operator may have pointed the mirror at a cluster that never had the topic.
	if t, ok := far.(tideFar); ok && reason == core.SourceTopicGone && t.c.topicID().IsZero() {
		w.k.probe("end: mirror stays FAILED, " + string(reason))
		return ""
	}
	switch reason {
	case core.TopicIDMismatch, core.SourceTopicGone:
		if w.kafka != nil && w.kafka.src.made > 1 {
			w.k.probe("end: mirror stays FAILED, " + string(reason))
			return ""
		}
	case core.SourceRewritten:
		if w.kafka != nil && slices.ContainsFunc(w.kafka.src.parts, func(p *srcPartition) bool { return p.rewritten }) {
			w.k.probe("end: mirror stays FAILED, " + string(reason))
			return ""
		}
	case core.SourceInconsistent:
		if w.o.KIP1279 { // it was promoted anew: fail over here and back again (docs/adr/0016)
			w.k.probe("end: mirror stays FAILED, " + string(reason))
			return ""
		}
	case core.PlanRequired, core.AheadOfSource, core.UnrelatedLogs, core.OtherCluster, core.SourceIsMirror, core.MirrorLoop:
		w.k.probe("end: mirror stays FAILED, " + string(reason)) // the operator's to decide
		return ""
	}
	if w.roundabout(c, p.ID, map[int]bool{}) {
		return ""
	}
	return "it is FAILED and nothing justifies it: " + text
}

// behindSource says what a running mirror lacks of its source.
func (w *mirrors) behindSource(c *cluster, p *meta.Partition, far farCluster) string {
	end := w.leaderEnd(c, p.ID)
	switch f := far.(type) {
	case tideFar:
		r := f.c.record(p.ID)
		if r == nil {
			return "its source has another topic, or none, and it doesn't say so"
		}
		if at := w.leaderEnd(f.c, p.ID); at != end {
			if w.roundabout(c, p.ID, map[int]bool{}) || end > at && !r.Writable && r.Mirror != nil && r.Mirror.State == meta.MirrorFailed {
				return "" // ahead of a mirror that stands still
			}
			return fmt.Sprintf("the log ends at %d, the source's at %d", end, at)
		}
		// A source that lost its last records may have as many others by now, before its mirror asks again.
		ours, theirs := w.lastEpoch(c, p.ID), w.lastEpoch(f.c, p.ID)
		if ours != theirs && ours >= 0 && theirs >= 0 && !w.roundabout(c, p.ID, map[int]bool{}) {
			return fmt.Sprintf("the last record is of epoch %d, the source's of %d", ours, theirs)
		}
	case kafkaFar:
		if p.ID.Topic != f.s.topic {
			return "the source's topic is another one and it doesn't say so"
		}
		l := f.s.parts[p.ID.Number].lead()
		if l == nil || l.hw != l.end {
			return "the source has not settled"
		}
		if l.end != end {
			return fmt.Sprintf("the log ends at %d, the source's at %d", end, l.end)
		}
	}
	return ""
}

// leaderEnd is the log end of a partition's leader, -1 if it can't be seen.
func (w *mirrors) leaderEnd(c *cluster, id meta.PartitionID) types.Offset {
	v, ok := w.leaderView(c, id)
	if !ok {
		return -1
	}
	return v.LogEnd
}

// lastEpoch is the leader epoch of a partition's last record, NoLeaderEpoch if its leader
// holds none or can't be seen.
func (w *mirrors) lastEpoch(c *cluster, id meta.PartitionID) types.LeaderEpoch {
	v, ok := w.leaderView(c, id)
	if !ok || v.LogStart >= v.LogEnd {
		return types.NoLeaderEpoch
	}
	e, ok := v.History.EpochForOffset(v.LogEnd - 1)
	if !ok {
		return types.NoLeaderEpoch
	}
	return e
}

// leaderView is the log of a partition's leader, false if it can't be seen.
func (w *mirrors) leaderView(c *cluster, id meta.PartitionID) (log.View, bool) {
	r := c.record(id)
	if r == nil {
		return log.View{}, false
	}
	m := c.machine(r.Leader)
	if m == nil || !m.serves() {
		return log.View{}, false
	}
	part, ok := m.node.Broker().Partition(id.Topic, id.Number)
	if !ok {
		return log.View{}, false
	}
	return part.View()
}

// final reads everything once more and compares all replicas of all clusters.
func (w *mirrors) final() {
	w.check.final()
	w.crossings.final()
}
