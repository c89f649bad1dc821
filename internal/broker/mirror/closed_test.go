package mirror

import (
	"log/slog"
	"strings"
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// TestWhatASwitchoverLeftClosed names the partitions, for how long, and the commands, once a
// switchover can't be expected to open them by itself.
func TestWhatASwitchoverLeftClosed(t *testing.T) {
	n := newPaperNode(t, 3)
	keys := meta.KeysOf(paperCluster)
	n.put(t, keys.Name("t"), meta.NameRecord{ID: paperTopic}.Encode())
	if got := ClosedForSwitchover(n.Image(), 1); got == nil || len(got) > 0 {
		t.Errorf("nothing is closed, and it says %+v", got)
	}
	for i, f := range []meta.Fence{{ClusterID: "other", StartID: "s", At: 2000}, {ClusterID: "other", StartID: "s", At: 1000}, {ClusterID: "third", StartID: "z", At: 500}} {
		rec, rev := n.Image().Partition(paperTopic, int32(i))
		next := rec.Clone()
		next.Mirror, next.Writable, next.Fence, next.Timelines = nil, false, &f, timeline.FreshRoot("x")
		key := keys.Partition(paperTopic, int32(i))
		if _, err := n.commit(meta.Plan{Why: "test", If: []meta.Compare{meta.ModRevisionIs(key, rev)}, Then: []meta.Op{meta.Put(key, next.Encode())}}); err != nil {
			t.Fatal(err)
		}
	}
	got := ClosedForSwitchover(n.Image(), 5000)
	if len(got) != 2 || got[0].ClusterID != "third" || strings.Join(got[1].Partitions, " ") != "t-0 t-1" || got[1].Since != 1000 {
		t.Fatalf("%+v", got)
	}
	if m := got[1].Message; !strings.Contains(m, "2 partitions are closed") || !strings.Contains(m, "(for 4000 ms)") || strings.Contains(m, "reopen") {
		t.Errorf("of a switchover that may be under way: %q", m)
	}
	m := ClosedForSwitchover(n.Image(), 1000+10*60_000)[1].Message
	for _, want := range []string{"(for 10m0s)", "cluster other: t-0, t-1", "`tidemark mirror reopen --topic t`", "`tidemark mirror failback NAME --topic t`"} {
		if !strings.Contains(m, want) {
			t.Errorf("%q lacks %q", m, want)
		}
	}
	if got := reopenCommand(make([]string, topicsShown+1)); got != "tidemark mirror reopen --topic T …" {
		t.Errorf("of many topics: %q", got)
	}
}

// TestFencesAreTold on the side that they close, once.
func TestFencesAreTold(t *testing.T) {
	m := &Mirrors{o: Options{Node: timedScript{scriptedNode{newPaperNode(t, 1)}}}, log: slog.New(slog.DiscardHandler), events: newJournal(1, nil, nil, nil)}
	tp := types.TopicPartition{Topic: "t"}
	m.tellFences([]fenced{{TopicPartition: tp, closed: true}, {TopicPartition: types.TopicPartition{Topic: "u"}}}, "start s of cluster c")
	m.tellFences([]fenced{{TopicPartition: tp}}, "asked again")
	m.tellFences([]fenced{{TopicPartition: tp, Opened: true}}, "an operator's order to reopen")
	list := m.events.list()
	if len(list) != 2 || list[0].Kind != ClosedToWrites || list[0].Message != "1 partitions were closed to clients' writes for a switchover (start s of cluster c): t-0" ||
		list[1].Kind != OpenedToWrites || list[1].Message != "1 partitions take clients' writes again (an operator's order to reopen): t-0" {
		t.Errorf("it tells %+v", list)
	}
}

// TestAWayBackNamesWhatStaysClosed: a topic that was failed over alone during a switchover
// that went back has its copy written here; its source stays as it is.
func TestAWayBackNamesWhatStaysClosed(t *testing.T) {
	_, n, s := newAttempt(t, meta.LevelAttempts)
	if got := s.m.stayClosedWords("m", "s", 1); got != "" {
		t.Errorf("nothing was failed over, and it says %q", got)
	}
	rec, rev := n.Image().Partition(paperTopic, 0)
	next := rec.Clone()
	next.Timelines, next.Mirror.State = timeline.FreshRoot("x"), meta.MirrorStopped
	next.Writable, next.Promotions = true, []meta.PromotionRecord{{StartID: "s", Mirror: "m", At: 5}}
	key := meta.KeysOf(paperCluster).Partition(paperTopic, 0)
	if _, err := n.commit(meta.Plan{Why: "test", If: []meta.Compare{meta.ModRevisionIs(key, rev)}, Then: []meta.Op{meta.Put(key, next.Encode())}}); err != nil {
		t.Fatal(err)
	}
	if got := s.m.stayClosedWords("m", "s", 1); !strings.Contains(got, "(t-0)") || !strings.Contains(got, "`tidemark mirror reopen --topic t`") {
		t.Errorf("it says %q", got)
	}
	for name, got := range map[string]string{"an earlier start": s.m.stayClosedWords("m", "r", 1), "before the switchover": s.m.stayClosedWords("m", "s", 6)} {
		if got != "" {
			t.Errorf("of what was promoted under %s it says %q", name, got)
		}
	}
}
