package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/config"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
	"tidemark/internal/source"
)

// discover looks at the source again and again (mirror.metadata.refresh.ms): it
// makes topics and partitions that are new there, shows the copiers whom they
// follow, and copies topic configs.
func (r *run) discover() {
	fails := 0
	var configsAt time.Time
	for r.ctx.Err() == nil {
		s := r.settings.Load()
		if !r.isRunning() {
			_, _ = clock.Wait(r.ctx, clock.Forever, r.woken) // the loop looks at the context
			continue
		}
		m, err := r.refresh(r.ctx)
		if err != nil {
			fails++
			r.sourceFailed(err)
			pause(r.ctx, r.backoff(fails))
			continue
		}
		fails = 0
		topics := r.takeTopics(r.ctx, m)
		r.refreshed(m)
		if clock.Since(r.ctx, configsAt) >= millis(s.ConfigSyncMs) {
			configsAt = clock.Now(r.ctx)
			r.syncConfigs(r.ctx, topics)
		}
		r.tick()
		r.waitRefresh(millis(s.MetadataRefreshMs))
	}
}

// waitRefresh waits for the next look; a change of the record ends the wait.
func (r *run) waitRefresh(d time.Duration) {
	_, _ = clock.Wait(r.ctx, d, r.woken) // the loop looks at the context
}

// refresh asks for the source's metadata and makes sure who answers (R26).
func (r *run) refresh(ctx context.Context) (*source.Metadata, error) {
	client, err := r.source()
	if err != nil {
		return nil, err
	}
	m, err := client.Metadata(ctx, nil)
	if err != nil {
		return nil, err
	}
	known := r.record.Load().SourceClusterID
	switch {
	case m.ClusterID == r.m.o.Node.ClusterID():
		return nil, &source.Error{Kind: source.ErrOtherCluster, Sentence: "the source is this cluster itself; a mirror needs another one"}
	case m.ClusterID == "":
		return nil, &source.Error{Kind: source.ErrProtocol, Sentence: "the source says no cluster id"}
	case known == "":
		if known, err = r.keepClusterID(ctx, m.ClusterID); err != nil {
			return nil, err
		}
	}
	client.Pin(known)
	return m, otherCluster(known, m.ClusterID)
}

// keepClusterID writes down which cluster the mirror follows, at the first connect, and gives
// it: another node may have connected first.
func (r *run) keepClusterID(ctx context.Context, id string) (known string, err error) {
	err = r.m.update(ctx, r.name, func(rec *meta.MirrorRecord) error {
		if rec.SourceClusterID == "" {
			rec.SourceClusterID = id
		}
		known = rec.SourceClusterID
		return nil
	})
	return known, err
}

// otherCluster refuses what a cluster answers that isn't the one that the mirror follows, as
// its record says: addresses may lead nodes to two (R26). An empty record knows none yet.
func otherCluster(known, answers string) error {
	if known == "" || answers == known {
		return nil
	}
	return &source.Error{Kind: source.ErrOtherCluster, ClusterID: answers,
		Sentence: fmt.Sprintf("cluster %q answers at this address; the mirror's source is cluster %q", answers, known)}
}

// sourceFailed notes that the source can't be looked at. Another cluster at its
// address stops every partition (R26).
func (r *run) sourceFailed(err error) {
	if r.ctx.Err() != nil {
		return
	}
	if r.health.failed(syncMetadata, err) {
		r.m.log.Warn("the source can't be looked at", "mirror", r.name, "err", err)
	} else if r.health.isToldAgain(syncMetadata) {
		lasting, _ := r.health.lasting(syncMetadata)
		r.m.log.Warn("the source still can't be looked at, and is tried again and again", "mirror", r.name, "for", lasting.Round(time.Second).String(), "err", err, "wayOut", sourceWayOut(r.record.Load(), err))
	}
	if errors.Is(err, source.ErrOtherCluster) {
		var se *source.Error
		id := "another one"
		if errors.As(err, &se) && se.ClusterID != "" {
			id = se.ClusterID
		}
		for _, c := range r.all() {
			c.refresh(core.Source{ClusterID: id, LeaderEpoch: types.NoLeaderEpoch, LogStart: types.NoOffset, LogEnd: types.NoOffset})
		}
	}
}

// refreshed shows every copier what the look says of its partition. Ends are
// those of the fetch sessions, which are newer than any look.
func (r *run) refreshed(m *source.Metadata) {
	topics := make(map[string]*source.Topic, len(m.Topics))
	for i := range m.Topics {
		topics[m.Topics[i].Name] = &m.Topics[i]
	}
	lasted, _ := r.health.lasting(syncMetadata)
	back := r.health.ok(syncMetadata)
	if back {
		r.m.log.Info("the source can be looked at again", "mirror", r.name, "after", lasted.Round(time.Millisecond).String())
	}
	for _, c := range r.all() {
		if back {
			c.send(core.RetryNow{})
		}
		t := topics[c.tp.Topic]
		if t == nil || t.Code != 0 || int(c.tp.Partition) >= len(t.Partitions) {
			continue
		}
		s := core.Source{
			ClusterID: m.ClusterID, TopicID: t.ID, LeaderEpoch: t.Partitions[c.tp.Partition].LeaderEpoch,
			LogStart: types.NoOffset, LogEnd: types.NoOffset, LastEpoch: types.NoLeaderEpoch,
		}
		if f, seen := c.fetcher.Load(), c.seen.Load(); f != nil && seen != nil && f.isFresh(r.m.o.Node.Now()) {
			s.LogStart, s.LogEnd = seen.start, seen.end
		}
		c.refresh(s)
	}
}

// freshMs is how old a fetcher's last answer may be for its sessions' marks to count as seen now.
const freshMs = types.Millis(2000)

func (f *fetcher) isFresh(now types.Millis) bool { return now-types.Millis(f.seenAt.Load()) <= freshMs }

// tick passes time for the copiers.
func (r *run) tick() {
	for _, c := range r.all() {
		c.tick()
	}
}

// createsAtOnce bounds the topics that are made at one time.
const createsAtOnce = 16

// takeTopics makes what is missing here and gives the names of the mirrored topics.
func (r *run) takeTopics(ctx context.Context, m *source.Metadata) []string {
	f := r.filter.Load()
	var found, fresh []*source.Topic
	var missing, left []string
	image := r.m.o.Node.Image()
	for i := range m.Topics {
		t := &m.Topics[i]
		if t.Code != 0 || t.Internal || !f.topic(t.Name) || len(t.Partitions) == 0 {
			continue
		}
		_, here := image.TopicByName(t.Name)
		if !here && f.leavesOut(m, t.Name) {
			left = append(left, t.Name)
			continue
		}
		found = append(found, t)
		if !here {
			missing, fresh = append(missing, t.Name), append(fresh, t)
		}
	}
	configs, loops := r.sourceConfigs(ctx, missing), r.loops(ctx, fresh)
	var mu sync.Mutex
	var names []string                                           // guarded by mu
	var faults []topicFault                                      // guarded by mu
	_ = clock.Each(ctx, len(found), createsAtOnce, func(i int) { // what was not begun is looked at again
		t := found[i]
		mine, err := false, loops[t.Name]
		if err == nil {
			mine, err = r.takeTopic(ctx, t, configs[t.Name])
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			faults = append(faults, topicFault{t.Name, err})
		}
		if mine {
			names = append(names, t.Name)
		}
	})
	slices.Sort(names)
	slices.SortFunc(faults, func(a, b topicFault) int { return strings.Compare(a.topic, b.topic) })
	r.topicFaults.Store(&faults)
	if words := r.topicsTrouble(r.m.o.Node.Image()); words == "" {
		r.health.ok(syncTopics)
	} else {
		r.noteFault(syncTopics, errors.New(words))
	}
	r.health.say(syncTopics, leftOut(left))
	return names
}

// leftOutShown bounds how many topics are named that a mirror leaves out.
const leftOutShown = 3

// leftOut says which topics of drills at the source are not mirrored; empty if there are none.
func leftOut(topics []string) string {
	if len(topics) == 0 {
		return ""
	}
	slices.Sort(topics)
	names := strings.Join(topics[:min(len(topics), leftOutShown)], ", ")
	if len(topics) > leftOutShown {
		names += ", …"
	}
	return fmt.Sprintf("left out: %d topics of drills at the source (%s); an expression of topics that says drill. itself takes them in", len(topics), names)
}

func (r *run) noteFault(sync string, err error) {
	if r.ctx.Err() == nil && r.health.failed(sync, err) {
		r.m.log.Warn("a mirror's sync has trouble", "mirror", r.name, "sync", sync, "err", err)
	}
}

// takeTopic makes one topic, or its new partitions, and reports whether it is this mirror's.
func (r *run) takeTopic(ctx context.Context, t *source.Topic, configs topicConfigs) (mine bool, err error) {
	image := r.m.o.Node.Image()
	here, ok := image.TopicByName(t.Name)
	if !ok {
		if image.IsDropped(t.Name) {
			return false, errors.New("a drill here that is being made or deleted has the name; --exclude leaves the topic out")
		}
		if named, taken := image.NameEntry(t.Name); taken {
			return false, fmt.Errorf("the topic's metadata here can't be read: %w", named.Fault)
		}
		if err := r.createTopic(ctx, t, configs); err != nil {
			return false, err
		}
		return true, nil
	}
	if err := r.refusal(image, here); err != nil {
		return false, err
	}
	switch _, promoted := r.follows(image, here.ID); {
	case promoted:
		return false, nil
	case !t.ID.IsZero() && t.ID != here.ID:
		return false, nil // its partitions say TOPIC_ID_MISMATCH
	case len(t.Partitions) > int(here.Record.Partitions):
		return true, r.addPartitions(ctx, here, t)
	}
	return true, nil
}

// follows reports whether a topic here belongs to this mirror, and whether it has been promoted.
func (r *run) follows(image *meta.Image, id types.TopicID) (follows, promoted bool) {
	for p := range image.PartitionsOf(id) {
		if p.Record == nil || p.Record.Mirror == nil || p.Record.Mirror.Name != r.name {
			return false, false
		}
		promoted = promoted || p.Record.Writable
	}
	return true, promoted
}

// isEarlier reports whether a topic was promoted under an earlier start of a mirror of this name.
func (r *run) isEarlier(image *meta.Image, id types.TopicID) bool {
	for p := range image.PartitionsOf(id) {
		if p.Record != nil && p.Record.Mirror != nil && p.Record.Mirror.StartID != r.record.Load().StartID {
			return true
		}
	}
	return false
}

// errNotRunning says that a mirror was paused, failed over or started anew while
// something was to be made for it.
var errNotRunning = errors.New("the mirror doesn't run any more")

// whileRunning makes plans for n new partitions, whose mirror parts plan is given.
// They hold only while the mirror runs in this start.
//
// Invariant I-260 (R23, R25): nothing is made for a mirror that was failed over: it
// would be promoted at once, empty, on a history of its own.
func (r *run) whileRunning(image *meta.Image, n int, plan func([]meta.MirrorState) ([]meta.Plan, error)) ([]meta.Plan, error) {
	e, ok := image.Mirror(r.name)
	unasked := r.m.o.Rules.MadeUnasked
	if !ok || e.Record.Want != meta.WantRunning && !unasked {
		return nil, errNotRunning
	}
	states := slices.Repeat([]meta.MirrorState{*core.NewMirrored(r.name, e.Record.StartID)}, n)
	plans, err := plan(states)
	for i := range plans {
		if unasked {
			break
		}
		plans[i].If = append(slices.Clip(plans[i].If), meta.ModRevisionIs(image.Keys().Mirror(r.name), e.ModRevision))
	}
	return plans, err
}

func (r *run) createTopic(ctx context.Context, t *source.Topic, configs topicConfigs) error {
	if configs.set == nil {
		return fmt.Errorf("its configs aren't known yet: %w", configs.err)
	}
	id := t.ID
	if id.IsZero() {
		id = r.m.o.IDs.FreshTopic()
	}
	if err := r.m.endCutOf(ctx, r.name, id); err != nil {
		return err
	}
	set := configs.set
	req := control.CreateTopicRequest{
		Name: t.Name, ID: id, Partitions: int32(len(t.Partitions)),
		Configs: set, MinISR: int(r.m.o.Config.Topic(set).MinInsyncReplicas), TimelineID: r.m.o.IDs.Fresh(),
	}
	err := r.m.commitAll(ctx, func(image *meta.Image) ([]meta.Plan, error) {
		req.ReplicationFactor = replicas(image, r.settings.Load())
		return r.whileRunning(image, len(t.Partitions), func(states []meta.MirrorState) ([]meta.Plan, error) {
			req.Mirrors = states
			return control.CreateTopic(image, req, r.m.o.Node.Me(), r.m.o.Node.Limits())
		})
	})
	if errors.Is(err, control.ErrTopicExists) {
		return nil // another node of this cluster has just made it
	}
	if err != nil {
		return fmt.Errorf("can't be created: %w", err)
	}
	r.m.log.Info("topic found at the source", "mirror", r.name, "topic", t.Name, "partitions", len(t.Partitions), "replicas", req.ReplicationFactor)
	return nil
}

// comparedMost bounds the partitions of a topic that the plan of its growth compares.
const comparedMost = 50

// mirroredStill holds while no partition of a topic, of the first ones at least, is written: a
// failover of single topics changes their partitions alone. What is made beside it would be
// promoted empty, or stay a mirror's in a topic that clients write to (I-260).
func mirroredStill(image *meta.Image, id types.TopicID) (holds []meta.Compare) {
	for p := range image.PartitionsOf(id) {
		if len(holds) < comparedMost {
			holds = append(holds, meta.ModRevisionIs(image.Keys().Partition(id, p.ID.Number), p.ModRevision))
		}
	}
	return holds
}

func (r *run) addPartitions(ctx context.Context, here *meta.Topic, t *source.Topic) error {
	count := int32(len(t.Partitions))
	err := r.m.commitAll(ctx, func(image *meta.Image) ([]meta.Plan, error) {
		now, ok := image.Topic(here.ID)
		if _, promoted := r.follows(image, here.ID); promoted || !ok || now.Record.Partitions >= count {
			return nil, nil // a topic that was failed over meanwhile grows no more by its source
		}
		req := control.CreatePartitionsRequest{
			Topic: here.ID, Count: count, MinISR: int(r.m.o.Config.Topic(now.Record.Configs).MinInsyncReplicas),
			TimelineID: r.m.o.IDs.Fresh(),
		}
		return r.whileRunning(image, int(count-now.Record.Partitions), func(states []meta.MirrorState) ([]meta.Plan, error) {
			req.Mirrors = states
			plans, err := control.CreatePartitions(image, req, r.m.o.Node.Me(), r.m.o.Node.Limits())
			for i := range plans {
				plans[i].If = append(slices.Clip(plans[i].If), mirroredStill(image, here.ID)...)
			}
			return plans, err
		})
	})
	if err != nil {
		return fmt.Errorf("new partitions can't be created: %w", err)
	}
	r.m.log.Info("partitions found at the source", "mirror", r.name, "topic", t.Name, "partitions", count)
	return nil
}

// topicConfigs is what is to be copied of one topic's configs, or why it isn't known.
type topicConfigs struct {
	set map[string]string // nil if not known
	err error
}

// topicsPerDescribe bounds one DescribeConfigs request.
const topicsPerDescribe = 500

// sourceConfigs gives what the source has set on topics, as far as it is to be
// copied and means something here.
func (r *run) sourceConfigs(ctx context.Context, topics []string) map[string]topicConfigs {
	out := make(map[string]topicConfigs, len(topics))
	exclude := r.settings.Load().ConfigExclude
	for chunk := range slices.Chunk(topics, topicsPerDescribe) {
		client, err := r.source()
		var all map[string]source.TopicConfigs
		if err == nil {
			all, err = client.TopicConfigs(ctx, chunk)
		}
		for _, name := range chunk {
			tc, ok := all[name]
			switch {
			case err != nil:
				out[name] = topicConfigs{err: err}
			case !ok || tc.Code != 0:
				out[name] = topicConfigs{err: fmt.Errorf("the source answers %s to DescribeConfigs", tc.Code)}
			default:
				out[name] = topicConfigs{set: usable(tc.Set, exclude)}
			}
		}
	}
	return out
}

// usable leaves out the configs that aren't to be copied or mean nothing here.
func usable(configs map[string]string, exclude []string) map[string]string {
	set := map[string]string{}
	for key, value := range configs {
		if !slices.Contains(exclude, key) && config.ValidateTopic(map[string]string{key: value}) == nil {
			set[key] = value
		}
	}
	return set
}

// syncConfigs copies the topics' configs. What the mirror doesn't copy stays as it is here.
func (r *run) syncConfigs(ctx context.Context, topics []string) {
	var faults []error
	configs := r.sourceConfigs(ctx, topics)
	for _, name := range topics {
		err := configs[name].err
		if err == nil {
			err = r.setConfigs(ctx, name, configs[name].set)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("topic %s: %w", name, err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		r.noteFault(syncConfigs, err)
		return
	}
	r.health.ok(syncConfigs)
}

func (r *run) setConfigs(ctx context.Context, topic string, set map[string]string) error {
	exclude := r.settings.Load().ConfigExclude
	return r.m.commitAll(ctx, func(image *meta.Image) ([]meta.Plan, error) {
		t, ok := image.TopicByName(topic)
		if !ok {
			return nil, nil
		}
		if follows, promoted := r.follows(image, t.ID); !follows || promoted {
			return nil, nil
		}
		next := map[string]string{}
		for key, value := range t.Record.Configs {
			if slices.Contains(exclude, key) {
				next[key] = value
			}
		}
		same := true
		for key, value := range set {
			next[key] = value
			have, ok := t.Record.Configs[key]
			same = same && ok && have == value
		}
		if same && len(next) == len(t.Record.Configs) {
			return nil, nil
		}
		r.m.log.Info("topic configs copied from the source", "mirror", r.name, "topic", topic, "configs", next)
		minISR := int(r.m.o.Config.Topic(next).MinInsyncReplicas)
		return control.AlterTopicConfigs(image, t.ID, next, minISR, r.m.o.Node.Me(), r.m.o.Node.Limits())
	})
}

// commitTries is how often plans are made anew after a refusal.
const commitTries = 10

// commitAll makes plans from the newest image and commits them in order; after a
// refusal they are made anew.
func (m *Mirrors) commitAll(ctx context.Context, plans func(*meta.Image) ([]meta.Plan, error)) error {
	for try := 1; ; try++ {
		list, err := plans(m.o.Node.Image())
		for _, p := range list {
			if err == nil {
				_, err = m.o.Node.Commit(ctx, p)
			}
		}
		if err == nil || !errors.Is(err, metastore.ErrRefused) || try == commitTries {
			return err
		}
	}
}

// update changes a mirror's record.
func (m *Mirrors) update(ctx context.Context, name string, change func(*meta.MirrorRecord) error) error {
	return m.commitAll(ctx, func(image *meta.Image) ([]meta.Plan, error) {
		e, ok := image.Mirror(name)
		if !ok {
			return nil, fmt.Errorf("%w: %s", ErrUnknownMirror, name)
		}
		rec := *e.Record
		if err := change(&rec); err != nil {
			return nil, err
		}
		plan, err := control.UpdateMirror(image, rec, m.o.Node.Me())
		return []meta.Plan{plan}, err
	})
}
