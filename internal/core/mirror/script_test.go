package mirror

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/modellog"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

var testTopic = types.TopicID{1, 2, 3}

func testPolicy() Policy {
	return Policy{ClusterID: "B", TopicID: testTopic, Me: 1, BrokerEpoch: 11, EpochHeadroom: 0}
}

// TestScripts tells a mirror's life: commands move the source and the world,
// the output is every effect in its order.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		w := newWorld(testPolicy())
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.script.Reset()
			if err := w.command(t, d); err != nil {
				d.Fatalf(t, "%v", err)
			}
			if w.problem != nil {
				d.Fatalf(t, "%v", w.problem)
			}
			return w.script.String()
		})
	})
}

func (w *world) command(t *testing.T, d *datadriven.TestData) error {
	switch d.Cmd {
	case "policy":
		w.setPolicy(t, d)
	case "source":
		w.setSource(t, d)
	case "produce":
		n, tag := 1, "a"
		d.MaybeScanArgs(t, "n", &n)
		d.MaybeScanArgs(t, "tag", &tag)
		for range n {
			w.source.Write(w.source.epoch, tag)
		}
	case "elect":
		e, end := int(w.source.epoch)+1, int(w.source.End)
		d.MaybeScanArgs(t, "epoch", &e)
		d.MaybeScanArgs(t, "end", &end)
		w.source.elect(types.LeaderEpoch(e), types.Offset(end))
	case "trim":
		var start int
		d.ScanArgs(t, "start", &start)
		w.source.RaiseStart(types.Offset(start), true)
	case "compact":
		var keep []string
		for _, a := range d.CmdArgs {
			keep = append(keep, a.Vals...)
		}
		w.compact(keep)
	case "compacted": // the mirror's own log, up to an offset
		var upto int
		d.ScanArgs(t, "upto", &upto)
		w.cleaned = types.Offset(upto)
	case "history":
		w.setHistory(t, d)
	case "show":
		w.show()
	case "settle":
		return w.settleCommand(d)
	case "answer":
		n := 1
		d.MaybeScanArgs(t, "n", &n)
		for range n {
			w.answerNext(true)
		}
	case "refuse":
		w.refuse++
	case "fail-log":
		w.failLog = Reason(d.CmdArgs[0].Key)
	case "event":
		return w.event(t, d)
	case "verb":
		return w.verb(t, d)
	case "state":
	default:
		return fmt.Errorf("unknown command %s", d.Cmd)
	}
	if d.Cmd == "state" || d.HasArg("state") {
		w.printState()
	}
	return nil
}

// setHistory makes the source's history another one than its records imply.
func (w *world) setHistory(t *testing.T, d *datadriven.TestData) {
	w.source.History.Clear()
	for line := range strings.Lines(d.Input) {
		var e types.LeaderEpoch
		var start types.Offset
		if _, err := fmt.Sscan(line, (*int32)(&e), (*int64)(&start)); err != nil {
			d.Fatalf(t, "%v", err)
		}
		if _, err := w.source.History.Assign(e, start); err != nil {
			d.Fatalf(t, "%v", err)
		}
	}
}

func (w *world) settleCommand(d *datadriven.TestData) error {
	if !w.settle(200, !d.HasArg("through-backoff")) {
		return fmt.Errorf("does not settle")
	}
	return nil
}

func (w *world) setPolicy(t *testing.T, d *datadriven.TestData) {
	var headroom, seen, retention int
	d.MaybeScanArgs(t, "headroom", &headroom)
	d.MaybeScanArgs(t, "seen-every", &seen)
	d.MaybeScanArgs(t, "delete-retention", &retention)
	w.policy.EpochHeadroom, w.policy.SeenEvery, w.policy.DeleteRetention = int32(headroom), types.Millis(seen), types.Millis(retention)
	w.policy.Compacted = retention > 0
	w.policy.ContinueOverGaps = d.HasArg("continue")
	w.step(PolicyChanged{Policy: w.policy})
}

func (w *world) setSource(t *testing.T, d *datadriven.TestData) {
	d.MaybeScanArgs(t, "cluster", &w.source.cluster)
	var topic, epoch int
	if d.MaybeScanArgs(t, "topic", &topic); topic != 0 {
		w.source.topic = types.TopicID{byte(topic)}
	}
	if d.MaybeScanArgs(t, "epoch", &epoch); epoch != 0 {
		w.source.Log, w.source.epoch = modellog.Log{}, types.LeaderEpoch(epoch)
		w.source.Lead(w.source.epoch)
	}
	if d.HasArg("down") || d.HasArg("up") {
		w.source.down = d.HasArg("down")
	}
	if d.HasArg("mirror") {
		w.source.isMirror = true
	}
	var gone int
	if d.MaybeScanArgs(t, "gone", &gone); gone > 0 { // its leader loses a tail in its epoch
		w.source.Cut(types.Offset(gone))
	}
	var path string
	if d.MaybeScanArgs(t, "path", &path); path != "" {
		w.source.path = strings.Split(path, "+")
	}
	if d.Input != "" {
		w.source.timelines = nil
		for line := range strings.Lines(d.Input) {
			var e timeline.Entry
			if _, err := fmt.Sscan(line, &e.ID, (*int32)(&e.FirstEpoch), (*int64)(&e.FirstOffset)); err != nil {
				d.Fatalf(t, "%v", err)
			}
			w.source.timelines = append(w.source.timelines, e)
		}
	}
}

// compact leaves only the named offsets and the last record.
func (w *world) compact(keep []string) {
	var left []modellog.Record
	for i, r := range w.source.Records {
		for _, k := range keep {
			if fmt.Sprint(r.Offset) == k {
				left = append(left, r)
			}
		}
		_ = i
	}
	w.source.Records = left
}

func (w *world) event(t *testing.T, d *datadriven.TestData) error {
	switch d.CmdArgs[0].Key {
	case "retry":
		w.pending = nil
		w.step(RetryNow{})
	case "tick":
		var after int
		d.MaybeScanArgs(t, "after", &after)
		w.now += types.Millis(after)
		w.step(Tick{})
	case "refreshed":
		w.step(Refreshed{Source: w.source.look()})
	case "lost-leadership":
		rec := w.rec.Clone()
		w.step(RecordShown{Record: &rec, Leading: false})
	case "restarted":
		w.machine, w.pending = New(w.policy), nil
		w.show()
	case "probe-lies":
		w.probeLie = true
	case "isr":
		var n, min int
		d.ScanArgs(t, "n", &n)
		d.ScanArgs(t, "min", &min)
		w.rec.ISR = nil
		for i := range n {
			w.rec.ISR = append(w.rec.ISR, meta.ISRMember{ID: types.BrokerID(i + 1), BrokerEpoch: 11})
		}
		w.rec.Replicas = nil
		for i := range max(min, 1) {
			w.rec.Replicas = append(w.rec.Replicas, w.policy.Me+types.BrokerID(i))
		}
		w.rec.MinISR, w.fetched = min, d.HasArg("fetched")
		w.show()
	default:
		return fmt.Errorf("unknown event %s", d.CmdArgs[0].Key)
	}
	return nil
}

func (w *world) verb(t *testing.T, d *datadriven.TestData) error {
	var rec meta.PartitionRecord
	var err error
	switch verb := d.CmdArgs[0].Key; verb {
	case "pause":
		rec, err = Pause(&w.rec)
	case "resume":
		rec, err = Resume(&w.rec)
	case "start":
		id := "s2"
		d.MaybeScanArgs(t, "id", &id)
		rec, err = Start(&w.rec, StartRequest{Mirror: "standby", StartID: id, Own: w.view()})
	case "promote":
		return w.promote(t, d)
	case "write":
		w.own.Lead(w.rec.LeaderEpoch)
		w.own.Write(w.rec.LeaderEpoch, "b")
		return nil
	default:
		return fmt.Errorf("unknown verb %s", verb)
	}
	if err != nil {
		fmt.Fprintf(&w.script, "%v\n", err)
		return nil
	}
	w.rec = rec
	fmt.Fprintf(&w.script, "%s\n", describe(&w.rec))
	w.show()
	return nil
}

func (w *world) promote(t *testing.T, d *datadriven.TestData) error {
	r := PromoteRequest{TimelineID: "P1", Step: 1024, Now: w.now, Own: w.view()}
	d.MaybeScanArgs(t, "start", &r.StartID)
	d.MaybeScanArgs(t, "id", &r.TimelineID)
	if !d.HasArg("no-machine") {
		f := w.machine.Facts()
		r.Facts = &f
	}
	p, err := Promote(&w.rec, r)
	if err != nil {
		fmt.Fprintf(&w.script, "%v\n", err)
		return nil
	}
	made := p.Made
	if p.Outcome == AlreadyPromoted {
		fmt.Fprintf(&w.script, "already promoted: start %s, epoch %d, mirror again %q\n", made.StartID, made.PromotedEpoch, p.MirrorAgain)
		return nil
	}
	from, to, known := Missing(made)
	fmt.Fprintf(&w.script, "promoted: start %s, epoch %d, last mirrored epoch %d, log end %d, last mirrored offset %d, may be missing %d-%d (known %v)\n",
		made.StartID, made.PromotedEpoch, made.LastMirroredEpoch, made.LogEnd, LastMirroredOffset(made), from, to, known)
	w.rec = p.Record
	w.own.Lead(w.rec.LeaderEpoch)
	w.show()
	return nil
}

func (w *world) printState() {
	s := w.machine.Status(w.now, w.view())
	fmt.Fprintf(&w.script, "record: %s\n", describe(&w.rec))
	fmt.Fprintf(&w.script, "source: %v\n", &w.source.Log)
	fmt.Fprintf(&w.script, "own:    %v, history %v\n", &w.own, &w.own.History)
	fmt.Fprintf(&w.script, "status: %s%s, %s, lag %d\n", s.State, spaced(string(s.Reason)), s.Phase, s.Lag.Records)
	for _, v := range w.vault {
		fmt.Fprintf(&w.script, "vault:  %s %s\n", v.cause, modellog.Print(v.records))
	}
}
