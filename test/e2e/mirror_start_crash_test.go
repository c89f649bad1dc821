package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/await"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// oldPrimary is a cluster whose standby was promoted: it has two records that the new
// primary lacks, and a mirror "m" of that which was created and told to run.
func oldPrimary(t *testing.T, settings ...harness.Option) (a, b *side) {
	t.Helper()
	a, _ = startSideWith(t, "A", 1, settings...)
	b = startSide(t, "B", 1)
	a.createTopic(t, 1)
	a.write(t, 1, "first", 3)
	mirrorOf(t, b.any(), mirror.Spec{Bootstrap: a.addresses()})
	awaitCopy(t, a, b, 1)
	b.pauseMirror(t)
	clear(a.written)
	a.write(t, 1, "own", 2)
	b.failOver(t, 1)
	if err := a.any().Mirrors().Create(harness.Context(t), mirror.Spec{Name: "m", Bootstrap: b.addresses()}); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// putRecord makes a partition's record what a node wrote that then crashed: what change makes
// of the present one, anew where the node has written it meanwhile.
func putRecord(t *testing.T, b *harness.Broker, topic string, change func(*meta.PartitionRecord) (meta.PartitionRecord, error)) {
	t.Helper()
	named, _ := b.Image().TopicByName(topic)
	key := b.Image().Keys().Partition(named.ID, 0)
	await.NoError(t, harness.Patience, "the record of "+topic+" is written", func() error {
		e, ok := b.Image().PartitionEntry(named.ID, 0)
		if !ok {
			t.Fatal("no partition ", topic)
		}
		next, err := change(e.Record)
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Commit(harness.Context(t), meta.Plan{
			Why: "what a crash left", If: []meta.Compare{meta.ModRevisionIs(key, e.ModRevision)}, Then: []meta.Op{meta.Put(key, next.Encode())},
		})
		return err
	})
}

// interrupted makes A's partition what a failback leaves that a crash ended between its
// fence and its second look at the source. The node is stopped: beside a source that it can
// look at it may have ended the start before that. away, if not nil, takes the source away.
func interrupted(t *testing.T, a *side, away func()) {
	t.Helper()
	ctx, m := harness.Context(t), a.any().Mirrors()
	preview, err := m.Preview(ctx, "m", mirror.PreviewRequest{})
	if err != nil || preview.Records != 2 {
		t.Fatalf("preview: %+v, %v", preview, err)
	}
	if err := m.Start(ctx, "m"); err != nil {
		t.Fatal(err)
	}
	e, _ := a.any().Image().Mirror("m")
	if away != nil {
		away()
	}
	putRecord(t, a.any(), backTopic, func(rec *meta.PartitionRecord) (meta.PartitionRecord, error) {
		return core.FenceForStart(rec, core.StartRequest{Mirror: "m", StartID: e.Record.StartID, PlanID: preview.Partitions[0].PlanID}), nil
	})
	a.any().Stop(t)
}

func (s *side) restart(t *testing.T) {
	t.Helper()
	for id, n := range s.nodes {
		s.nodes[id] = n.Restart(t)
	}
}

// A start that a crash ended behind its fence goes on after the next start of the node,
// by the plan that it quoted.
func TestAnInterruptedStartGoesOn(t *testing.T) {
	a, b := oldPrimary(t)
	interrupted(t, a, nil)
	a.restart(t)
	awaitCopy(t, b, a, 1)
	for v := range a.written {
		a.cut[v] = true
	}
	a.checkVaults(t)
}

// Where the source can't be reached it doesn't go on, and back by itself only after ten looks:
// the operator may take it back, and nothing is lost.
func TestAnInterruptedStartCanBeAbandoned(t *testing.T) {
	a, b := oldPrimary(t, harness.WithSetting("mirror.retry.backoff.ms", "60000"), harness.WithSetting("mirror.retry.backoff.max.ms", "60000")) // ten looks take longer than the test
	before := a.any().LogBytes(t, backTopic, 0)
	interrupted(t, a, func() { b.any().Stop(t) })
	a.restart(t)
	op := operate(t, a.any())
	harness.Eventually(t, "the partition is closed", func() bool { return a.record(0).Mirror != nil && a.record(0).Mirror.State == meta.MirrorStarting })
	if out, _ := op.run("mirror", "abandon", "m", "--dry-run"); !strings.Contains(out, backTopic+"-0 would be writable again; nothing was cut") {
		t.Errorf("the dry run says %q", out)
	}
	if rec := a.record(0); rec.Writable {
		t.Error("the dry run opened it")
	}
	op.run("mirror", "abandon", "m", "--yes")
	harness.Eventually(t, "it is written again", func() bool { return a.record(0).Writable && a.logEnd(t, 0) == 5 })
	a.write(t, 1, "after", 1)
	if after := a.any().LogBytes(t, backTopic, 0); !strings.HasPrefix(string(after), string(before)) {
		t.Error("the log lost what it had")
	}
	if says := op.fails("mirror", "abandon", "m", "--dry-run"); !strings.Contains(says, "no start is under way") {
		t.Errorf("a second abandon: %s", says)
	}
}

// A crash behind the adoption and the first cut leaves a mirror that aligns: it goes on.
func TestAnInterruptedAlignmentGoesOn(t *testing.T) {
	a, b := oldPrimary(t)
	ctx, m := harness.Context(t), a.any().Mirrors()
	p, err := m.Failback(ctx, "m", mirror.FailbackRequest{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Failback(ctx, "m", mirror.FailbackRequest{Plan: p.Plan}); err != nil {
		t.Fatal(err)
	}
	a.restart(t) // wherever it was: adopted, cut, or copying
	harness.Eventually(t, "it mirrors the new primary, byte for byte", func() bool {
		rec := a.record(0)
		return rec.Mirror != nil && rec.Mirror.State == meta.MirrorMirroring && a.logEnd(t, 0) == 3 &&
			bytes.Equal(a.any().LogBytes(t, backTopic, 0), b.any().LogBytes(t, backTopic, 0))
	})
	for v := range a.written {
		a.cut[v] = true
	}
	a.checkVaults(t)
}

// What a switchover closed and did not open stays closed over a restart, until the
// operator opens it.
func TestReopen(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "t", 1, nil)
	b.CreateTopic(t, "other", 1, nil)
	b.Produce(t, "t", 0, "a")
	putRecord(t, b, "t", func(rec *meta.PartitionRecord) (meta.PartitionRecord, error) {
		return core.CloseForSwitchover(rec, meta.Fence{ClusterID: "standby", StartID: "s1", At: 7})
	})
	b = b.Restart(t)
	harness.Eventually(t, "the partition is led and closed", func() bool {
		r := b.RecordOf("t", 0)
		return r.Fence != nil && r.Leader == b.NodeID()
	})
	writer := b.Client(t, kgo.DefaultProduceTopic("t"), kgo.RecordRetries(1))
	if err := writer.ProduceSync(harness.Context(t), kgo.StringRecord("refused")).FirstErr(); err == nil {
		t.Fatal("it took a write")
	}
	op := operate(t, b)
	if out, _ := op.run("mirror", "reopen", "--dry-run"); !strings.Contains(out, "t-0 would take clients' writes again; start s1 of cluster standby closed it") {
		t.Errorf("the dry run says %q", out)
	}
	if says := op.fails("mirror", "reopen", "--topic", "other", "--yes"); !strings.Contains(says, "no partition is closed") {
		t.Errorf("another topic: %s", says)
	}
	if b.RecordOf("t", 0).Fence == nil {
		t.Fatal("it was opened without being asked")
	}
	op.run("mirror", "reopen", "--topic", "t", "--yes")
	b.Produce(t, "t", 0, "b")
	if got := b.Consume(t, "t", 0, 0, 2); got[1] != "b" {
		t.Errorf("reads %q", got)
	}
	if _, err := b.Mirrors().Reopen(harness.Context(t), nil); !errors.Is(err, mirror.ErrState) {
		t.Errorf("opened twice: %v", err)
	}
	// One that nobody leads stays closed, and that is told, whatever else was opened.
	for i, topic := range []string{"t", "other"} {
		putRecord(t, b, topic, func(rec *meta.PartitionRecord) (meta.PartitionRecord, error) {
			closed, err := core.CloseForSwitchover(rec, meta.Fence{ClusterID: "standby", StartID: "s2", At: 8})
			if i == 1 {
				closed.Replicas = append(closed.Replicas, 99)
				closed.Leader, closed.LeaderBrokerEpoch, closed.ISR = types.NoBroker, 0, []meta.ISRMember{{ID: 99, BrokerEpoch: 1}}
			}
			return closed, err
		})
	}
	harness.Eventually(t, "both are closed", func() bool {
		a, o := b.RecordOf("t", 0), b.RecordOf("other", 0)
		return a != nil && o != nil && a.Fence != nil && o.Fence != nil && o.Leader != b.NodeID()
	})
	words, err := b.Mirrors().Reopen(harness.Context(t), nil)
	if len(words) != 1 || err == nil || !strings.Contains(err.Error(), "other-0 is still closed for a switchover: no leader of it has answered") {
		t.Errorf("it opened %q, and says of the other one: %v", words, err)
	}
}

// A partition that stands at a gap goes on behind it by an operator's word, once; what
// it held is in the vault.
func TestAcceptGap(t *testing.T) {
	src := harness.StartBroker(t)
	src.CreateTopic(t, "t", 1, nil)
	src.Produce(t, "t", 0, "0", "1")
	standby := startStandby(t)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{src.Addr}, Settings: map[string]string{"gap.policy": "fail"}})
	awaitEnd(t, standby, "t", 0, 2)
	op := operate(t, standby)
	if says := op.fails("mirror", "accept-gap", "m", "--yes"); !strings.Contains(says, "no partition stands at a gap") {
		t.Errorf("without a gap: %s", says)
	}
	gap := func(from int64, end int64) {
		t.Helper()
		if err := standby.Mirrors().Pause(harness.Context(t), "m"); err != nil {
			t.Fatal(err)
		}
		src.Produce(t, "t", 0, fmt.Sprint(int64(end)), fmt.Sprint(int64(end)+1), fmt.Sprint(int64(end)+2))
		offsets := kadm.Offsets{}
		offsets.Add(kadm.Offset{Topic: "t", Partition: 0, At: from})
		if _, err := src.Admin(t).DeleteRecords(harness.Context(t), offsets); err != nil {
			t.Fatal(err)
		}
		if err := standby.Mirrors().Resume(harness.Context(t), "m"); err != nil {
			t.Fatal(err)
		}
		if p := awaitReason(t, standby, "t", 0, core.SourceGap); int64(p.End) != end {
			t.Fatalf("at the gap: %+v", p)
		}
	}
	gap(4, 2)
	if out, _ := op.run("mirror", "accept-gap", "m", "--dry-run"); !strings.Contains(out, "t-0 would go on behind the gap, once") || !strings.Contains(out, "2-3") {
		t.Errorf("the dry run says %q", out)
	}
	if p := statusOf(t, standby, "t", 0); p.End != 2 {
		t.Errorf("the dry run went on: %+v", p)
	}
	op.run("mirror", "accept-gap", "m", "--topic", "t", "--yes")
	awaitEnd(t, standby, "t", 0, 5)
	if got := standby.Consume(t, "t", 0, 4, 1); got[0] != "4" {
		t.Errorf("reads %q", got)
	}
	entries, err := standby.Vault().List()
	if err != nil || len(entries) != 1 || entries[0].Records != 2 || entries[0].From != 0 || entries[0].To != 2 {
		t.Errorf("the vault has %+v (%v)", entries, err)
	}
	gap(7, 5) // the next gap is another decision
	if p := statusOf(t, standby, "t", 0); p.End != 5 {
		t.Errorf("the second gap was passed: %+v", p)
	}
}

// What the plain verbs would do is said, and refused where the verb is.
func TestDryRunsOfPlainVerbs(t *testing.T) {
	src := harness.StartBroker(t)
	src.CreateTopic(t, "t", 1, nil)
	standby := startStandby(t)
	op := operate(t, standby)
	if err := standby.Mirrors().Create(harness.Context(t), mirror.Spec{Name: "m", Bootstrap: []string{src.Addr}}); err != nil {
		t.Fatal(err)
	}
	says := func(want string, args ...string) {
		t.Helper()
		if _, got := op.run(append(append([]string{"mirror"}, args...), "--dry-run")...); !strings.Contains(got, want) || !strings.Contains(got, "nothing was changed") {
			t.Errorf("%v says %q, want %q", args, got, want)
		}
	}
	refuses := func(want string, args ...string) {
		t.Helper()
		if got := op.fails(append(append([]string{"mirror"}, args...), "--dry-run")...); !strings.Contains(got, want) {
			t.Errorf("%v is refused with %q, want %q", args, got, want)
		}
	}
	says("would be started", "start", "m")
	says("would be forgotten", "delete", "m")
	refuses("only a running mirror can be paused", "pause", "m")
	if st := status(t, standby); st.State != "CREATED" {
		t.Fatalf("dry runs changed it: %+v", st)
	}
	op.run("mirror", "start", "m")
	awaitEnd(t, standby, "t", 0, 0)
	says("would stop copying", "pause", "m")
	says("is running already", "resume", "m")
	refuses("fail it over first", "delete", "m")
	if st := status(t, standby); st.State != "RUNNING" {
		t.Fatalf("dry runs changed it: %+v", st)
	}
	op.run("mirror", "pause", "m")
	says("would go on copying", "resume", "m")
	refuses("resume it", "start", "m")
	refuses("only of a running mirror", "drill", "m", "d")
}
