package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tidemark/internal/config"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/mem"
	"tidemark/internal/vfs"
)

// world is a story's clusters.
type world struct {
	story    *story
	mutation string
	clusters map[string]*cluster
	order    []*cluster
	step     int
	now      types.Millis
	told     []map[string]any
	faults   []string
	names    map[string]string // real timeline ids and cluster ids to the story's
	plans    map[string]string // the story's plan ids to real ones
	gone     []string          // records that a cut took and no vault has
}

func (w *world) clock() types.Millis { return w.now }

func (w *world) errorf(format string, args ...any) {
	if len(w.faults) < 40 {
		w.faults = append(w.faults, fmt.Sprintf(format, args...))
	}
}

// cluster is one cluster with one partition.
type cluster struct {
	w      *world
	name   string
	id     string
	spec   clusterSpec
	topic  types.TopicID
	minISR int
	store  *mem.Store
	image  *meta.Image
	nodes  []*node

	source    *cluster // as it was started
	address   *cluster // who answers at the source's address; nil: the source
	starts    []string // start ids, in order
	timelines int
	lastPlan  string
	attempt   string // the start that the last failover named
	starting  core.StartRequest
	adoptedBy types.BrokerID // who led at the adoption
	saved     *meta.PartitionRecord
	groups    map[string]types.Offset
	waiting   map[string]types.Offset
	lastTag   string // of the last write
	blind     bool   // the leader's image doesn't show what became of its last write (R8)
}

func newCluster(w *world, name string, spec clusterSpec) *cluster {
	c := &cluster{w: w, name: name, id: "cluster-" + name, spec: spec, topic: topicID(spec.TopicID), store: mem.New(),
		groups: map[string]types.Offset{}, waiting: map[string]types.Offset{}, adoptedBy: types.NoBroker}
	w.names[c.id] = name
	c.minISR = spec.MinISR
	if c.minISR == 0 {
		c.minISR = 1
		if len(spec.Replicas) == 3 {
			c.minISR = 2
		}
	}
	c.load()
	for i, r := range spec.Replicas {
		n := &node{c: c, name: r, id: types.BrokerID(i + 1), mem: vfs.NewMem(), room: -1, cleanEpoch: types.NoBrokerEpoch}
		n.mem.SetClock(func() time.Time { return time.UnixMilli(int64(w.now)) })
		c.nodes = append(c.nodes, n)
		n.boot()
	}
	return c
}

func topicID(name string) (id types.TopicID) {
	copy(id[:], name)
	return id
}

// load reads the image anew.
func (c *cluster) load() {
	kvs, rev, err := c.store.Range(background, meta.KeysOf(c.id).Root())
	if err != nil {
		panic(err)
	}
	c.image, _ = meta.Load(c.id, kvs, rev)
}

func (c *cluster) commit(plan meta.Plan) error {
	_, err := metastore.Commit(background, c.store, plan)
	c.load()
	return err
}

func (c *cluster) record() *meta.PartitionRecord {
	rec, _ := c.image.Partition(c.topic, 0)
	return rec
}

// put writes the record as no plan of the product would: what elections and
// crashes in between would have made of it, or a backup that was put back.
func (c *cluster) put(rec meta.PartitionRecord) {
	_, err := c.store.Txn(background, metastore.Txn{Then: []meta.Op{meta.Put(c.image.Keys().Partition(c.topic, 0), rec.Encode())}})
	if err != nil {
		panic(err)
	}
	c.load()
}

// update writes a record that the leader changed (R7).
func (c *cluster) update(n *node, rec meta.PartitionRecord) error {
	plan, err := control.UpdatePartition(c.image, c.topic, 0, rec, n.me())
	if err != nil {
		return err
	}
	return c.commit(plan)
}

func (c *cluster) node(name string) *node {
	i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.name == name })
	if i < 0 {
		return nil
	}
	return c.nodes[i]
}

func (c *cluster) byID(id types.BrokerID) *node {
	if id < 1 || int(id) > len(c.nodes) {
		return nil
	}
	return c.nodes[id-1]
}

// leader is the broker that the record names, if it is up.
func (c *cluster) leader() *node {
	rec := c.record()
	if rec == nil {
		return nil
	}
	n := c.byID(rec.Leader)
	if n == nil || !n.up {
		return nil
	}
	return n
}

func (c *cluster) topicConfig() config.Topic {
	t := config.Default().Topic(nil)
	t.RetentionMs, t.FlushMessages, t.FlushMs, t.MinInsyncReplicas = -1, 1<<62, 1<<50, int32(c.minISR)
	t.TimestampAfterMaxMs, t.TimestampBeforeMaxMs, t.ProducerIDExpirationMs = 1<<62, 1<<62, 0
	for _, s := range c.w.story.Steps {
		if s.Op == "compact" {
			t.Compact, t.Delete = true, true
			t.DeleteRetentionMs = 24 * 3600 * 1000
		}
	}
	return t
}

// tell notes what an operator of the cluster is told; pairs are names and values.
func (c *cluster) tell(code string, pairs ...any) {
	m := map[string]any{"step": c.w.step, "cluster": c.name, "code": code}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	c.w.told = append(c.w.told, m)
}

// freshTimeline gives an id for the next entry that the cluster makes.
func (c *cluster) freshTimeline() string {
	c.timelines++
	id := fmt.Sprintf("id-of-%s%d", c.name, c.timelines)
	c.w.names[id] = fmt.Sprintf("%s%d", c.name, c.timelines)
	return id
}

// create has a client make the topic.
func (c *cluster) create(s *step) {
	first := c.nodes[0]
	if s.Leader != "" {
		first = c.node(s.Leader)
	}
	assignment := []types.BrokerID{first.id}
	for _, n := range c.nodes {
		if n != first {
			assignment = append(assignment, n.id)
		}
	}
	root := "id-of-" + c.name + "0"
	c.w.names[root] = c.name + "0"
	c.makeTopic(control.CreateTopicRequest{Name: topicName, ID: c.topic, Partitions: 1, Assignment: [][]types.BrokerID{assignment}, MinISR: c.minISR, TimelineID: root})
	rec := c.record().Clone()
	if s.Epoch != nil {
		rec.LeaderEpoch = *s.Epoch
	}
	if c.spec.Kind == "kafka" {
		rec.Timelines = timeline.List{timeline.Root(c.id, c.topic)}
		c.w.names[rec.Timelines[0].ID] = fmt.Sprintf("derived(%s,%s)", c.name, topicText(c.topic))
	}
	c.put(rec)
	for _, n := range c.nodes {
		if n.up {
			n.see()
		}
	}
}

func topicText(id types.TopicID) string { return strings.TrimRight(string(id[:]), "\x00") }

func (c *cluster) makeTopic(r control.CreateTopicRequest) {
	var by *node
	for _, n := range c.nodes {
		if n.up {
			by = n
			break
		}
	}
	plans, err := control.CreateTopic(c.image, r, by.me(), control.Limits{})
	if err != nil {
		panic(err)
	}
	for _, p := range plans {
		if err := c.commit(p); err != nil {
			panic(err)
		}
	}
}

// recreate deletes the topic and makes it again.
func (c *cluster) recreate(s *step) {
	plan, err := control.DeleteTopic(c.image, c.topic, c.nodes[0].me())
	if err == nil {
		err = c.commit(plan)
	}
	if err != nil {
		panic(err)
	}
	for _, n := range c.nodes {
		n.halt()
		n.in, n.want = nil, nil
		if err := n.mem.RemoveAll(logDir + "/" + topicName + "-0"); err != nil {
			panic(err)
		}
		n.checkpoints.Detach(types.TopicPartition{Topic: topicName})
	}
	c.topic = topicID(s.TopicID)
	c.create(s)
}

// crashed writes what the cluster makes of a node that is gone: it leaves the
// ISR, or moves to the ELR below min ISR, unless no other valid member is up; a
// leader leaves the partition leaderless.
func (c *cluster) crashed(n *node) {
	c.blind = false
	old := c.record()
	if old == nil {
		return
	}
	rec := old.Clone()
	if rec.Leader == n.id {
		rec.Leader, rec.LeaderBrokerEpoch = types.NoBroker, 0
	}
	var left []meta.ISRMember
	var mine *meta.ISRMember
	others := false
	for _, m := range rec.ISR {
		if m.ID == n.id {
			mine = &m
			continue
		}
		left = append(left, m)
		o := c.byID(m.ID)
		others = others || o.up && o.epoch == m.BrokerEpoch
	}
	if mine != nil && others {
		rec.ISR = left
		if len(left) < rec.MinISRNow() {
			rec.ELR = append(rec.ELR, *mine)
		}
	}
	c.put(rec)
}

// elect makes a node the leader (R11).
func (c *cluster) elect(n *node, s *step) {
	rec := c.record().Clone()
	before := rec.Clone()
	if s.Epoch != nil {
		rec.LeaderEpoch = *s.Epoch - 1
	}
	if rec.Leader == n.id {
		rec.Leader, rec.LeaderBrokerEpoch = types.NoBroker, 0
	}
	if c.w.mutation == "R11" {
		for _, list := range [][]meta.ISRMember{rec.ISR, rec.ELR} {
			for i := range list {
				list[i].BrokerEpoch = c.byID(list[i].ID).epoch
			}
		}
	}
	c.put(rec)
	e, ok, err := control.Elect(c.image, c.topic, 0, n.id, s.Unclean, n.me())
	if err != nil {
		panic(err)
	}
	if !ok {
		why := "not in ISR or ELR"
		if rec.InISR(n.id) || slices.Contains(rec.ELRIDs(), n.id) {
			why = "broker epoch"
		}
		c.tell("NOT_ELECTABLE", "replica", n.name, "why", why)
		c.put(before)
		return
	}
	c.elected(n, e.Kind, e.Plan)
}

func (c *cluster) elected(n *node, kind control.ElectionKind, plan meta.Plan) {
	if err := c.commit(plan); err != nil {
		panic(err)
	}
	if kind == control.ElectedUnclean || kind == control.ElectedSole && !n.clean && n.c.record().LeaderEpoch > 0 && len(n.c.nodes) > 1 {
		defer func() {
			c.tell("UNCLEAN_ELECTION", "replica", n.name, "epoch", c.record().LeaderEpoch, "log_end", n.view().end)
		}()
	}
	n.lead()
}

// electBest has the controller choose among what the live replicas report.
func (c *cluster) electBest() {
	ctl := c.anyUp()
	keys := c.image.Keys()
	e, _ := c.image.PartitionEntry(c.topic, 0)
	for _, n := range c.nodes {
		if !n.up {
			continue
		}
		n.see()
		report := n.in.Report()
		if c.w.mutation == "R11.owed" {
			v := n.view()
			report = meta.LogReport{LogEnd: v.end, LastEpoch: lastEpochBelow(v)}
		}
		report.Topic, report.Partition, report.Revision = c.topic, 0, e.ModRevision
		rec := meta.ReportRecord{Broker: n.id, BrokerEpoch: n.epoch, Logs: []meta.LogReport{report}}
		if _, err := c.store.Txn(background, metastore.Txn{Then: []meta.Op{meta.Put(keys.Report(n.id), rec.Encode())}}); err != nil {
			panic(err)
		}
	}
	if c.w.mutation == "R11" {
		rec := c.record().Clone()
		for _, list := range [][]meta.ISRMember{rec.ISR, rec.ELR} {
			for i := range list {
				list[i].BrokerEpoch = c.byID(list[i].ID).epoch
			}
		}
		c.put(rec)
	}
	office, err := c.store.Txn(background, metastore.Txn{Then: []meta.Op{meta.Put(keys.Controller(), meta.ControllerRecord{Broker: ctl.id, BrokerEpoch: ctl.epoch}.Encode())}})
	if err != nil {
		panic(err)
	}
	c.load()
	t, _ := c.image.Topic(c.topic)
	p, _ := c.image.PartitionEntry(c.topic, 0)
	me := ctl.me()
	me.Controller = office.Revision
	change, ok := control.Settle(c.image, t, p, control.Policy{Unclean: func(*meta.Topic) bool { return true }}, me)
	if !ok || change.Kind == "" {
		c.w.errorf("step %d: the controller elects nobody", c.w.step)
		return
	}
	c.elected(c.byID(change.Record.Leader), change.Kind, change.Plan)
}

func lastEpochBelow(v lastSeen) types.LeaderEpoch {
	last := types.NoLeaderEpoch
	for _, e := range v.history {
		if e.Start < v.end {
			last = e.Epoch
		}
	}
	return last
}

func (c *cluster) anyUp() *node {
	for _, n := range c.nodes {
		if n.up {
			return n
		}
	}
	return nil
}

// changeMinISR is R12.
func (c *cluster) changeMinISR(to int) {
	c.minISR = to
	if c.w.mutation == "R12" {
		rec := c.record().Clone()
		rec.MinISR = to
		c.put(rec)
		return
	}
	plans, err := control.AlterTopicConfigs(c.image, c.topic, map[string]string{"min.insync.replicas": fmt.Sprint(to)}, to, c.anyUp().me(), control.Limits{})
	for _, p := range plans {
		if err == nil {
			err = c.commit(p)
		}
	}
	if err != nil {
		panic(err)
	}
}
