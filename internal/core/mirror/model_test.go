package mirror

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/modellog"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// A plan is a random life of one source and one mirror: each number is an
// operation with its argument. The same plan runs with all rules on, and with one
// rule off, so that every rule is seen to be needed.
type plan []uint16

var plans = rapid.Custom(func(t *rapid.T) plan {
	return rapid.SliceOfN(rapid.Uint16(), 20, 160).Draw(t, "operations")
})

// model is a world with what the checks need to remember.
type model struct {
	*world
	replies   []lateReply       // answers already sent, to be sent again
	lastLocal types.LeaderEpoch // leader epoch here, as last seen
	appended  types.LeaderEpoch // leader epoch here at the last append
	branched  types.Offset      // lowest offset at which the source's list has changed since the last append, -1 if nowhere
	rewritten bool              // the source was made again with the same ids and epochs
	other     bool              // another topic answers
	restored  bool              // the source was restored from an older copy of itself
	compacted bool              // the source has compacted something
	tags      int
}

type lateReply struct {
	fetch Fetch
	reply replica.Reply
	sent  []modellog.Record
}

func newModel(pol Policy) *model {
	m := &model{world: newWorld(pol), appended: types.NoLeaderEpoch, branched: types.NoOffset}
	m.source.timelines = timeline.List{{ID: "A0"}}
	m.world.onFetch, m.world.onCut = m.checkFetch, m.checkCut
	m.show()
	return m
}

// run plays the plan and gives the first broken check.
func (p plan) run(rules Rules) error {
	pol := testPolicy()
	pol.Rules = rules
	m := newModel(pol)
	for _, x := range p {
		m.operate(int(x%ops), int(x/ops))
		if m.checkAlways(); m.problem != nil {
			return m.problem
		}
	}
	return m.checkEnd()
}

// ops is the number of kinds of operations.
const ops = 20

func (m *model) operate(op, arg int) {
	s := &m.source
	switch op {
	case 0, 1, 2:
		m.tags++
		for range arg%3 + 1 {
			s.Write(s.epoch, fmt.Sprintf("t%d", m.tags))
		}
	case 3:
		s.elect(s.epoch+types.LeaderEpoch(arg%3+1), s.End)
	case 4:
		end := s.Start + types.Offset(arg%int(s.End-s.Start+1))
		s.elect(s.epoch+types.LeaderEpoch(arg%2+1), end)
	case 5:
		m.trim(arg)
	case 6:
		m.compactOne(arg)
	case 7:
		m.branchSource(arg)
	case 8:
		m.restartMachine()
	case 9:
		m.refuse = arg % 2
	case 10:
		m.failLog = []Reason{VaultFull, DiskFull, ""}[arg%3]
	case 11:
		m.resend(arg)
	case 12:
		s.down = arg%3 == 0
	case 13:
		m.localElection(arg)
	case 14:
		m.rareFault(arg)
	default:
		for range arg%8 + 1 {
			m.answerAndKeep()
		}
	}
}

// answerAndKeep answers the oldest question and remembers fetches' answers.
func (m *model) answerAndKeep() {
	if len(m.pending) == 0 {
		return
	}
	if f, ok := m.pending[0].(Fetch); ok && !m.source.down {
		reply, sent := m.source.answer(f.Request, m.batch)
		m.replies = append(m.replies, lateReply{f, reply, sent})
		if len(m.replies) > 20 {
			m.replies = m.replies[1:]
		}
	}
	m.answerNext(true)
}

// resend delivers an old answer once more: the network or a slow broker.
func (m *model) resend(arg int) {
	if len(m.replies) == 0 {
		return
	}
	l := m.replies[arg%len(m.replies)]
	m.deliver(l.fetch, l.reply, l.sent)
}

func (m *model) trim(arg int) {
	s := &m.source
	s.RaiseStart(s.Start+types.Offset(arg%int(s.End-s.Start+1)), true)
}

// compactOne removes a record that isn't the last one.
func (m *model) compactOne(arg int) {
	s := &m.source
	if len(s.Records) > 2 && !m.rewritten && !m.restored { // what is compacted away can't show a difference
		m.compacted = true
		i := arg % (len(s.Records) - 1)
		s.Records = slices.Delete(slices.Clone(s.Records), i, i+1)
	}
}

// branchSource makes the source follow a cluster that was promoted behind its
// back: the list has a new entry from an offset of its log on, and the promoted
// epoch may be one that the source itself has used meanwhile.
func (m *model) branchSource(arg int) {
	s := &m.source
	last, _ := s.timelines.Last()
	at := s.Start + types.Offset(arg%int(s.End-s.Start+1))
	below, _ := s.History.EpochForOffset(max(at-1, s.Start))
	e := max(last.FirstEpoch, below, 0) + types.LeaderEpoch(arg%2+1)
	m.tags++
	list, err := s.timelines.Extend(timeline.Entry{ID: fmt.Sprintf("B%d", m.tags), FirstEpoch: e, FirstOffset: at})
	if err != nil {
		return
	}
	m.giveUp(at)
	s.Cut(at)
	for range arg%4 + 1 {
		s.Append(modellog.Record{Offset: s.End, Epoch: e, Tag: fmt.Sprintf("b%d", m.tags)})
	}
	s.timelines, s.epoch = list, max(s.epoch, e)+1
	s.Lead(s.epoch)
}

func (m *model) restartMachine() {
	m.machine, m.pending, m.replies = New(m.policy), nil, nil
	m.show()
}

// localElection gives the partition another leader here, whose log may be
// shorter (an unclean election of this cluster): no trace in the history (R6).
func (m *model) localElection(arg int) {
	lost := types.Offset(arg % 3)
	if lost > 0 && m.own.End-lost >= m.own.Start {
		m.own.Cut(m.own.End - lost)
	}
	m.rec.LeaderEpoch++
	m.restartMachine()
}

// rareFault changes who answers: at most one such fault in a life.
func (m *model) rareFault(arg int) {
	s := &m.source
	if m.rewritten || m.other || m.restored || m.compacted || arg%8 > 2 {
		return
	}
	switch arg % 8 {
	case 0: // the same ids and epochs, other bytes: restored and written anew
		if len(s.Records) == 0 {
			return
		}
		m.rewritten = true
		for i := range s.Records {
			s.Records[i].Tag = "z" + s.Records[i].Tag
		}
	case 2: // restored from a copy of a time before its last elections
		s.Cut(s.Start + types.Offset(arg/8%int(s.End-s.Start+1)))
		last := types.LeaderEpoch(1)
		if n := len(s.Records); n > 0 {
			last = s.Records[n-1].Epoch
		}
		m.restored = true
		s.timelines = slices.DeleteFunc(slices.Clone(s.timelines), func(e timeline.Entry) bool {
			if e.FirstEpoch > last {
				m.giveUp(e.FirstOffset)
			}
			return e.FirstEpoch > last
		})
		s.epoch = last
		s.Lead(last)
		s.Write(last, "r")
	case 1: // deleted and made again
		m.other = true
		s.Log, s.topic, s.timelines = modellog.Log{}, types.TopicID{9}, timeline.List{{ID: "A9"}}
		s.epoch++
		s.Lead(s.epoch)
		s.Write(s.epoch, "n")
	}
	m.restartMachine() // a new connection: identity is looked at (R26)
}

// checkFetch is LogMatching and MirrorPrefix: after an accepted fetch with data,
// our log holds what the source's holds, from the higher log start up to our
// end, but for what either side has compacted away.
func (m *model) checkFetch(replica.Reply) error {
	s := &m.source
	from := max(m.own.Start, s.Start)
	for _, r := range m.own.Records {
		if r.Offset < from {
			continue
		}
		if theirs, ok := s.At(r.Offset); ok && theirs != r {
			return fmt.Errorf("LogMatching: we hold %v, the source %v", r, theirs)
		}
		if r.Offset >= s.End {
			return fmt.Errorf("MirrorPrefix: we hold %v, the source ends at %d", r, s.End)
		}
		if e, ok := s.History.EpochForOffset(r.Offset); ok && e != r.Epoch {
			return fmt.Errorf("LogMatching: we hold %v, the source's epoch there is %d", r, e)
		}
	}
	for _, r := range s.Records {
		if r.Offset >= from && r.Offset < m.own.End {
			if _, ok := m.own.At(r.Offset); !ok {
				return fmt.Errorf("MirrorPrefix: %v is missing here", r)
			}
		}
	}
	return nil
}

// checkCut: a cut that the source's answer asks for comes after R20's
// transaction, and no gap is jumped (R28).
func (m *model) checkCut(e Effect) {
	realigned := m.rec.LeaderEpoch > m.appended && len(m.rec.ISR) == 1
	c, isCut := e.(Cut)
	_, isPoint := e.(SetCheckpoint)
	if !isPoint && !(isCut && c.Cause == CauseTimeline) && m.rec.Mirror.SourceEpochMax > m.source.epoch {
		m.fail("R26: a source of leader epoch %d is believed, %d was seen", m.source.epoch, m.rec.Mirror.SourceEpochMax)
	}
	switch e := e.(type) {
	case Append:
		m.appended, m.branched = m.rec.LeaderEpoch, types.NoOffset
	case Cut:
		if e.Cause == CauseDivergence && !realigned {
			m.fail("R20: cut at %d in leader epoch %d, which has appended", e.At, m.rec.LeaderEpoch)
		}
	case Restart:
		if !realigned {
			m.fail("R20: restart at %d in leader epoch %d, which has appended", e.At, m.rec.LeaderEpoch)
		}
		if len(m.own.Records) > 0 && m.own.End < e.At && !m.isGivenUp() {
			m.fail("R28: offsets %d-%d are jumped", m.own.End, e.At-1)
		}
	}
}

// giveUp takes note that the source's list has changed from an offset on.
func (m *model) giveUp(at types.Offset) {
	if m.branched < 0 || at < m.branched {
		m.branched = at
	}
}

// isGivenUp reports whether what our log ends before was given up with an adoption.
func (m *model) isGivenUp() bool { return m.branched >= 0 && m.branched <= m.own.End }

// checkAlways holds after every step.
func (m *model) checkAlways() {
	if last, ok := m.own.History.Latest(); ok && last.Epoch > m.rec.LeaderEpoch {
		m.fail("R21: a record of epoch %d under leader epoch %d", last.Epoch, m.rec.LeaderEpoch)
	}
	if m.rec.LeaderEpoch < m.lastLocal {
		m.fail("R22: the leader epoch fell from %d to %d", m.lastLocal, m.rec.LeaderEpoch)
	}
	m.lastLocal = m.rec.LeaderEpoch
	for _, r := range m.own.Records {
		if owner, ok := m.rec.Timelines.Owner(r.Epoch); m.hasPt && m.point.List.Equal(m.rec.Timelines) && ok && owner.ID == "" {
			m.fail("Ownership: %v has no owner", r)
		}
	}
}

// checkEnd stops all faults and lets everything settle: both sides are equal, or the record says why not.
func (m *model) checkEnd() error {
	m.refuse, m.failLog, m.source.down = 0, "", false
	if !m.settle(3000, false) {
		return m.endless()
	}
	if m.problem != nil {
		return m.problem
	}
	if m.rec.Mirror.State == meta.MirrorFailed {
		return m.checkReason()
	}
	if missing := m.source.Records[m.source.Index(m.own.End):]; len(missing) > 0 || m.own.End > m.source.End {
		return fmt.Errorf("Convergence: we end at %d, the source at %d, %s", m.own.End, m.source.End, m.machine.Status(m.now, m.view()).Phase)
	}
	return m.checkFetch(replica.Reply{})
}

// endless: a partition that tries again for ever must have said why.
func (m *model) endless() error {
	if m.rec.Mirror.State == meta.MirrorFailed {
		return m.checkReason()
	}
	return fmt.Errorf("Convergence: no rest, %+v", m.machine.Status(m.now, m.view()))
}

// checkReason allows a failure only if its cause was there.
func (m *model) checkReason() error {
	reason, _ := ReasonOf(m.rec.Mirror.Reason)
	switch {
	case reason == SourceGap && m.own.End < m.source.Start && (!m.isGivenUp() || m.forgot || m.machine.copied || m.restored), reason == SourceRewritten && m.rewritten, reason == TopicIDMismatch && m.other, reason == SourceEpochRegressed && m.restored, reason == SourceRewritten && m.restored:
		return nil
	}
	return fmt.Errorf("failed without cause: %s", m.rec.Mirror.Reason)
}

// TestMirrorModel: random lives with all rules on.
func TestMirrorModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if err := plans.Draw(t, "plan").run(Rules{}); err != nil {
			t.Fatal(err)
		}
	})
}

// TestMirrorModelFindsMutations: each rule, switched off, breaks a check in some life.
func TestMirrorModelFindsMutations(t *testing.T) {
	f := func(name string, rules Rules) {
		t.Helper()
		for seed := range 4000 {
			if err := plans.Example(seed).run(rules); err != nil {
				t.Logf("%s: seed %d: %v", name, seed, err)
				return
			}
		}
		t.Errorf("%s: not found", name)
	}
	f("R21: no raise", Rules{NoRaise: true})
	f("R26: no probe", Rules{NoProbe: true})
	f("R20: no realign", Rules{NoRealign: true})
	f("R19: no first cut", Rules{NoFirstCut: true})
	f("R26: ids are not compared", Rules{NoIdentity: true})
	f("R26: a lower source epoch is believed", Rules{NoEpochMemory: true})
	f("R28: a gap is jumped", Rules{NoGapCheck: true})
}
