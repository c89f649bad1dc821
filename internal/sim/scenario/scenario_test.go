package scenario

import (
	"fmt"
	"slices"
	"testing"

	"tidemark/internal/await"
	"tidemark/internal/broker"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
)

func TestMain(m *testing.M) { await.NoLeaks(m) }

// TestScenario plays every story of the file.
func TestScenario(t *testing.T) {
	all := readStories(t)
	played := 0
	for _, s := range all.Stories {
		t.Run(s.ID, func(t *testing.T) {
			played++
			known := slices.Clone(deviations[s.ID])
			for _, fault := range s.play("") {
				if i := slices.Index(known, fault); i >= 0 {
					known = slices.Delete(known, i, i+1)
					continue
				}
				t.Errorf("%s: %s", s.Title, fault)
			}
			for _, fault := range known {
				t.Errorf("no longer so: %s", fault)
			}
		})
	}
	t.Logf("%d stories played, none left out; %d told otherwise (deviations)", played, len(deviations))
	if played != len(all.Stories) {
		t.Errorf("%d of %d stories were played", played, len(all.Stories))
	}
}

// deviations are where the product does better than a story tells: the stories
// keep ISR and ELR by a simplified rule. Each is asserted as it is.
var deviations = map[string][]string{
	// The operator allowed an unclean election and the replica was in sync: it is a clean one.
	"S15": {`not told: {"cluster":"B","code":"UNCLEAN_ELECTION","epoch":1027,"log_end":4,"replica":"b1","step":9}`},
	// An election leaves out of the ISR who came back in another registration (R11).
	"P22": {"step 6: A: leader a1, epoch 2, WRITABLE, ISR [a1], ELR [], want leader a1, epoch 2, WRITABLE, ISR [a0 a1], ELR []"},
	"P23": {"step 8: A: leader a0, epoch 2, WRITABLE, ISR [a0], ELR [], want leader a0, epoch 2, WRITABLE, ISR [a0 a1], ELR []"},
	// Below min ISR an election keeps the one who was in sync before eligible, as KIP-966 does.
	"P28": {"step 8: A: leader a2, epoch 2, WRITABLE, ISR [a2], ELR [a0], want leader a2, epoch 2, WRITABLE, ISR [a2], ELR []"},
}

// play plays a story with one rule off ("": none), and gives what was not as told.
func (s *story) play(mutation string) (faults []string) {
	w := &world{story: s, mutation: mutation, clusters: map[string]*cluster{}, now: 1_700_000_000_000, names: map[string]string{}, plans: map[string]string{}}
	defer func() {
		if r := recover(); r != nil {
			faults = append(w.faults, fmt.Sprintf("step %d: %v", w.step, r))
			if mutation == "" && testing.Verbose() {
				panic(r)
			}
		}
	}()
	for name, spec := range s.Clusters {
		c := newCluster(w, name, spec)
		w.clusters[name] = c
		w.order = append(w.order, c)
	}
	for i := range s.Steps {
		w.step = i + 1
		w.do(&s.Steps[i])
		w.tellCuts()
		w.forgetWaits(&s.Steps[i])
		if want, ok := s.Expect.After[fmt.Sprint(w.step)]; ok {
			w.checkState(want)
		}
	}
	w.checkEnd()
	return w.faults
}

// forgetWaits: only align asks whether LOG_ALIGNMENT may end.
func (w *world) forgetWaits(s *step) {
	if s.Op == "align" {
		return
	}
	w.told = slices.DeleteFunc(w.told, func(m map[string]any) bool { return m["step"] == w.step && m["code"] == "WAITING" })
}

// do carries out one operation.
//
//tidy:long one row for each operation
func (w *world) do(s *step) {
	c := w.clusters[s.Cluster]
	var n *node
	if s.Replica != "" {
		n = w.nodeNamed(s.Replica)
		c = n.c
	}
	switch s.Op {
	case "create":
		c.create(s)
	case "produce":
		c.produce(s)
	case "end_txn":
		c.endTxn(s)
	case "replicate":
		r := replicateAll()
		r.only, r.crash = names(s.Replicas), s.Crash
		if s.Upto != nil {
			r.upto = *s.Upto
		}
		r.learn, r.join = s.Learn == nil || *s.Learn, s.Join == nil || *s.Join
		c.replicate(r)
	case "crash":
		n.kill(s.Lose)
		c.crashed(n)
		n.unregister()
	case "stop":
		n.stop()
		c.crashed(n)
		n.unregister()
	case "restart":
		if s.Lose > 0 {
			n.last.end = n.loseTail(s.Lose)
		}
		n.boot()
	case "bounce":
		n.kill(s.Lose)
		n.boot()
	case "elect":
		c.elect(n, s)
	case "elect_best":
		c.electBest()
	case "isr_add":
		l := c.leader()
		l.outcome = s.Outcome
		l.runTasks()
		if s.Outcome != "" {
			c.blind = true
			c.tell("OUTCOME_UNKNOWN")
		}
	case "image":
		c.blind = false
		c.leader().see()
	case "min_isr":
		c.changeMinISR(s.Value)
	case "start":
		c.start(s)
	case "start_both":
		w.startBoth(s)
	case "apply":
		n.apply(s)
	case "align":
		c.align()
	case "copy":
		c.copy(s)
	case "preview":
		c.preview(s)
	case "failover":
		c.failover(s)
	case "abandon":
		c.abandon()
	case "switchover":
		c.switchOver(s)
	case "pause":
		c.setState(core.Pause)
	case "resume":
		c.setState(core.Resume)
	case "delete_mirror":
		c.deleteMirror()
	case "trim":
		c.trim(s.Start)
	case "compact":
		c.compact()
	case "recreate":
		c.recreate(s)
	case "readdress":
		c.address = w.clusters[s.To]
	case "clock":
		w.now += types.Millis(s.Hours) * 3600 * 1000
	case "group_commit":
		c.groupCommit(s)
	case "group_sync":
		c.groupSync()
	case "vault_limit":
		n.room = s.Records
		if n.up {
			n.must(n.keeper.open(n.room))
		}
	case "lose_checkpoint":
		n.must(n.mem.Remove(logDir + "/" + topicName + "-0/timeline-checkpoint"))
	case "metadata_save":
		rec := c.record().Clone()
		c.saved = &rec
	case "metadata_restore":
		rec := c.saved.Clone()
		rec.Leader, rec.LeaderBrokerEpoch = types.NoBroker, 0
		c.put(rec)
	case "describe":
		c.tell("DESCRIBE", "promotions", c.describe())
	default:
		w.errorf("step %d: unknown operation %s", w.step, s.Op)
	}
}

// coreRules, nodeRules, mirrorRules and firstCutRules switch off what the product
// itself can switch off; the rest is done where the player stands between two parts of it.
func coreRules(mutation string) core.Rules {
	switch mutation {
	case "R20":
		return core.Rules{NoRealign: true}
	case "R24":
		return core.Rules{NoConsent: true}
	case "R24.root":
		return core.Rules{NoRootConsent: true}
	case "R25.path":
		return core.Rules{NoPath: true}
	case "R26.id":
		return core.Rules{NoIdentity: true}
	case "R26.probe":
		return core.Rules{NoProbe: true}
	case "R26.epoch":
		return core.Rules{NoEpochMemory: true}
	case "R27":
		return core.Rules{NoMirrorAhead: true}
	case "R28":
		return core.Rules{NoGapCheck: true}
	case "R28.given":
		return core.Rules{NoGivenUp: true}
	}
	return core.Rules{}
}

func nodeRules(mutation string) broker.VirtualRules {
	switch mutation {
	case "R3":
		return broker.VirtualRules{Log: log.Rules{KeepTrailingEntry: true}}
	case "R4":
		return broker.VirtualRules{Log: log.Rules{EpochAtBatch: true}}
	case "R10":
		return broker.VirtualRules{KeepsEpoch: true}
	}
	return broker.VirtualRules{}
}

func (c *cluster) mirrorRules(n *node) mirror.Rules {
	r := mirror.Rules{Core: coreRules(c.w.mutation), CheckpointBeforeCut: c.w.mutation == "R1.order"}
	r.Core.FirstCut = c.firstCutRules(n)
	return r
}

func (c *cluster) firstCutRules(n *node) timeline.Rules {
	switch c.w.mutation {
	case "R19":
		return timeline.Rules{NoCut: true}
	case "R19.each":
		return timeline.Rules{NoCut: n.id != c.adoptedBy}
	case "R19.offset":
		return timeline.Rules{EpochsOnly: true}
	case "R19.back":
		return timeline.Rules{BelieveOlder: true}
	case "R19.unknown":
		return timeline.Rules{UnknownIsEqual: true}
	}
	return timeline.Rules{}
}

var _ = meta.MirrorStarting
