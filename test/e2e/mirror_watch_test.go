package e2e

import (
	"slices"
	"strings"
	"testing"

	"tidemark/internal/broker/mirror"
	"tidemark/test/e2e/harness"
)

func eventsOf(b *harness.Broker, kind string) (out []mirror.Event) {
	for _, e := range b.Mirrors().Events() {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

// After a failover the old source may come back with what was not taken; what it takes from then on is an alarm.
func TestOldSourceGoesOn(t *testing.T) {
	source := harness.StartBroker(t)
	at := newProxy(t, source.Addr)
	standby := startStandby(t, harness.WithSetting("mirror.watch.source.ms", "100"))
	source.CreateTopic(t, "t", 1, nil)
	source.CreateTopic(t, "quiet", 1, nil)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{at.ln.Addr().String()}})
	source.Produce(t, "t", 0, "0", "1")
	source.Produce(t, "quiet", 0, "0")
	awaitEnd(t, standby, "t", 0, 2)
	awaitEnd(t, standby, "quiet", 0, 1)
	if err := standby.Mirrors().Pause(harness.Context(t), "m"); err != nil {
		t.Fatal(err)
	}
	source.Produce(t, "t", 0, "2 not taken", "3 not taken")
	source.Stop(t)
	if st := failover(t, standby); st.Reason != "" {
		t.Errorf("status right after the failover: %+v", st)
	}

	source = source.Restart(t)
	at.setTarget(source.Addr)
	harness.Eventually(t, "the old source is seen again", func() bool { return len(eventsOf(standby, mirror.SourceAhead)) > 0 })
	if e := eventsOf(standby, mirror.SourceAhead)[0]; e.Topic != "t" || e.From != 2 || e.To != 4 || e.Records != 2 {
		t.Errorf("ahead: %+v", e)
	}
	if got := eventsOf(standby, mirror.SplitBrain); len(got) != 0 {
		t.Errorf("an alarm without a move: %+v", got)
	}

	// The watch remembers over a restart where the source ended.
	standby = standby.Restart(t)
	source.Produce(t, "t", 0, "4 split")
	harness.Eventually(t, "the alarm", func() bool { return statusOf(t, standby, "t", 0).SplitBrain != nil })
	harness.Eventually(t, "the alarm's event", func() bool { return len(eventsOf(standby, mirror.SplitBrain)) > 0 })
	if a := statusOf(t, standby, "t", 0).SplitBrain; a.From != 4 || a.To != 5 || a.FirstAt <= 0 {
		t.Errorf("alarm: %+v", a)
	}
	if p := statusOf(t, standby, "quiet", 0); p.SplitBrain != nil {
		t.Errorf("a quiet partition is alarmed: %+v", p)
	}
	if st := status(t, standby); !strings.Contains(st.Reason, "split brain") || st.State != "STOPPED" {
		t.Errorf("status: %+v", st)
	}
	source.Produce(t, "t", 0, "5 split")
	harness.Eventually(t, "the range grows", func() bool {
		a := statusOf(t, standby, "t", 0).SplitBrain
		return a != nil && a.From == 4 && a.To == 6
	})
	if n := len(eventsOf(standby, mirror.SplitBrain)); n != 1 {
		t.Errorf("%d events in a minute", n)
	}
}

// Records whose time is after the failover are an alarm at the first look.
func TestOldSourceNeverStopped(t *testing.T) {
	source := harness.StartBroker(t)
	standby := startStandby(t, harness.WithSetting("mirror.watch.source.ms", "600000"))
	source.CreateTopic(t, "t", 1, nil)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}})
	source.Produce(t, "t", 0, "0")
	awaitEnd(t, standby, "t", 0, 1)
	failover(t, standby)
	source.Produce(t, "t", 0, "1 split")
	op := operate(t, standby)
	stdout, _ := op.run("mirror", "alter", "m", "-c", "mirror.watch.source.ms=50", "--yes")
	if !strings.Contains(stdout, "mirror.watch.source.ms") {
		t.Error(stdout)
	}
	standby = standby.Restart(t) // the loop sleeps for ten minutes otherwise
	harness.Eventually(t, "the alarm", func() bool {
		a := statusOf(t, standby, "t", 0).SplitBrain
		return a != nil && a.From == 1 && a.To == 2
	})
}

// An alteration is shown before it is made, and takes hold without a restart.
func TestMirrorAlter(t *testing.T) {
	source := harness.StartBroker(t)
	standby := startStandby(t)
	source.CreateTopic(t, "a", 1, nil)
	source.CreateTopic(t, "b", 1, nil)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}, Topics: "a"})
	source.Produce(t, "a", 0, "0")
	source.Produce(t, "b", 0, "0")
	awaitEnd(t, standby, "a", 0, 1)
	op := operate(t, standby)
	var done mirror.Altered
	op.json(&done, "mirror", "alter", "m", "--topics", "b", "-c", "gap.policy=continue", "--dry-run")
	if !done.DryRun || len(done.Changes) != 2 || len(done.Warnings) != 1 || !strings.Contains(done.Warnings[0], "topic a") {
		t.Fatalf("%+v", done)
	}
	if said := op.fails("mirror", "alter", "m", "--topics", "(", "--yes"); !strings.Contains(said, "RE2") {
		t.Error(said)
	}
	if said := op.fails("mirror", "alter", "m", "-c", "no.such=1", "--yes"); !strings.Contains(said, "no.such") {
		t.Error(said)
	}
	if said := op.fails("mirror", "alter", "m", "--topics", "b"); !strings.Contains(said, "--yes") {
		t.Error(said)
	}
	op.json(&done, "mirror", "alter", "m", "--topics", "a|b", "-c", "gap.policy=continue", "--yes")
	if done.DryRun || len(done.Changes) != 2 || len(done.Warnings) != 0 {
		t.Errorf("%+v", done)
	}
	awaitEnd(t, standby, "b", 0, 1)
	op.json(&done, "mirror", "alter", "m", "--unset", "gap.policy", "--yes")
	if !slices.Contains(done.Changes, `setting gap.policy: "continue" goes back to the node's`) {
		t.Errorf("%+v", done)
	}
}
