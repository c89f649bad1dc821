package mirror

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"

	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
)

// TestAStartThatHasEnded: nothing begins to follow a start that was ordered to end, of
// which a cut may have been found without it; what this node hasn't heard of yet, or is
// about another start, ends nothing (I-260). Where it had heard of the start, another one is later.
func TestAStartThatHasEnded(t *testing.T) {
	f := func(rules Rules, heard bool, want, present, start string, ended bool) {
		t.Helper()
		n := newPaperNode(t, 1)
		m := &Mirrors{o: Options{Node: n, Rules: rules}}
		n.put(t, meta.KeysOf(paperCluster).Mirror("m"), meta.MirrorRecord{Name: "m", Want: want, StartID: present, Bootstrap: []string{"h:1"}}.Encode())
		holds, why := m.standing(part{Mirror: "m", StartID: start, heard: heard}, led{}, nil)
		if (why != nil) != ended || ended == (len(holds) > 0) && !rules.MadeUnasked {
			t.Errorf("%s in start %q, asked for %q, heard of %t: %v, %v", want, present, start, heard, holds, why)
		}
	}
	f(Rules{}, true, meta.WantRunning, "s2", "s2", false)
	f(Rules{}, true, meta.WantPaused, "s2", "s2", false)
	f(Rules{}, false, meta.WantStopped, "s1", "s2", false)
	f(Rules{}, true, meta.WantRunning, "s3", "s2", true)
	f(Rules{}, false, meta.WantStopped, "s2", "", false)
	f(Rules{}, true, meta.WantStopped, "s2", "s2", true)
	f(Rules{MadeUnasked: true}, true, meta.WantStopped, "s2", "s2", false)
	m := &Mirrors{o: Options{Node: newPaperNode(t, 1)}}
	if holds, ended := m.standing(part{Mirror: "m", StartID: "s2"}, led{}, nil); ended != nil || len(holds) != 1 {
		t.Error("a mirror that isn't there yet has ended")
	}
	if _, ended := m.standing(part{Mirror: "m", StartID: "s2", heard: true}, led{}, nil); ended == nil {
		t.Error("a mirror that was deleted has not ended")
	}
}

// TestAnAdoptionBesideAFailover: whoever hasn't heard that the mirror was failed over
// adopts nothing all the same, and takes no other partition's change along.
func TestAnAdoptionBesideAFailover(t *testing.T) {
	for _, isOrdered := range []bool{false, true} {
		n := newPaperNode(t, 2)
		key := meta.KeysOf(paperCluster).Mirror("m")
		running := meta.MirrorRecord{Name: "m", Want: meta.WantRunning, StartID: "s2", Bootstrap: []string{"h:1"}}
		n.put(t, key, running.Encode())
		m := &Mirrors{o: Options{Node: n}}
		holds, ended := m.standing(part{Mirror: "m", StartID: "s2", heard: true}, led{}, nil)
		if ended != nil {
			t.Fatal("ended")
		}
		adoption := n.paused(t, 0)
		adoption.beside = holds
		if isOrdered {
			running.Want = meta.WantStopped
			if _, err := n.commit(meta.Plan{Why: "fail over", Then: []meta.Op{meta.Put(key, running.Encode())}}); err != nil {
				t.Fatal(err)
			}
		}
		if got := n.write(t, adoption, n.paused(t, 1)); got[0] == isOrdered || !got[1] {
			t.Errorf("failed over %t: applied %v", isOrdered, got)
		}
	}
}

// TestAnAdoptionIsDecidedAnew: the mirror's record may be written while a start is under
// way, as at the first connect to its source. The start isn't refused for that, nor told
// twice; it is where others write each time.
func TestAnAdoptionIsDecidedAnew(t *testing.T) {
	for _, races := range []int{0, 1, commitTries - 1, commitTries} {
		n := newPaperNode(t, 2)
		key := meta.KeysOf(paperCluster).Mirror("m")
		rec := meta.MirrorRecord{Name: "m", Want: meta.WantRunning, StartID: "s2", Bootstrap: []string{"h:1"}}
		n.put(t, key, rec.Encode())
		ctx, end := context.WithCancel(t.Context())
		m := &Mirrors{o: Options{Node: n}, log: slog.New(slog.DiscardHandler), ctx: ctx}
		m.writer = newWriter(m)
		var work sync.WaitGroup
		work.Go(m.writer.loop)
		left := races
		n.refuse = func(p meta.Plan) error {
			if left > 0 && len(p.If) > 0 && slices.ContainsFunc(p.If, func(c meta.Compare) bool { return c.Key == key }) {
				left--
				rec.SourceClusterID = strconv.Itoa(left)
				_, err := n.commit(meta.Plan{Why: "the first connect", Then: []meta.Op{meta.Put(key, rec.Encode())}})
				return err
			}
			return nil
		}
		told, decided := 0, 0
		list := []led{{id: meta.PartitionID{Topic: paperTopic}}, {id: meta.PartitionID{Topic: paperTopic, Number: 1}}}
		out := []outcome{{}, {Reason: core.PlanRequired}}
		changes, err := m.settle(ctx, list, out, func(l led) (outcome, *awaited) {
			decided++
			adoption := n.paused(t, l.id.Number)
			adoption.beside, _ = m.standing(part{Mirror: "m", StartID: "s2", heard: true}, led{}, nil)
			adoption.tell = func() { told++ }
			return outcome{}, adoption
		})
		end()
		work.Wait()
		m.work.Wait()
		isLate := races == commitTries
		if err != nil || changes[0] == nil || changes[1] != nil || decided != min(races+1, commitTries) || out[1].Reason != core.PlanRequired {
			t.Errorf("%d races: %v; decided %d times, %+v", races, err, decided, out)
		}
		if (out[0].Reason == core.StaleRequest) != isLate || (told == 1) == isLate || changes[0].applied == isLate {
			t.Errorf("%d races: told %d times, applied %v, %+v", races, told, changes[0].applied, out)
		}
	}
}
