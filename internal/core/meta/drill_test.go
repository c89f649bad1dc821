package meta

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func putDrill(name, run, state string) Op {
	return Put(keys.Drill(name), DrillRecord{Name: name, Mirror: "m", Run: run, State: state, Broker: 1, BrokerEpoch: 5}.Encode())
}

func putDrillTopic(n int, name string, partitions int32, of DrillMark) []Op {
	return []Op{
		Put(keys.Topic(id(n)), TopicRecord{ID: id(n), Name: name, Partitions: partitions, Drill: &of}.Encode()),
		Put(keys.Name(name), NameRecord{ID: id(n)}.Encode()),
	}
}

// TestDrillsAreSeenWhole: nothing of a drill exists before its record says ready, then
// all of it does at once, and none of it from the moment on that it is dropped.
func TestDrillsAreSeenWhole(t *testing.T) {
	s, image := newStored(), Empty("c1")
	step := func(want string, ops ...Op) {
		t.Helper()
		var d Delta
		image, d = image.Apply(s.do(ops...))
		if got := d.summary(); got != want {
			t.Fatalf("delta %q, want %q", got, want)
		}
		if again, _ := Load("c1", s.snapshot(), s.revision); fingerprint(again) != fingerprint(image) {
			t.Fatal("a loaded image differs")
		}
	}
	seen := func(want int) {
		t.Helper()
		_, byName := image.TopicByName("drill.d.a")
		_, entry := image.PartitionEntry(id(1), 0)
		topics, partitions := len(slices.Collect(image.Topics())), len(slices.Collect(image.Partitions()))
		if byName != (want > 0) || entry != (want > 0) || topics != want || partitions != want+want/2 {
			t.Fatalf("%d topics and %d partitions are seen, by name %v, entry %v", topics, partitions, byName, entry)
		}
		if len(slices.Collect(image.Orphans())) > 0 {
			t.Fatal("its partitions are taken for what a creation left")
		}
		if dropped := image.IsDropped("drill.d.a"); dropped == (want > 0) {
			t.Fatalf("its data may go: %v", dropped)
		}
	}
	run := DrillMark{Name: "d", Run: "r1"}
	step("", putDrill("d", "r1", DrillMaking))
	step("", putDrillTopic(1, "drill.d.a", 2, run)...)
	step("", putPartition(1, 0), putPartition(1, 1))
	step("", append(putDrillTopic(2, "drill.d.b", 1, run), putPartition(2, 0))...)
	seen(0)
	if _, taken := image.NameEntry("drill.d.a"); !taken {
		t.Fatal("the name is free")
	}
	if n := len(slices.Collect(image.DrillTopics(run))); n != 2 {
		t.Fatalf("%d topics are known of the drill", n)
	}
	step("+drill.d.a +drill.d.b +p1/0 +p1/1 +p2/0", putDrill("d", "r1", DrillReady))
	seen(2)
	step("~p1/0", putPartition(1, 0))
	step("-drill.d.a -drill.d.b -p1/0 -p1/1 -p2/0", putDrill("d", "r1", DrillDropping))
	seen(0)
	// What an earlier drill left is not a later one's.
	step("", putDrill("d", "r2", DrillReady))
	seen(0)
	step("", Delete(keys.Drill("d")))
	seen(0)
	step("+drill.d.a +drill.d.b +p1/0 +p1/1 +p2/0", putDrill("d", "r1", DrillReady))
	step("~drill.d.a ~drill.d.b ~p1/0 ~p1/1 ~p2/0", append(slices.Concat(putDrillTopic(1, "drill.d.a", 2, run), putDrillTopic(2, "drill.d.b", 1, run)),
		putPartition(1, 0), putPartition(1, 1), putPartition(2, 0))...)
	step("-drill.d.a -drill.d.b -p1/0 -p1/1 -p2/0", Delete(keys.Drill("d")))
}

// TestADrillThatCantBeRead hides its topics and hurts nobody's data.
func TestADrillThatCantBeRead(t *testing.T) {
	s, image := newStored(), Empty("c1")
	run := DrillMark{Name: "d", Run: "r"}
	image, _ = image.Apply(s.do(append(putDrillTopic(1, "drill.d.a", 1, run), putPartition(1, 0), putDrill("d", "r", DrillReady))...))
	image, d := image.Apply(s.do(Put(keys.Drill("d"), []byte(`{"v":2}`))))
	if _, ok := image.TopicByName("drill.d.a"); !ok || strings.Contains(d.summary(), "drill.d.a") {
		t.Errorf("a topic that was there is gone: delta %q", d.summary())
	}
	fresh, _ := Load("c1", s.snapshot(), s.revision)
	if _, ok := fresh.TopicByName("drill.d.a"); ok || fresh.IsDropped("drill.d.a") {
		t.Error("seen, or its data may go")
	}
	if faults := slices.Collect(fresh.Faults()); len(faults) != 1 || !errors.Is(faults[0], ErrVersion) {
		t.Errorf("faults: %v", faults)
	}
	for _, bad := range []string{`{"v":1,"name":"d","run":"r","state":"ready","broker":1}`, `{"v":1,"name":"d","mirror":"m","run":"r","state":"gone","broker":1}`,
		`{"v":1,"name":"e","mirror":"m","run":"r","state":"ready","broker":1}`} {
		if _, err := DecodeDrill(keys.Drill("d"), []byte(bad)); !errors.Is(err, ErrValue) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
