package sim

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"tidemark/internal/core/types"
)

// source is a model of a Kafka cluster with one topic: replicas with clean and
// unclean elections, high watermarks, retention, compaction, recreation. It is
// written for this package alone and shares no code with what is tested.
type source struct {
	k     *kernel
	o     *Options
	id    string // cluster id
	topic types.TopicID
	exist bool
	parts []*srcPartition
	made  int // topics made so far
	tree  *tree
	down  map[int]bool // brokers
	// past are all topics that were ever made, by id; nodes all batches.
	past  map[types.TopicID][]*srcPartition
	nodes map[nodeKey]*batchNode
}

// nodeKey identifies a batch by what anybody can read of it.
type nodeKey struct {
	topic  types.TopicID
	number int32
	base   types.Offset
	epoch  types.LeaderEpoch
	sum    uint32
}

func (s *source) index(p *srcPartition, b *batchNode) {
	s.nodes[nodeKey{p.topic, p.number, b.base, b.epoch, crc32.ChecksumIEEE(b.raw)}] = b
}

// find gives the batch with exactly these bytes, nil if the source never wrote it.
func (s *source) find(topic types.TopicID, number int32, base types.Offset, epoch types.LeaderEpoch, raw []byte) *batchNode {
	b := s.nodes[nodeKey{topic, number, base, epoch, crc32.ChecksumIEEE(raw)}]
	if b == nil || !bytes.Equal(b.raw, raw) {
		return nil
	}
	return b
}

// tree holds every batch that the source ever wrote: a batch's parent is the one
// below it in the log it was appended to. A log is a path, and an unclean
// election a fork.
type tree struct{ batches int }

// batchNode is one batch and its bytes as the source's leader stamped them.
type batchNode struct {
	number     int
	base, next types.Offset
	epoch      types.LeaderEpoch
	raw        []byte
	parent     *batchNode
	committed  bool // below the high watermark of a leader at some time
	compacted  bool // taken out of some replica by compaction
}

// String is base-next@epoch.
func (b *batchNode) String() string {
	if b == nil {
		return "nothing"
	}
	return fmt.Sprintf("%d-%d@%d", b.base, b.next-1, b.epoch)
}

// reaches reports whether b is a or above it in one log: a's path is a prefix of
// b's. between gets the batches in between that are not compacted away.
func (b *batchNode) reaches(a *batchNode) bool {
	for n := b; n != nil; n = n.parent {
		if n == a {
			return true
		}
		if a != nil && n.base < a.base {
			return false
		}
	}
	return a == nil
}

// epochStart is an entry of a leader epoch history.
type epochStart struct {
	epoch types.LeaderEpoch
	start types.Offset
}

// srcReplica is one replica of a source partition.
type srcReplica struct {
	broker         int
	batches        []*batchNode
	tail           *batchNode // the last batch of its path, also if it was deleted
	start, end, hw types.Offset
	history        []epochStart
	leads          types.LeaderEpoch // the epoch in which it believes to lead, -1
	wakingUp       bool              // a replication event is on its way
}

// srcPartition is one partition of the source's topic.
type srcPartition struct {
	s        *source
	topic    types.TopicID
	number   int32
	epoch    types.LeaderEpoch
	leader   int // index of the replica that leads, -1
	isr      []bool
	replicas []*srcReplica
	// tips is the end of the leader's path in each epoch, for LogMatching.
	tips    map[types.LeaderEpoch]*batchNode
	waiting []func() // long polls: called when something has changed
	seq     int32    // of the idempotent producer
	openTxn bool
	writes  int
	// rewritten: batches were replaced behind the replicas' backs; what retention
	// would then hide can't be found by anybody.
	rewritten bool
	// contradicts: a replica's history is not the one that its batches imply.
	contradicts bool
}

const srcReplicas = 3

func newSource(k *kernel, o *Options) *source {
	s := &source{
		k: k, o: o, id: "source-cluster", tree: &tree{}, down: map[int]bool{},
		past: map[types.TopicID][]*srcPartition{}, nodes: map[nodeKey]*batchNode{},
	}
	s.createTopic()
	return s
}

// createTopic makes the topic, or makes it again after its deletion: another id, empty logs.
func (s *source) createTopic() {
	s.made++
	s.exist = true
	d := s.k.dice("source topic id")
	for i := range s.topic {
		s.topic[i] = byte(d.Uint32())
	}
	for _, p := range s.parts {
		p.wake()
	}
	s.parts = nil
	for n := range s.o.Partitions {
		p := &srcPartition{s: s, topic: s.topic, number: int32(n), leader: -1, isr: make([]bool, srcReplicas), tips: map[types.LeaderEpoch]*batchNode{}, epoch: -1}
		for b := range srcReplicas {
			p.replicas = append(p.replicas, &srcReplica{broker: b, leads: -1})
			p.isr[b] = !s.down[b]
		}
		s.parts = append(s.parts, p)
		p.electAny(d)
	}
	s.past[s.topic] = s.parts
}

func (p *srcPartition) who() string { return fmt.Sprintf("source-%d", p.number) }

func (p *srcPartition) lead() *srcReplica {
	if p.leader < 0 {
		return nil
	}
	return p.replicas[p.leader]
}

// elect makes a replica the leader of the next epoch; unclean forgets the ISR.
func (p *srcPartition) elect(to int, unclean bool) {
	if p.s.down[to] {
		p.leader = -1
		return
	}
	if old := p.lead(); old != nil && (old.broker == to || !p.s.k.dice("source zombies").chance(p.s.o.Zombie)) {
		old.leads = -1
	}
	p.epoch++
	p.leader = to
	r := p.replicas[to]
	r.leads = p.epoch
	r.assign(p.epoch, r.end)
	if unclean {
		clear(p.isr)
	}
	p.isr[to] = true
	p.tips[p.epoch] = r.tail
	kind := "elects"
	if unclean {
		kind = "elects UNCLEANLY"
		p.s.k.probe("source: unclean election")
	}
	p.s.k.note(p.who(), "%s broker %d for epoch %d: %s", kind, to, p.epoch, r)
	p.advance()
	p.replicate()
	p.wake()
}

// electAny elects an in-sync replica, if one is up.
func (p *srcPartition) electAny(d dice) bool {
	var can []int
	for b := range p.replicas {
		if p.isr[b] && !p.s.down[b] {
			can = append(can, b)
		}
	}
	if len(can) == 0 {
		return false
	}
	p.elect(can[d.IntN(len(can))], false)
	return true
}

// String is [start, end) hw n.
func (r *srcReplica) String() string { return fmt.Sprintf("[%d, %d) hw %d", r.start, r.end, r.hw) }

func (r *srcReplica) assign(e types.LeaderEpoch, start types.Offset) {
	for n := len(r.history); n > 0 && (r.history[n-1].epoch >= e || r.history[n-1].start >= start); n = len(r.history) {
		r.history = r.history[:n-1]
	}
	r.history = append(r.history, epochStart{e, start})
}

// mend makes the history the one that the batches imply, with the entry of the
// epoch that it leads.
func (r *srcReplica) mend() {
	first := r.start
	if len(r.history) > 0 {
		first = min(first, r.history[0].start)
	}
	r.history = nil
	next := max(first, r.start)
	for _, b := range r.batches {
		if n := len(r.history); n == 0 || r.history[n-1].epoch < b.epoch {
			r.history = append(r.history, epochStart{b.epoch, next})
		}
		next = b.next
	}
	if r.leads >= 0 && (len(r.history) == 0 || r.history[len(r.history)-1].epoch < r.leads) {
		r.assign(r.leads, r.end)
	}
}

// append writes one batch at the leader.
func (p *srcPartition) append(b *batchNode) {
	r := p.lead()
	p.s.tree.batches++
	b.number, b.parent = p.s.tree.batches, r.tail
	r.push(b)
	p.tips[p.epoch] = b
}

func (r *srcReplica) push(b *batchNode) {
	r.batches = append(r.batches, b)
	r.tail, r.end = b, b.next
}

// cutTo takes the batches at or above o off a replica.
func (r *srcReplica) cutTo(o types.Offset) {
	for n := len(r.batches); n > 0 && r.batches[n-1].next > o; n = len(r.batches) {
		r.batches = r.batches[:n-1]
	}
	for r.tail != nil && r.tail.next > o {
		r.tail = r.tail.parent
	}
	r.end = r.start
	if r.tail != nil {
		r.end = max(r.tail.next, r.start)
	}
	r.hw = min(r.hw, r.end)
	for n := len(r.history); n > 0 && r.history[n-1].start >= r.end; n = len(r.history) {
		r.history = r.history[:n-1]
	}
}

// setStart deletes what lies below o.
func (r *srcReplica) setStart(o types.Offset) {
	if o <= r.start {
		return
	}
	r.start = o
	r.hw = max(r.hw, o)
	if r.end < o { // a follower that was far behind
		r.end, r.batches, r.history = o, nil, nil
		return
	}
	n := 0
	for n < len(r.batches) && r.batches[n].next <= o {
		n++
	}
	r.batches = slices.Clone(r.batches[n:])
	for len(r.history) > 1 && r.history[1].start <= o {
		r.history = r.history[1:]
	}
	if len(r.history) > 0 {
		r.history[0].start = max(r.history[0].start, o)
	}
}

// replicate has every live follower fetch soon.
func (p *srcPartition) replicate() {
	d := p.s.k.dice("source replication")
	for b, r := range p.replicas {
		if b == p.leader || p.s.down[b] || r.wakingUp {
			continue
		}
		r.wakingUp = true
		wait := d.between(time.Millisecond, 20*time.Millisecond)
		if d.chance(p.s.o.SlowReplica) {
			wait = d.around(2 * time.Second)
			if wait > 500*time.Millisecond && p.leader >= 0 && p.isr[b] {
				p.isr[b] = false // replica.lag.time.max.ms: the mark goes on without it
				p.s.k.after(0, "source shrinks the ISR", p.advance)
			}
		}
		p.s.k.after(wait, "source replicates", func() {
			r.wakingUp = false
			p.follow(r)
		})
	}
}

// follow copies the leader's log to a follower: cut to where the paths part, then append.
func (p *srcPartition) follow(r *srcReplica) {
	l := p.lead()
	if l == nil || l == r || p.s.down[r.broker] {
		return
	}
	r.leads = -1
	for r.tail != nil && !l.tail.reaches(r.tail) {
		r.cutTo(r.tail.base)
	}
	r.end = max(r.end, r.start)
	for n := len(r.history); n > 0 && r.history[n-1].start >= r.end; n = len(r.history) {
		r.history = r.history[:n-1] // of an election of its own that no record followed (KAFKA-10706)
	}
	r.setStart(l.start)
	for _, b := range l.batches {
		if b.base < r.end {
			continue
		}
		if n := len(r.history); n == 0 || r.history[n-1].epoch < b.epoch {
			r.assign(b.epoch, r.end)
		}
		r.push(b)
	}
	if l.end > r.end { // the leader's last batches were deleted
		r.end, r.tail = l.end, l.tail
	}
	r.hw = max(r.hw, min(l.hw, r.end))
	if r.end >= l.hw && r.end == l.end {
		p.isr[r.broker] = true
	}
	p.advance()
}

// advance moves the leader's high watermark to what the ISR holds.
func (p *srcPartition) advance() {
	l := p.lead()
	if l == nil {
		return
	}
	hw := l.end
	for b, in := range p.isr {
		if in && b != p.leader {
			r := p.replicas[b]
			if l.tail.reaches(r.tail) {
				hw = min(hw, r.end)
			} else {
				hw = l.hw
			}
		}
	}
	if hw <= l.hw {
		return
	}
	l.hw = hw
	for b := l.tail; b != nil; b = b.parent {
		if b.next <= hw {
			if b.committed {
				break
			}
			b.committed = true
		}
	}
	for _, r := range p.replicas {
		if r != l && !p.s.down[r.broker] && l.tail.reaches(r.tail) && r.hw < min(hw, r.end) {
			p.replicate()
			break
		}
	}
	p.wake()
}

func (p *srcPartition) wake() {
	waiting := p.waiting
	p.waiting = nil
	for _, f := range waiting {
		f()
	}
}
