package consumer

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// client is a consumer as Kafka's behave: it reads what it was told, lets go of what it
// is told to, joins anew when it is fenced, and may lose answers.
type client struct {
	id, instance string
	epoch        int32
	in           bool
	reads        map[Partition]bool
	give         map[Partition]bool // to be let go of
	topics       []string
	regex        string
	crashed      bool
	// lost: an answer didn't come, so that it tells all of itself next, and is told all.
	lost bool
}

// breakage is a rule that a walk breaks, to see that its checks find it.
type breakage string

const (
	intact        breakage = ""
	earlyRelease  breakage = "what a member is asked to let go of is free at once"
	noFence       breakage = "a member in a past epoch is taken for one in the present one"
	noRepair      breakage = "a failed write is forgotten"
	lostPosition  breakage = "a load passes over where members stand"
	lostTopics    breakage = "new topics aren't looked at"
	keepsGoneOnes breakage = "who is silent stays a member"
)

type walker struct {
	*bench
	r       *rand.Rand
	broken  breakage
	clients []*client
	names   int
	sent    []Heartbeat
	written int // records, also those that were compacted away
	fault   string
}

// TestWalk has consumers come, go, crash, lose answers and change their minds, while
// writes fail and coordinators die, and holds what they may read against each other.
// TIDEMARK_WALKS says how many times.
func TestWalk(t *testing.T) {
	seeds, records := uint64(150), 0
	if n, err := strconv.ParseUint(os.Getenv("TIDEMARK_WALKS"), 10, 64); err == nil {
		seeds = n
	}
	for seed := range seeds {
		w := walk(t, intact, seed)
		if w.fault != "" {
			t.Fatalf("seed %d: %s", seed, w.fault)
		}
		records += w.written
	}
	if records < 200*int(seeds) {
		t.Fatalf("%d records were written in %d walks, too few to have tried anything", records, seeds)
	}
}

// TestWalkFinds: each broken rule is found by the walk.
func TestWalkFinds(t *testing.T) {
	for _, b := range []breakage{earlyRelease, noFence, noRepair, lostPosition, lostTopics, keepsGoneOnes} {
		t.Run(strings.ReplaceAll(string(b), " ", "_"), func(t *testing.T) {
			for seed := range uint64(400) {
				if w := walk(t, b, seed); w.fault != "" {
					t.Logf("seed %d: %s", seed, strings.SplitN(w.fault, "\n", 2)[0])
					return
				}
			}
			t.Error("not found")
		})
	}
}

// walk is one run. What is wrong is in fault.
func walk(t *testing.T, b breakage, seed uint64) (w *walker) {
	w = &walker{bench: newBench(t, map[string]int32{"a": 4, "b": 3}), r: rand.New(rand.NewPCG(seed, 1)), broken: b}
	defer func() {
		if p := recover(); p != nil {
			w.fault = fmt.Sprint(p) // an assertion: the product itself has found it
		}
	}()
	for range 4 {
		w.clients = append(w.clients, w.newClient())
	}
	defer func() { w.written += len(w.log) }()
	for range 250 {
		w.any()
		w.check()
		if w.fault != "" {
			return w
		}
	}
	w.settle()
	return w
}

func (w *walker) newClient() *client {
	w.names++
	c := &client{id: fmt.Sprintf("m%d", w.names), reads: map[Partition]bool{}, give: map[Partition]bool{}}
	if w.r.IntN(3) == 0 {
		c.instance = fmt.Sprintf("i%d", w.r.IntN(2))
	}
	w.subscribe(c)
	return c
}

func (w *walker) subscribe(c *client) {
	c.topics, c.regex = []string{"a", "b"}, ""
	switch w.r.IntN(6) {
	case 0:
		c.topics = []string{"a"}
	case 1:
		c.topics, c.regex = nil, "[a-c]"
	case 2:
		c.topics, c.regex = []string{"b"}, "c.*"
	}
}

func (w *walker) any() {
	i := w.r.IntN(len(w.clients))
	c := w.clients[i]
	switch n := w.r.IntN(40); {
	case n < 28:
		w.beat(c, w.r.IntN(12) == 0)
	case n < 30:
		w.beats(i)
	case n == 30: // a crash: another comes in its stead, perhaps with its instance
		fresh := w.newClient()
		fresh.instance = c.instance
		c.crashed = true
		w.clients[i] = fresh
	case n == 31:
		w.leave(c)
	case n == 32:
		w.subscribe(c)
		c.epoch, c.in = 0, false // it says all anew
		c.reads, c.give = map[Partition]bool{}, map[Partition]bool{}
	case n == 33:
		w.topicsChange()
	case n < 36:
		w.now += types.Millis(w.r.IntN(6000))
		w.expire()
	case n == 36:
		w.failedWrite(c)
	case n == 37 || n > 37 && w.broken == noFence:
		w.late()
	default:
		w.die()
	}
}

// heartbeat is what a client sends now.
func (w *walker) heartbeat(c *client) Heartbeat {
	h := at(c.id, c.epoch)
	if !c.in || c.lost {
		h = join(c.id, c.topics...).regex(c.regex)
		h.Epoch = c.epoch
	}
	if c.in && (c.lost || len(c.give) > 0 || w.r.IntN(3) == 0) {
		maps.DeleteFunc(c.reads, func(p Partition, _ bool) bool { return c.give[p] })
		clear(c.give)
		h = h.owning(slices.SortedFunc(maps.Keys(c.reads), Partition.Compare)...)
	}
	if c.instance != "" {
		h = h.static(c.instance)
	}
	w.sent = append(w.sent, h)
	return h
}

// late has a copy of an old heartbeat arrive; its answer goes to nobody.
func (w *walker) late() {
	if len(w.sent) == 0 {
		return
	}
	h := w.sent[max(0, len(w.sent)-1-w.r.IntN(40))]
	m := w.g.members[h.MemberID]
	if m == nil || h.Epoch == JoinEpoch {
		return // who joins is let in; a copy of that is a member that will be silent
	}
	if w.broken == noFence && m.Epoch > 0 {
		h.Epoch = m.Epoch
	}
	_, _ = w.g.Heartbeat(w.env(), h)
	w.keep()
}

// beat sends a heartbeat; with lost, its answer doesn't come back.
func (w *walker) beat(c *client, lost bool) {
	a, refused := w.g.Heartbeat(w.env(), w.heartbeat(c))
	w.breakOwners()
	w.keep()
	if c.lost = lost; !lost {
		w.told(c, a, refused)
	}
}

// beats has several clients' heartbeats go into one write.
func (w *walker) beats(from int) {
	type answer struct {
		c *client
		f Filed
		a Answer
		r *Refusal
	}
	var all []answer
	for i := range 3 {
		c := w.clients[(from+i)%len(w.clients)]
		f, r := w.g.File(w.env(), w.heartbeat(c))
		all = append(all, answer{c: c, f: f, r: r})
	}
	for i := range all {
		if all[i].r == nil {
			all[i].a, all[i].r = w.g.Answer(w.env(), all[i].f)
		}
	}
	w.keep()
	for _, x := range all {
		x.c.lost = false
		w.told(x.c, x.a, x.r)
	}
}

func (w *walker) told(c *client, a Answer, refused *Refusal) {
	if refused != nil {
		switch refused.Code {
		case errcode.UnknownMemberID, errcode.FencedMemberEpoch:
			c.epoch, c.in = 0, false
			c.reads, c.give = map[Partition]bool{}, map[Partition]bool{}
		case errcode.FencedInstanceID, errcode.UnreleasedInstanceID, errcode.GroupMaxSizeReached:
			c.crashed = true // such a consumer ends
			for i := range w.clients {
				if w.clients[i] == c {
					w.clients[i] = w.newClient()
				}
			}
		default:
			w.fault = fmt.Sprintf("%s is refused: %v", c.id, *refused)
		}
		return
	}
	c.epoch, c.in = a.Epoch, true
	if !a.HasAssignment {
		return
	}
	clear(c.give)
	for _, p := range a.Assignment {
		c.reads[p] = true
	}
	for p := range c.reads {
		if !slices.Contains(a.Assignment, p) {
			c.give[p] = true
		}
	}
}

func (w *walker) leave(c *client) {
	if !c.in {
		return
	}
	h := at(c.id, LeaveEpoch)
	if c.instance != "" {
		h = at(c.id, int32(-1-w.r.IntN(2))).static(c.instance)
	}
	_, _ = w.g.Heartbeat(w.env(), h)
	w.keep()
	c.epoch, c.in = 0, false
	c.reads, c.give = map[Partition]bool{}, map[Partition]bool{}
}

func (w *walker) topicsChange() {
	if w.broken != lostTopics {
		w.topics.version++
	}
	t, c := w.topics.byName["a"], Topic{Name: "c", ID: topicID("c"), Partitions: 2}
	switch _, has := w.topics.byName["c"]; {
	case !has:
		w.topics.byName["c"] = c
	case w.r.IntN(2) == 0:
		delete(w.topics.byName, "c")
	case t.Partitions < 7:
		t.Partitions++
		w.topics.byName["a"] = t
	}
}

func (w *walker) expire() {
	if w.broken == keepsGoneOnes {
		return
	}
	w.g.Expire(w.env())
	w.keep()
}

// breakOwners frees what members are asked to let go of, in the walk that is to find that.
func (w *walker) breakOwners() {
	if w.broken != earlyRelease {
		return
	}
	for _, m := range w.g.members {
		for p := range m.Revoking {
			delete(w.g.owners, p)
		}
	}
}

// failedWrite is a heartbeat whose write fails. The log may have it nonetheless.
func (w *walker) failedWrite(c *client) {
	h := w.heartbeat(c)
	_, _ = w.g.Heartbeat(w.env(), h)
	if w.r.IntN(2) == 0 {
		w.log = append(w.log, w.g.Changes()...)
	}
	c.lost = true
	w.g.Drop()
	w.g.Postpone(w.now, w.now+500)
	if w.broken == noRepair {
		w.g.doubt = nil
	}
}

// die has another coordinator go on from the log. What the old one knew and the log
// doesn't say is lost.
func (w *walker) die() {
	if len(w.g.doubt) > 0 {
		w.g = w.reload() // the log may be ahead of what it knew
		return
	}
	if w.r.IntN(2) == 0 {
		w.compact(w.r.IntN(len(w.log) + 1))
	}
	old := w.g
	w.g = NewGroup("g", &w.cfg)
	for _, r := range w.log {
		if _, ok := r.(PositionRecord); ok && w.broken == lostPosition {
			continue
		}
		w.g.Replay(r)
	}
	w.g.Loaded(w.now)
	// A group that is loaded from its records is the group that wrote them.
	if was, is := show(old), show(w.g); was != is {
		w.fault = fmt.Sprintf("a group is loaded as\n%s\nit was\n%s", is, was)
	}
}

// compact keeps, of the log's first n records, the last of each key; tombstones go.
func (w *walker) compact(n int) {
	w.written += n
	last := map[recordKey]int{}
	for i, r := range w.log[:n] {
		last[r.key()] = i
	}
	var kept []Record
	for i, r := range w.log[:n] {
		if last[r.key()] == i && (!IsTombstone(r) || w.r.IntN(2) == 0) {
			kept = append(kept, r)
		}
	}
	w.written -= len(kept)
	w.log = append(kept, w.log[n:]...)
}

// check holds what members may read, and would be believed about, against each other: it
// looks at clients and at what commits are taken, not at how the group keeps itself.
func (w *walker) check() {
	readers := map[Partition]string{}
	for _, c := range w.clients {
		if !c.in {
			continue
		}
		for p := range c.reads {
			if w.g.CheckCommit(c.id, c.epoch, []Partition{p}) != nil {
				continue // it is fenced, and will hear of it
			}
			if other := readers[p]; other != "" {
				w.fault = fmt.Sprintf("both %s and %s read %v and may commit it\n%s", other, c.id, p, show(w.g))
				return
			}
			readers[p] = c.id
		}
	}
}

// settle lets all clients go on, undisturbed, until nothing moves, and looks at where they are.
func (w *walker) settle() {
	for range 60 {
		for _, c := range slices.Clone(w.clients) {
			w.beat(c, false)
			w.check()
		}
		w.now += 500
		w.expire()
		if w.fault != "" {
			return
		}
	}
	w.checkShared()
}

// checkShared: each partition of each topic is read by one client that subscribes to it, if there is one.
func (w *walker) checkShared() {
	if s := w.g.State(); s != GroupStable {
		w.fault = fmt.Sprintf("the group is %s in the end\n%s", s, show(w.g))
		return
	}
	for topic := range w.topics.All() {
		for n := range topic.Partitions {
			p := Partition{topic.ID, n}
			readers, may := []string{}, 0
			for _, c := range w.clients {
				if c.reads[p] && c.in {
					readers = append(readers, c.id)
				}
				if w.subscribes(c, topic.Name) {
					may++
				} else if c.reads[p] {
					w.fault = fmt.Sprintf("%s reads %s, which it doesn't subscribe to\n%s", c.id, topic.Name, show(w.g))
					return
				}
			}
			if len(readers) != min(may, 1) {
				w.fault = fmt.Sprintf("%s-%d is read by %v, %d subscribe\n%s", topic.Name, n, readers, may, show(w.g))
				return
			}
		}
	}
}

func (w *walker) subscribes(c *client, topic string) bool {
	if !c.in {
		return false
	}
	if slices.Contains(c.topics, topic) {
		return true
	}
	if c.regex == "" {
		return false
	}
	re, _ := compile(c.regex)
	return re.MatchString(topic)
}
