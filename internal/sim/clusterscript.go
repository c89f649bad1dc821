package sim

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"tidemark/internal/broker/api"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// Story is a script: what happens to a cluster of three brokers, one line a step, and
// what must be so in between. Nothing happens by chance.
type Story struct {
	Name string
	// Mutation is the rule that the story is about, Breaks the invariant that
	// breaks where it is switched off.
	Mutation, Breaks string
	lines            []storyLine
}

type storyLine struct {
	number int
	words  []string
}

// ParseStory reads a script. What follows a # says nothing to it.
func ParseStory(name, text string) (*Story, error) {
	s := &Story{Name: name}
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "mutation" && len(words) == 2:
			s.Mutation = words[1]
		case words[0] == "breaks" && len(words) == 2:
			s.Breaks = words[1]
		case scriptSteps[words[0]] == nil:
			return nil, fmt.Errorf("%s line %d: unknown step %q", name, i+1, words[0])
		default:
			s.lines = append(s.lines, storyLine{i + 1, words})
		}
	}
	return s, nil
}

// Play makes the story happen, with its rule switched off or not, and writes
// what happened to w. The failure is what the checkers found, nil if nothing; an
// error says that the story did not go as it is told.
func (s *Story) Play(switchedOff bool, w io.Writer) (*Failure, error) {
	m := &Mutation{}
	if switchedOff {
		var err error
		if m, err = MutationNamed(s.Mutation); err != nil {
			return nil, err
		}
	}
	if m.Cluster == nil {
		m.Cluster = &clusterMutation{}
	}
	quiet := *m.Cluster
	quiet.mute = []string{"ISRHoldsHW", "EpochDurable"} // they notice before the harm is done
	told := *m
	told.Cluster = &quiet
	st := &story{}
	o := scriptOptions()
	p := &player{c: newCluster(1, o, &told, st)}
	p.c.manual = true
	defer p.c.end()
	p.c.net.calm = true
	var err error
	for _, l := range s.lines {
		if err = scriptSteps[l.words[0]](p, l.words[1:]); err != nil || p.c.k.failure != nil {
			if err != nil {
				err = fmt.Errorf("%s line %d: %s: %w", s.Name, l.number, strings.Join(l.words, " "), err)
			}
			break
		}
	}
	if p.c.k.failure != nil {
		err = nil
	}
	return p.c.k.failure, errors.Join(err, st.write(w))
}

func scriptOptions() *ClusterOptions {
	return &ClusterOptions{
		Brokers: 3, Partitions: 1, Replicas: 3, MinISR: 1, Producers: 3, Lease: 3 * time.Second, LagMax: 10 * time.Minute, RestartMost: time.Second,
		Calm: 2 * time.Minute, FlushEvery: 100 * time.Millisecond, SegmentBytes: 100_000, FetchBytes: 100_000, Rates: map[string]float64{},
	}
}

// player carries a script out.
type player struct {
	c     *cluster
	waits *lane // of the last write with acks=all
	asked time.Duration
}

var scriptSteps map[string]func(p *player, args []string) error

func init() {
	scriptSteps = map[string]func(p *player, args []string) error{
		"topic": (*player).topic, "write": (*player).write, "until": (*player).until, "expect": (*player).expect, "wait": (*player).wait,
		"cut": func(p *player, a []string) error { return p.links(a, 1) }, "mend": func(p *player, a []string) error { return p.links(a, -1) },
		"crash": (*player).crash, "start": (*player).start, "elect-preferred": (*player).elect, "reassign": (*player).reassign, "heal": (*player).heal,
	}
}

// storyPatience bounds each step, virtual.
const storyPatience = time.Minute

// run lets time pass until a condition holds, which is looked at after every event.
func (p *player) run(done func() bool, what func() string) error {
	end := p.c.k.now + storyPatience
	for !done() {
		if p.c.k.failure != nil {
			return nil
		}
		if p.c.k.runUntil(end, p.c.k.steps+1); p.c.k.now >= end {
			return fmt.Errorf("it didn't come to that within %v: %s", storyPatience, what())
		}
	}
	return nil
}

func (p *player) topic(args []string) error {
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		switch key {
		case "min-isr":
			n, err := strconv.Atoi(value)
			if err != nil {
				return err
			}
			p.c.o.MinISR = n
		case "replicas":
			if value != "1,2,3" {
				return errors.New("a story's topic has the replicas 1,2,3")
			}
		}
	}
	return p.run(func() bool { return p.leader() == 1 && p.c.machines[0].held(p.id()) != nil }, p.describe)
}

func (p *player) id() meta.PartitionID { return meta.PartitionID{Topic: p.c.topic} }

func (p *player) leader() types.BrokerID {
	if r := p.c.check.ledger(p.id()).record; r != nil {
		return r.Leader
	}
	return types.NoBroker
}

func (p *player) write(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil || len(args) != 2 {
		return errors.New("want: write N acks=all or acks=1")
	}
	l := p.c.lanes[2]
	if args[1] == "acks=all" {
		l = p.c.lanes[0]
		if len(l.queue) > 0 {
			l = p.c.lanes[1]
		}
		p.waits, p.asked = l, p.c.k.now
	}
	l.believes = 0
	l.write(n)
	return nil
}

func (p *player) until(args []string) error {
	is, err := p.condition(args)
	if err != nil {
		return err
	}
	return p.run(is, p.describe)
}

func (p *player) expect(args []string) error {
	is, err := p.condition(args)
	if err == nil && !is() {
		err = fmt.Errorf("it isn't so: %s", p.describe())
	}
	return err
}

// condition reads: acked | leader B | end B = N | hw B <= N.
func (p *player) condition(args []string) (func() bool, error) {
	switch args[0] {
	case "acked":
		return func() bool { return len(p.waits.queue) == 0 && p.waits.ackedSince >= p.asked }, nil
	case "leader":
		b, err := strconv.Atoi(args[1])
		return func() bool {
			h := p.c.machines[b-1].held(p.id())
			return p.leader() == types.BrokerID(b) && h != nil && h.serving >= 0
		}, err
	case "end", "hw":
		b, err := strconv.Atoi(args[1])
		n, err2 := strconv.Atoi(args[3])
		return func() bool { return compared(p.mark(args[0], b), args[2], types.Offset(n)) }, errors.Join(err, err2)
	}
	return nil, fmt.Errorf("unknown condition %q", args[0])
}

func compared(a types.Offset, how string, b types.Offset) bool {
	switch how {
	case "<=":
		return a <= b && a >= 0
	case ">=":
		return a >= b
	}
	return a == b
}

// mark is the log end or the high watermark of one broker's replica, -1 if there is none.
func (p *player) mark(which string, b int) types.Offset {
	m := p.c.machines[b-1]
	if !m.up() {
		return -1
	}
	h := m.held(p.id())
	if h == nil {
		return -1
	}
	v, ok := h.part.View()
	switch {
	case !ok:
		return -1
	case which == "end":
		return v.LogEnd
	}
	return v.HighWatermark
}

func (p *player) describe() string {
	out := fmt.Sprintf("leader %d", p.leader())
	for _, m := range p.c.machines {
		out += fmt.Sprintf("; %s: end %d hw %d", m.name, p.mark("end", int(m.id)), p.mark("hw", int(m.id)))
	}
	return out
}

func (p *player) wait(args []string) error {
	d, err := time.ParseDuration(args[0])
	p.c.k.runUntil(p.c.k.now+d, 0)
	return err
}

// links cuts or mends A->B or A<->B.
func (p *player) links(args []string, by int) error {
	both := strings.Contains(args[0], "<->")
	a, b, ok := strings.Cut(strings.Replace(args[0], "<->", "->", 1), "->")
	if !ok {
		return errors.New("want A->B or A<->B")
	}
	a, b = "broker "+a, "broker "+b
	p.c.k.note("PLAN", "link %s: %+d", args[0], by)
	p.c.net.cut[direction{a, b}] += by
	if both {
		p.c.net.cut[direction{b, a}] += by
	}
	return nil
}

func (p *player) broker(args []string) (*machine, error) {
	b, err := strconv.Atoi(args[0])
	if err != nil || p.c.machine(types.BrokerID(b)) == nil {
		return nil, fmt.Errorf("no broker %q", args[0])
	}
	return p.c.machine(types.BrokerID(b)), nil
}

func (p *player) crash(args []string) error {
	m, err := p.broker(args)
	if err == nil {
		p.c.k.note("PLAN", "%s crashes", m.name)
		m.crash()
	}
	return err
}

func (p *player) start(args []string) error {
	m, err := p.broker(args)
	if err == nil {
		m.boot()
	}
	return err
}

func (p *player) operate(what string, do func(m *machine) error) error {
	done, fault := false, error(nil)
	if !p.c.operate(p.c.k.dice("script"), what, func(m *machine) error { fault = do(m); done = true; return fault }) {
		return errors.New("no broker runs")
	}
	return errors.Join(p.run(func() bool { return done }, p.describe), fault)
}

func (p *player) elect([]string) error {
	return p.operate("elect the preferred leader", func(m *machine) error {
		return m.node.Cluster().ElectLeaders(m.node.Context(), []meta.PartitionID{p.id()}, false)[0]
	})
}

func (p *player) reassign(args []string) error {
	var target []types.BrokerID
	for _, word := range strings.Split(args[0], ",") {
		b, err := strconv.Atoi(word)
		if err != nil {
			return err
		}
		target = append(target, types.BrokerID(b))
	}
	return p.operate("reassign to "+args[0], func(m *machine) error {
		return m.node.Cluster().Reassign(m.node.Context(), []api.Reassignment{{Partition: p.id(), Replicas: target}})[0]
	})
}

// heal ends all cuts and waits until everything has converged.
func (p *player) heal([]string) error {
	p.c.heal()
	end, why := p.c.k.now+p.c.o.Calm, ""
	for p.c.k.now < end && p.c.k.failure == nil {
		p.c.k.runUntil(p.c.k.now+time.Second, 0)
		if why = p.c.unfinished(); why == "" {
			p.c.final()
			return nil
		}
	}
	return fmt.Errorf("it doesn't converge: %s", why)
}
