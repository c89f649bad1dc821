package meta

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// stored plays the store: it turns puts and deletes into events with revisions.
type stored struct {
	kvs      map[string]KV
	revision Revision
}

func newStored() *stored { return &stored{kvs: make(map[string]KV), revision: 1} }

func (s *stored) do(ops ...Op) Events {
	s.revision++
	out := Events{Revision: s.revision}
	for _, op := range ops {
		switch op.Kind {
		case OpPut:
			kv := KV{Key: op.Key, Value: op.Value, CreateRevision: s.revision, ModRevision: s.revision}
			if old, ok := s.kvs[op.Key]; ok {
				kv.CreateRevision = old.CreateRevision
			}
			s.kvs[op.Key] = kv
			out.Events = append(out.Events, Event{Kind: EventPut, KV: kv})
		case OpDelete:
			if _, ok := s.kvs[op.Key]; ok {
				delete(s.kvs, op.Key)
				out.Events = append(out.Events, Event{Kind: EventDelete, KV: KV{Key: op.Key, ModRevision: s.revision}})
			}
		}
	}
	return out
}

func (s *stored) snapshot() []KV {
	var kvs []KV
	for _, key := range slices.Sorted(maps.Keys(s.kvs)) {
		kvs = append(kvs, s.kvs[key])
	}
	return kvs
}

func id(n int) types.TopicID { return types.TopicID{byte(n >> 8), byte(n), 1} }

func simplePartition() PartitionRecord {
	return PartitionRecord{Replicas: []types.BrokerID{1}, ISR: []ISRMember{{1, 5}}, Leader: 1, LeaderBrokerEpoch: 5, MinISR: 1,
		Timelines: timeline.List{{ID: "root"}}, Writable: true}
}

var keys = KeysOf("c1")

func putTopic(n int, name string, partitions int32) []Op {
	return []Op{
		Put(keys.Topic(id(n)), TopicRecord{ID: id(n), Name: name, Partitions: partitions}.Encode()),
		Put(keys.Name(name), NameRecord{ID: id(n)}.Encode()),
	}
}

func putPartition(n int, p int32) Op {
	return Put(keys.Partition(id(n), p), simplePartition().Encode())
}

// summary lists a delta in a few words: + created, ~ changed, - deleted.
func (d Delta) summary() string {
	var out []string
	note := func(created, deleted bool, what string) {
		sign := "~"
		if created {
			sign = "+"
		} else if deleted {
			sign = "-"
		}
		out = append(out, sign+what)
	}
	for _, c := range d.Topics {
		e := c.New
		if e == nil {
			e = c.Old
		}
		note(c.Created(), c.Deleted(), e.Record.Name)
	}
	for _, c := range d.Partitions {
		e := c.New
		if e == nil {
			e = c.Old
		}
		what := fmt.Sprintf("p%d/%d", e.ID.Topic[1], e.ID.Number)
		if e.Fault != nil {
			what += "!"
		}
		note(c.Created(), c.Deleted(), what)
	}
	for _, c := range d.Brokers {
		note(c.Created(), c.Deleted(), "broker")
	}
	for _, c := range d.Mirrors {
		note(c.Created(), c.Deleted(), "mirror")
	}
	for _, c := range d.BrokerConfigs {
		note(c.Created(), c.Deleted(), "configs")
	}
	return strings.Join(out, " ")
}

func TestApply(t *testing.T) {
	s, image := newStored(), Empty("c1")
	step := func(want string, ops ...Op) {
		t.Helper()
		before := image
		var d Delta
		image, d = image.Apply(s.do(ops...))
		if got := d.summary(); got != want {
			t.Fatalf("delta %q, want %q", got, want)
		}
		if d.IsEmpty() != (want == "") || image.Revision() != s.revision || d.Revision != s.revision || before.Revision() >= image.Revision() {
			t.Fatalf("revision %d after %d, delta of %d (empty: %v), store at %d", image.Revision(), before.Revision(), d.Revision, d.IsEmpty(), s.revision)
		}
	}
	step("+broker", Put(keys.Broker(1), BrokerRecord{ID: 1, CleanShutdownEpoch: -1}.Encode()))
	if epoch, ok := image.BrokerEpoch(1); !ok || epoch != types.BrokerEpoch(s.revision) {
		t.Fatalf("broker epoch %d, %v", epoch, ok)
	}
	step("+a +p1/0 +p1/1", append(putTopic(1, "a", 2), putPartition(1, 0), putPartition(1, 1))...)
	step("~p1/1", putPartition(1, 1))
	if rec, rev := image.Partition(id(1), 1); rec == nil || rev != s.revision {
		t.Fatalf("partition %v at %d", rec, rev)
	}
	if rec, rev := image.Partition(id(1), 2); rec != nil || rev != 0 {
		t.Fatalf("partition %v at %d", rec, rev)
	}
	// A partition beyond the count doesn't exist until the count says so.
	step("", putPartition(1, 2))
	if _, ok := image.PartitionEntry(id(1), 2); ok || image.PartitionKeyRevision(id(1), 2) != s.revision {
		t.Fatal("it exists too early, or its key is unknown")
	}
	if orphans := slices.Collect(image.Orphans()); !slices.Equal(orphans, []PartitionID{{id(1), 2}}) {
		t.Fatalf("orphans %v", orphans)
	}
	step("~a +p1/2", putTopic(1, "a", 3)...)
	// Partitions of a topic that isn't there don't exist, and it is known all the same.
	step("", putPartition(2, 0), putPartition(2, 1))
	if !image.Known(id(2)) || image.Known(id(3)) {
		t.Fatal("known")
	}
	step("+b +p2/0 +p2/1", putTopic(2, "b", 2)...)
	step("-a -p1/0 -p1/1 -p1/2", Delete(keys.Topic(id(1))), Delete(keys.Name("a")))
	step("", Delete(keys.Partition(id(1), 0)), Delete(keys.Partition(id(1), 1)), Delete(keys.Partition(id(1), 2)))
	step("+configs", Put(keys.BrokerConfig(types.NoBroker), BrokerConfigRecord{Configs: map[string]string{"a": "1"}}.Encode()))
	step("-configs", Delete(keys.BrokerConfig(types.NoBroker)))
	step("+mirror", Put(keys.Mirror("m"), MirrorRecord{Name: "m", Want: WantCreated}.Encode()))
	step("~mirror", Put(keys.Mirror("m"), MirrorRecord{Name: "m", Want: WantRunning}.Encode()))
	step("-broker -mirror", Delete(keys.Mirror("m")), Delete(keys.Broker(1)))
	step("", Put("/tidemark/c1/acls/later", []byte("{}")))
}

func TestApplySingles(t *testing.T) {
	s, image := newStored(), Empty("c1")
	image, d := image.Apply(s.do(
		Put(keys.ProducerIDs(), ProducerIDsRecord{High: 1}.Encode()),
		Put(keys.Controller(), ControllerRecord{Broker: 1}.Encode()),
		Put(keys.Cluster(), ClusterRecord{ID: "c1"}.Encode())))
	if !d.ProducerIDs || !d.Controller || !d.Cluster || d.IsEmpty() {
		t.Fatalf("%+v", d)
	}
	p, ok1 := image.ProducerIDs()
	_, ok2 := image.Controller()
	_, ok3 := image.Cluster()
	if !ok1 || !ok2 || !ok3 || p.ModRevision != 2 {
		t.Fatal("a record is missing")
	}
	image, d = image.Apply(s.do(Delete(keys.ProducerIDs()), Delete(keys.Controller()), Delete(keys.Cluster())))
	_, ok1 = image.ProducerIDs()
	_, ok2 = image.Controller()
	_, ok3 = image.Cluster()
	if ok1 || ok2 || ok3 || !d.ProducerIDs || !d.Controller || !d.Cluster {
		t.Fatal("a record is left")
	}
}

// TestNeverGoesBack (R9): old events change nothing, an old snapshot is refused.
func TestNeverGoesBack(t *testing.T) {
	s := newStored()
	first := s.do(append(putTopic(1, "a", 1), putPartition(1, 0))...)
	backup, at := s.snapshot(), s.revision
	second := s.do(Delete(keys.Topic(id(1))), Delete(keys.Name("a")))
	image, _ := Empty("c1").Apply(first)
	image, _ = image.Apply(second)
	for _, old := range []Events{first, second, {Revision: 1}, {}} {
		if next, d := image.Apply(old); next != image || !d.IsEmpty() {
			t.Fatalf("revision %d applied to an image at %d: %+v", old.Revision, image.Revision(), d)
		}
	}
	if next, _, err := image.Reload(backup, at); !errors.Is(err, ErrWentBack) || next != image {
		t.Fatalf("%v", err)
	}
	if next, d := image.Apply(Events{Revision: s.revision + 5}); next.Revision() != s.revision+5 || !d.IsEmpty() {
		t.Fatal("progress didn't move the revision")
	}
}

// TestFaults: a value that can't be read hurts its own key alone.
func TestFaults(t *testing.T) {
	s, image := newStored(), Empty("c1")
	var d Delta
	image, _ = image.Apply(s.do(append(putTopic(1, "a", 2), putPartition(1, 0), putPartition(1, 1))...))
	bad := []byte(`{"v":1,"replicas":[]}`)

	image, d = image.Apply(s.do(Put(keys.Partition(id(1), 0), bad)))
	p, ok := image.PartitionEntry(id(1), 0)
	if !ok || p.Record != nil || p.Fault == nil || d.summary() != "~p1/0!" {
		t.Fatalf("%+v, delta %q", p, d.summary())
	}
	if rec, rev := image.Partition(id(1), 0); rec != nil || rev != s.revision {
		t.Fatalf("a faulty partition gives %v at %d", rec, rev)
	}
	if rec, _ := image.Partition(id(1), 1); rec == nil {
		t.Fatal("its neighbour is gone")
	}
	// A topic that becomes unreadable keeps its last good record and is not deleted.
	image, d = image.Apply(s.do(Put(keys.Topic(id(1)), []byte("{"))))
	topic, ok := image.TopicByName("a")
	if !ok || topic.Record == nil || topic.Fault == nil || d.summary() != "~a" {
		t.Fatalf("%+v, delta %q", topic, d.summary())
	}
	if n := len(slices.Collect(image.Faults())); n != 2 {
		t.Fatalf("%d faults", n)
	}
	// Loaded anew nothing good is known of it, but it is known.
	fresh, d := Load("c1", s.snapshot(), s.revision)
	if _, ok := fresh.TopicByName("a"); ok || !fresh.Known(id(1)) || d.summary() != "" {
		t.Fatalf("delta %q", d.summary())
	}
	if name, ok := fresh.NameOf(id(1)); !ok || name != "a" {
		t.Fatalf("name %q", name)
	}
	// Repaired, both come back.
	image, d = image.Apply(s.do(append(putTopic(1, "a", 2), putPartition(1, 0))...))
	if n := len(slices.Collect(image.Faults())); n != 0 || d.summary() != "~a ~p1/0" {
		t.Fatalf("%d faults, delta %q", n, d.summary())
	}
	// Keys that can't be read are faults too, and go when they are deleted.
	image, _ = image.Apply(s.do(Put("/tidemark/c1/brokers/x", []byte("{}"))))
	if faults := slices.Collect(image.Faults()); len(faults) != 1 || !errors.Is(faults[0], ErrKey) {
		t.Fatalf("faults %v", faults)
	}
	image, _ = image.Apply(s.do(Delete("/tidemark/c1/brokers/x")))
	if n := len(slices.Collect(image.Faults())); n != 0 {
		t.Fatalf("%d faults", n)
	}
	// A topic record under another topic's key.
	image, _ = image.Apply(s.do(Put(keys.Topic(id(9)), TopicRecord{ID: id(8), Name: "x", Partitions: 1}.Encode())))
	if _, ok := image.Topic(id(9)); ok {
		t.Fatal("accepted under the wrong key")
	}
}

func TestNameCollision(t *testing.T) {
	image, _ := Empty("c1").Apply(newStored().do(append(putTopic(1, "a.b", 1), putTopic(2, "c_d.e", 1)...)...))
	f := func(name, want string) {
		t.Helper()
		if got, ok := image.NameCollision(name); got != want || ok != (want != "") {
			t.Errorf("%s collides with %q, want %q", name, got, want)
		}
	}
	f("a.b", "")
	f("a_b", "a.b")
	f("a-b", "")
	f("a_", "")
	f("c.d_e", "c_d.e")
	f("c_d.e", "")
	f("c_d_e_", "")
}

func TestWalks(t *testing.T) {
	s := newStored()
	var ops []Op
	for i, name := range []string{"zeta", "alpha", "mid"} {
		ops = append(ops, putTopic(i+1, name, 3)...)
		for p := range int32(3) {
			ops = append(ops, putPartition(i+1, p))
		}
	}
	ops = append(ops, putPartition(2, 7), putPartition(5, 0))
	image, _ := Empty("c1").Apply(s.do(ops...))
	var names []string
	for topic := range image.TopicsByName() {
		names = append(names, topic.Record.Name)
	}
	if !slices.Equal(names, []string{"alpha", "mid", "zeta"}) || image.TopicCount() != 3 {
		t.Fatalf("topics %v", names)
	}
	if n := len(slices.Collect(image.Topics())); n != 3 {
		t.Fatalf("%d topics", n)
	}
	var numbers []int32
	for p := range image.PartitionsOf(id(2)) {
		numbers = append(numbers, p.ID.Number)
	}
	if !slices.Equal(numbers, []int32{0, 1, 2}) {
		t.Fatalf("partitions %v", numbers)
	}
	if n := len(slices.Collect(image.Partitions())); n != 9 {
		t.Fatalf("%d partitions", n)
	}
	if n := len(slices.Collect(image.Orphans())); n != 2 {
		t.Fatalf("%d orphans", n)
	}
}

// TestApplyAgainstLoad: an image moved by events equals one loaded from a
// snapshot, its deltas name exactly what differs, and earlier images stay.
func TestApplyAgainstLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, image := newStored(), Empty("c1")
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			before := image
			description := Describe(before, "").Table()
			var delta Delta
			events := s.do(drawOps(t)...)
			image, delta = image.Apply(events)
			wantDelta := diff(before, image, touchedByEither(before, image))
			if !reflect.DeepEqual(delta, wantDelta) {
				t.Fatalf("delta %q, want %q", delta.summary(), wantDelta.summary())
			}
			if Describe(before, "").Table() != description {
				t.Fatal("an earlier image changed")
			}
			loaded, _ := Load("c1", s.snapshot(), s.revision)
			if got, want := fingerprint(image), fingerprint(loaded); got != want {
				t.Fatalf("applied:\n%s\nloaded:\n%s", got, want)
			}
			reloaded, jump, err := before.Reload(s.snapshot(), s.revision)
			if err != nil || fingerprint(reloaded) != fingerprint(loaded) || jump.summary() != delta.summary() {
				t.Fatalf("reload: %v, delta %q, want %q", err, jump.summary(), delta.summary())
			}
		}
	})
}

// fingerprint is everything an image says, by its public methods.
func fingerprint(i *Image) string {
	var b strings.Builder
	b.WriteString(Describe(i, "").Table())
	for t := range i.Topics() {
		fmt.Fprintln(&b, t.Record.Name, t.ModRevision, t.CreateRevision)
		for p := range i.PartitionsOf(t.ID) {
			fmt.Fprintln(&b, p.ID.Number, p.ModRevision, p.CreateRevision, p.Fault)
		}
	}
	fmt.Fprintln(&b, slices.Collect(i.Orphans()), len(slices.Collect(i.Partitions())), i.foldedNames.len(), i.names.len())
	return b.String()
}

// drawOps draws a transaction over few topics, so that creation, growth,
// deletion and re-creation meet. Values are good: what a faulty one leaves behind differs
// between an image that saw the good one before and a fresh one.
func drawOps(t *rapid.T) []Op {
	touched := make(map[string]bool)
	var ops []Op
	for range rapid.IntRange(1, 5).Draw(t, "ops") {
		n := rapid.IntRange(1, 3).Draw(t, "topic")
		p := int32(rapid.IntRange(0, 3).Draw(t, "partition"))
		name := fmt.Sprintf("t.%d", n)
		var drawn []Op
		of := DrillMark{Name: "d", Run: rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "run")}
		switch rapid.IntRange(0, 10).Draw(t, "kind") {
		case 0, 1:
			drawn = putTopic(n, name, p+1)
		case 2:
			drawn = []Op{Delete(keys.Topic(id(n))), Delete(keys.Name(name))}
		case 3, 4:
			drawn = []Op{putPartition(n, p)}
		case 5:
			drawn = []Op{Delete(keys.Partition(id(n), p))}
		case 6:
			drawn = []Op{Put(keys.Broker(types.BrokerID(n)), BrokerRecord{ID: types.BrokerID(n)}.Encode())}
		case 7:
			drawn = []Op{Delete(keys.Broker(types.BrokerID(n)))}
		case 8:
			drawn = putDrillTopic(n, name, p+1, of)
		case 9:
			drawn = []Op{putDrill("d", of.Run, rapid.SampledFrom(drillStates).Draw(t, "state"))}
		case 10:
			drawn = []Op{Delete(keys.Drill("d"))}
		}
		for _, op := range drawn {
			if !touched[op.Key] {
				touched[op.Key] = true
				ops = append(ops, op)
			}
		}
	}
	return ops
}
