package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/await"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/compare"
	"tidemark/internal/core/meta"
	"tidemark/internal/history"
	"tidemark/internal/vfs"
	"tidemark/test/e2e/harness"
)

// oldProgramVariable names the executable of an older version that TestRollingUpgradeOfThreeNodes
// upgrades from. Without it the older program is this one with one level less.
const oldProgramVariable = "TIDEMARK_OLD_BIN"

// upgrade is three nodes of one cluster that are rolled from one program to the next.
type upgrade struct {
	t        *testing.T
	old, new harness.Program
	nodes    []*harness.Process
	topics   []string // that must be in sync again after each restart
}

func newUpgrade(t *testing.T) *upgrade {
	t.Helper()
	levels := meta.SupportedFeatures()[meta.FeatureMetadata]
	u := &upgrade{t: t, new: harness.Program{Name: "newer", Levels: levels}}
	u.old = harness.Program{Name: "older", Levels: meta.LevelRange{Min: levels.Min, Max: levels.Max - 1}, Path: os.Getenv(oldProgramVariable)}
	settings := []string{
		"min.insync.replicas=2", "mirror.replication.factor=3", "offsets.topic.replication.factor=3", "offsets.topic.num.partitions=2",
		"group.initial.rebalance.delay.ms=0", "mirror.metadata.refresh.ms=200", "mirror.group.sync.ms=200", "mirror.retry.backoff.max.ms=500",
	}
	var first *harness.Process
	for id := 1; id <= 3; id++ {
		n := harness.NewProcess(t, id, first, settings...)
		if err := n.Start(u.old); err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = n
		}
		u.nodes = append(u.nodes, n)
	}
	st, err := first.API().Cluster(harness.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	u.old.Levels = st.Supported[meta.FeatureMetadata]
	if level := st.Levels[meta.FeatureMetadata]; level != u.old.Levels.Max || level >= u.new.Levels.Max {
		t.Fatalf("the older program began at level %d and supports %v, the newer one %v", level, u.old.Levels, u.new.Levels)
	}
	harness.Eventually(t, "all three keep the metadata", func() bool {
		st, err := first.API().Cluster(harness.Context(t))
		voters := 0
		for _, m := range st.Members {
			if m.Healthy && !m.Learner {
				voters++
			}
		}
		return err == nil && voters == 3 && len(st.Brokers) == 3
	})
	return u
}

// whole waits until every replica of the topics is in sync.
func (u *upgrade) whole(when string) {
	u.t.Helper()
	adm := u.nodes[0].Admin()
	defer adm.Close()
	await.NoError(u.t, harness.Patience, "all replicas are in sync "+when, func() error {
		topics, err := adm.ListTopicsWithInternal(harness.Context(u.t))
		if err != nil {
			return err
		}
		for _, name := range append(slices.Clone(u.topics), "__consumer_offsets") {
			for _, p := range topics[name].Partitions {
				if len(p.ISR) != 3 {
					return fmt.Errorf("%s-%d: replicas %v, in sync %v", name, p.Partition, p.Replicas, p.ISR)
				}
			}
			if len(topics[name].Partitions) == 0 {
				return fmt.Errorf("%s: %w", name, topics[name].Err)
			}
		}
		return nil
	})
}

// roll restarts a node with another program, and returns when it is in sync again.
func (u *upgrade) roll(n *harness.Process, to harness.Program, l *workload) {
	u.t.Helper()
	when := fmt.Sprintf("with node %d %s", n.ID, to.Name)
	if err := n.Stop(); err != nil {
		u.t.Fatal(err)
	}
	l.progress("while node " + strconv.Itoa(n.ID) + " is down")
	if err := n.Start(to); err != nil {
		u.t.Fatal(err)
	}
	u.whole(when)
	l.awaitKnown(n)
	l.progress(when)
	u.checkForms(n, u.old.Levels.Max)
}

// command demands an exit code and words of what a command says.
func (u *upgrade) command(n *harness.Process, code int, words string, args ...string) {
	u.t.Helper()
	got, out := n.Command(args...)
	if got != code || !strings.Contains(out, words) {
		u.t.Errorf("tidemark %s: exit code %d, want %d and %q in:\n%s", strings.Join(args, " "), got, code, words, out)
	}
}

// refused demands that a program can't start as a node, and that the node says why and what to do.
func (u *upgrade) refused(n *harness.Process, program harness.Program) {
	u.t.Helper()
	err := n.Start(program)
	if err == nil {
		u.t.Fatalf("node %d started with the %s program", n.ID, program.Name)
	}
	words := fmt.Sprintf("the cluster's %s is at level %d and this program supports %d to %d: it is too old for the cluster, start a newer tidemark",
		meta.FeatureMetadata, u.new.Levels.Max, u.old.Levels.Min, u.old.Levels.Max)
	if n.ExitCode() != 1 || !strings.Contains(err.Error(), words) {
		u.t.Errorf("node %d with the %s program: %v; want exit code 1 and %q", n.ID, program.Name, err, words)
	}
}

// recordTypes are the metadata's records by the first part of their keys.
var recordTypes = map[string]any{
	"acls": meta.ACLRecord{}, "brokers": meta.BrokerRecord{}, "cluster": meta.ClusterRecord{}, "configs": meta.BrokerConfigRecord{}, "controller": meta.ControllerRecord{},
	"features": meta.FeaturesRecord{}, "mirrors": meta.MirrorRecord{}, "names": meta.NameRecord{}, "nodes": meta.NodeRecord{}, "partitions": meta.PartitionRecord{},
	"producer-ids": meta.ProducerIDsRecord{}, "drills": meta.DrillRecord{}, "reports": meta.ReportRecord{}, "scram": meta.ScramRecord{}, "topics": meta.TopicRecord{},
}

// checkForms demands that no record has a form that programs at this level can't read.
func (u *upgrade) checkForms(n *harness.Process, level int16) {
	u.t.Helper()
	var file strings.Builder
	taken, err := n.API().Backup(harness.Context(u.t), &file)
	if err != nil {
		u.t.Fatal(err)
	}
	if len(taken.KVs) == 0 {
		u.t.Fatal("no metadata")
	}
	for _, kv := range taken.KVs {
		if what := above(kv, level); what != "" {
			u.t.Errorf("at level %d there is %s", level, what)
		}
	}
}

// above names what a program at this level can't read in a record; empty if it reads it all.
func above(kv meta.KV, level int16) string {
	_, key, _ := strings.Cut(strings.TrimPrefix(kv.Key, "/tidemark/"), "/")
	kind, _, _ := strings.Cut(key, "/")
	r, ok := recordTypes[kind]
	if !ok {
		return "a key of a kind without a type here: " + key
	}
	var value any
	if err := json.Unmarshal(kv.Value, &value); err != nil {
		return key + ": " + err.Error()
	}
	if field := fieldAbove(value, reflect.TypeOf(r), level); field != "" {
		return "the field " + field + " in " + key
	}
	return ""
}

// fieldAbove finds a field that is there and whose tag names a higher level.
func fieldAbove(value any, t reflect.Type, level int16) string {
	switch t.Kind() {
	case reflect.Pointer:
		return fieldAbove(value, t.Elem(), level)
	case reflect.Slice:
		items, _ := value.([]any)
		for _, item := range items {
			if field := fieldAbove(item, t.Elem(), level); field != "" {
				return field
			}
		}
	case reflect.Struct:
		fields, _ := value.(map[string]any)
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			inner, there := fields[name]
			if since, _ := strconv.Atoi(f.Tag.Get("level")); there && since > int(level) {
				return name
			}
			if field := fieldAbove(inner, f.Type, level); field != "" {
				return field
			}
		}
	}
	return ""
}

// TestAbove: the check of records' forms can fail.
func TestAbove(t *testing.T) {
	f := func(key, value string, level int16, want string) {
		t.Helper()
		if got := above(meta.KV{Key: "/tidemark/c/" + key, Value: []byte(value)}, level); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s at level %d: %q, want %q", key, level, got, want)
		}
	}
	f("topics/x", `{"v":1,"grownTo":2}`, 1, "grownTo")
	f("topics/x", `{"v":1,"grownTo":2}`, 2, "")
	f("partitions/x/0", `{"v":1,"promotions":[{"at":1},{"endBefore":2}]}`, 1, "endBefore")
	f("partitions/x/0", `{"v":1,"mirror":{"endBefore":2}}`, 1, "")
	f("acls/x", `{"v":1}`, 1, "v")
	f("news/x", `{"v":1}`, 1, "without a type")
}

// gate is what a level brings: refused below it, and in use from it on.
type gate struct {
	level         int16
	below, within func(u *upgrade)
}

// gates has at least one of every level, from 2 on.
func gates() []gate {
	return []gate{
		{level: meta.LevelSecurity, below: func(u *upgrade) {
			if err := u.addUser(); err == nil || !strings.Contains(err.Error(), "tidemark cluster upgrade") {
				u.t.Errorf("a user below level %d: %v", meta.LevelSecurity, err)
			}
		}, within: func(u *upgrade) {
			if err := u.addUser(); err != nil {
				u.t.Error(err)
			}
		}},
		{level: meta.LevelCuts, below: func(u *upgrade) {
			u.command(u.nodes[0], 1, fmt.Sprintf("a consistent failover needs %s %d, the cluster is at %d: tidemark cluster upgrade", meta.FeatureMetadata, meta.LevelCuts, u.old.Levels.Max),
				"mirror", "failover", "m", "--consistent", "--yes")
		}, within: func(*upgrade) {}}, // the test ends with one
		{level: meta.LevelDrills, below: func(u *upgrade) {
			u.command(u.nodes[0], 1, fmt.Sprintf("%s is at level %d; level %d has drills: raise it once every node runs this version (tidemark cluster upgrade)",
				meta.FeatureMetadata, u.old.Levels.Max, meta.LevelDrills), "mirror", "drill", "m", "friday")
		}, within: func(u *upgrade) {
			u.command(u.nodes[0], 0, "drill.friday.mirrored", "mirror", "drill", "m", "friday")
			u.command(u.nodes[0], 0, "", "mirror", "drill", "delete", "friday", "--yes")
		}},
		// Below it a switchover goes as it did before; what it writes from there on, no older program reads.
		{level: meta.LevelAttempts, below: func(*upgrade) {}, within: func(*upgrade) {}},
	}
}

// openedGates are those of the levels that the upgrade brings; each level has one.
func (u *upgrade) openedGates() []gate {
	u.t.Helper()
	all := slices.DeleteFunc(gates(), func(g gate) bool { return g.level <= u.old.Levels.Max })
	for level := u.old.Levels.Max + 1; level <= u.new.Levels.Max; level++ {
		if !slices.ContainsFunc(all, func(g gate) bool { return g.level == level }) {
			u.t.Errorf("level %d has no row in gates: say what it brings", level)
		}
	}
	return all
}

func (u *upgrade) addUser() error {
	adm := u.nodes[0].Admin()
	defer adm.Close()
	answers, err := adm.AlterUserSCRAMs(harness.Context(u.t), nil, []kadm.UpsertSCRAM{{User: "u", Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "p"}})
	if err != nil {
		return err
	}
	if a := answers["u"]; a.Err != nil {
		return fmt.Errorf("%w: %s", a.Err, a.ErrMessage)
	}
	return nil
}

// TestRollingUpgradeOfThreeNodes: three processes of a cluster get a newer program,
// one after the other, while producers, a group and a mirror work. Until the level is raised
// nothing is written that the older program can't read, so that a node may go back to
// it; from then on it may not.
func TestRollingUpgradeOfThreeNodes(t *testing.T) {
	u := newUpgrade(t)
	source := harness.StartBroker(t)
	source.CreateTopic(t, "mirrored", 2, nil)
	adm := u.nodes[0].Admin()
	if _, err := adm.CreateTopic(harness.Context(t), 3, 3, nil, "own"); err != nil {
		t.Fatal(err)
	}
	u.command(u.nodes[0], 0, "", "mirror", "create", "m", "--source", source.Addr)
	u.command(u.nodes[0], 0, "", "mirror", "wait", "m", "--timeout", (2 * harness.Patience).String())
	u.topics = []string{"own", "mirrored"}

	everywhere := func(opts ...kgo.Opt) *kgo.Client {
		seeds := []string{u.nodes[0].Addr, u.nodes[1].Addr, u.nodes[2].Addr}
		return u.nodes[0].Client(append([]kgo.Opt{kgo.SeedBrokers(seeds...)}, opts...)...)
	}
	manual := kgo.RecordPartitioner(kgo.ManualPartitioner())
	l, atSource := newWorkload(t, "own", 3), newWorkload(t, "mirrored", 2)
	l.produce("p1", everywhere(manual))
	l.produce("p2", everywhere(manual))
	l.consume("workers", "c1", everywhere)
	l.consume("workers", "c2", everywhere)
	atSource.produce("s1", source.Client(t, manual))
	atSource.consume("far", "f1", func(opts ...kgo.Opt) *kgo.Client { return source.Client(t, opts...) })
	l.progress("at first")
	u.whole("at first")

	opened := u.openedGates()
	for _, g := range opened {
		if u.old.Path == "" { // an older version has its own way, or none, to what a level brings
			g.below(u)
		}
	}
	u.roll(u.nodes[0], u.new, l)
	u.roll(u.nodes[0], u.old, l)
	u.roll(u.nodes[0], u.new, l)
	u.command(u.nodes[0], 1, fmt.Sprintf("supports %d to %d; upgrade it first", u.old.Levels.Min, u.old.Levels.Max), "cluster", "upgrade")
	u.roll(u.nodes[1], u.new, l)
	u.roll(u.nodes[2], u.new, l)
	u.command(u.nodes[2], 0, fmt.Sprintf("could be at level %d, before at %d", u.new.Levels.Max, u.old.Levels.Max), "cluster", "upgrade", "--dry-run")
	u.command(u.nodes[2], 0, fmt.Sprintf("%s %d (this node supports %d: tidemark cluster upgrade)", meta.FeatureMetadata, u.old.Levels.Max, u.new.Levels.Max), "cluster", "status")
	u.command(u.nodes[2], 0, fmt.Sprintf("is now at level %d, before at %d", u.new.Levels.Max, u.old.Levels.Max), "cluster", "upgrade")
	for _, n := range u.nodes { // the others hear of it a moment later
		await.NoError(t, harness.Patience, fmt.Sprintf("node %d is at the new level", n.ID), func() error {
			if _, out := n.Command("cluster", "status"); !strings.Contains(out, fmt.Sprintf("%s %d", meta.FeatureMetadata, u.new.Levels.Max)) {
				return errors.New(out)
			}
			return nil
		})
	}
	for _, g := range opened {
		g.within(u)
	}
	l.progress("at the new level")

	if err := u.nodes[2].Stop(); err != nil {
		t.Fatal(err)
	}
	u.refused(u.nodes[2], u.old)
	fourth := harness.NewProcess(t, 4, u.nodes[0])
	u.refused(fourth, u.old)
	if err := u.nodes[2].Start(u.new); err != nil {
		t.Fatal(err)
	}
	u.whole("after the older program was refused")
	l.awaitKnown(u.nodes[2])
	l.progress("in the end")
	u.judge(l, atSource, source, everywhere)
}

// judge ends the load, fails over, and demands that everything is there, and the same everywhere.
func (u *upgrade) judge(l, atSource *workload, source *harness.Broker, everywhere func(...kgo.Opt) *kgo.Client) {
	t := u.t
	t.Helper()
	far := atSource.finish(func(opts ...kgo.Opt) *kgo.Client { return source.Client(t, opts...) })
	ends := l.finish(everywhere)
	for tp, end := range far {
		harness.Eventually(t, fmt.Sprintf("%s is mirrored up to %d", tp, end), func() bool {
			st, err := u.nodes[0].API().Status(harness.Context(t), "m")
			return err == nil && slices.ContainsFunc(st.Partitions, func(p mirror.PartitionStatus) bool {
				return p.Topic == tp.Topic && p.Partition == tp.Partition && p.End == end && p.LagRecords == 0
			})
		})
		ends[tp] = end
	}
	checkEqual(t, source.Client(t), everywhere(), compare.Options{}, "mirrored")
	u.command(u.nodes[0], 0, "", "mirror", "failover", "m", "--consistent", "--yes")
	u.whole("after the failover")
	for _, n := range u.nodes {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	}
	for tp, end := range ends {
		var replicas []history.Replica
		for _, n := range u.nodes {
			replicas = append(replicas, history.Replica{Name: fmt.Sprintf("node %d", n.ID), FS: vfs.OS(), Dir: filepath.Join(n.Dir, tp.String())})
		}
		differ, err := history.CompareReplicas(tp, end, replicas...)
		if err != nil {
			t.Error(err)
		}
		for _, f := range differ {
			t.Error(f)
		}
	}
}
