package consumer

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// fakeTopics are topics of a test.
type fakeTopics struct {
	version int64
	byName  map[string]Topic
}

func topicsOf(sizes map[string]int32) *fakeTopics {
	f := &fakeTopics{version: 1, byName: map[string]Topic{}}
	for name, n := range sizes {
		f.byName[name] = Topic{Name: name, ID: topicID(name), Partitions: n}
	}
	return f
}

// topicID is made of the name, so that failures can be read.
func topicID(name string) (id types.TopicID) {
	copy(id[:], name)
	return id
}

func (f *fakeTopics) Version() int64 { return f.version }

func (f *fakeTopics) ByName(name string) (Topic, bool) {
	t, ok := f.byName[name]
	return t, ok
}

func (f *fakeTopics) ByID(id types.TopicID) (Topic, bool) {
	for _, t := range f.byName {
		if t.ID == id {
			return t, true
		}
	}
	return Topic{}, false
}

func (f *fakeTopics) All() iter.Seq[Topic] {
	return func(yield func(Topic) bool) {
		for _, name := range slices.Sorted(maps.Keys(f.byName)) {
			if !yield(f.byName[name]) {
				return
			}
		}
	}
}

var testConfig = Config{SessionTimeout: 10_000, HeartbeatInterval: 1000, MaxSize: 8, Assignors: []string{Uniform, Range}}

// bench is one group and its log.
type bench struct {
	t      *testing.T
	cfg    Config
	g      *Group
	topics *fakeTopics
	now    types.Millis
	log    []Record
}

func newBench(t *testing.T, sizes map[string]int32) *bench {
	b := &bench{t: t, cfg: testConfig, topics: topicsOf(sizes), now: 1000}
	b.g = NewGroup("g", &b.cfg)
	return b
}

func (b *bench) env() Env { return Env{Now: b.now, Wall: b.now + 1_000_000, Topics: b.topics} }

// keep writes what has changed.
func (b *bench) keep() {
	b.log = append(b.log, b.g.Changes()...)
	b.g.Keep()
}

// beat is a heartbeat whose changes are written.
func (b *bench) beat(h Heartbeat) (Answer, errcode.Code) {
	b.t.Helper()
	if refused := h.Validate(&b.cfg, "g"); refused != nil {
		return Answer{}, refused.Code
	}
	a, refused := b.g.Heartbeat(b.env(), h)
	b.keep()
	if refused != nil {
		return Answer{}, refused.Code
	}
	return a, 0
}

// reload gives the group that is loaded from the log.
func (b *bench) reload() *Group {
	g := NewGroup("g", &b.cfg)
	for _, r := range b.log {
		g.Replay(r)
	}
	g.Loaded(b.now)
	return g
}

// Heartbeat files a heartbeat and answers it.
func (g *Group) Heartbeat(env Env, h Heartbeat) (Answer, *Refusal) {
	f, refused := g.File(env, h)
	if refused != nil {
		return Answer{}, refused
	}
	return g.Answer(env, f)
}

// join is the heartbeat of a member that comes in.
func join(id string, topics ...string) Heartbeat {
	return Heartbeat{MemberID: id, Epoch: JoinEpoch, RebalanceTimeout: 5000, Topics: topics, HasTopics: true, HasOwned: true, OwnMemberID: true, ClientID: "c", ClientHost: "/h"}
}

// at is a member's plain heartbeat.
func at(id string, epoch int32) Heartbeat {
	return Heartbeat{MemberID: id, Epoch: epoch, RebalanceTimeout: -1, OwnMemberID: true, ClientID: "c", ClientHost: "/h"}
}

func (h Heartbeat) static(instance string) Heartbeat {
	h.InstanceID = &instance
	return h
}

func (h Heartbeat) owning(ps ...Partition) Heartbeat {
	h.Owned, h.HasOwned = ps, true
	return h
}

func (h Heartbeat) regex(expression string) Heartbeat {
	h.Regex = &expression
	return h
}

func (h Heartbeat) assignor(name string) Heartbeat {
	h.Assignor = &name
	return h
}

func parts(topic string, numbers ...int32) []Partition {
	var all []Partition
	for _, n := range numbers {
		all = append(all, Partition{topicID(topic), n})
	}
	return all
}

// show writes what a group is, for comparing.
func show(g *Group) string {
	d := g.Describe()
	out := fmt.Sprintf("%s epoch %d hash %d target %d since %d\n", d.State, d.Epoch, g.hash, d.TargetEpoch, g.since)
	for _, m := range g.inOrder() {
		out += fmt.Sprintf("%s %+v %+v target %v\n", m.ID, m.Profile, m.Position, g.targets[m.ID])
	}
	for _, regex := range sortedKeys(g.regexes) {
		out += fmt.Sprintf("regex %s %v\n", regex, *g.regexes[regex])
	}
	owners := map[string]string{}
	for p, m := range g.owners {
		owners[fmt.Sprint(p)] = m
	}
	return out + fmt.Sprintf("static %v owners %v\n", g.static, owners)
}
