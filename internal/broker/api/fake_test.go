package api

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

const testCluster = "testCluster"

// world is a broker as the handlers see it: an image made of real events, and
// partitions in memory.
type world struct {
	t      testing.TB
	server *Server

	mu       sync.Mutex
	image    *meta.Image
	settings Settings
	parts    map[meta.PartitionID]*fakePartition
	topics   fakeTopics
	nextPID  types.ProducerID
	pidErr   error
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, image: meta.Empty(testCluster), parts: make(map[meta.PartitionID]*fakePartition), nextPID: 7000,
		settings: Settings{DeleteTopics: true, DefaultPartitions: 2, DefaultReplicationFactor: 1, FetchMaxBytes: 50 << 20,
			FetchSessionSlots: 10, FetchSessionIdle: time.Minute, MaxPartitionsPerDescribe: 2000}}
	w.topics.world = w
	w.server = NewServer(Deps{
		Image:     func() *meta.Image { w.mu.Lock(); defer w.mu.Unlock(); return w.image },
		Settings:  func() Settings { w.mu.Lock(); defer w.mu.Unlock(); return w.settings },
		ClusterID: testCluster, NodeID: 1, Logger: slog.New(slog.DiscardHandler),
		Now:        func() types.Millis { return 1_000_000 },
		Partitions: (*fakePartitions)(w), Topics: &w.topics, ProducerIDs: (*fakePIDs)(w), Transactions: &fakeTxns{node: 1}, Cluster: &fakeCluster{}, Operator: &fakeOperator{},
	})
	w.server.Markers = MarkerWriter{Image: w.server.Image, Partitions: w.server.Partitions, Groups: &fakeGroups{node: 1}, Now: w.server.Now}
	keys := meta.KeysOf(testCluster)
	w.apply(map[string][]byte{
		keys.Broker(1): meta.BrokerRecord{ID: 1, Rack: "r1", Incarnation: "a", DirectoryID: "d", Endpoints: []meta.Endpoint{
			{Listener: "PLAINTEXT", Host: "one.example", Port: 9092, Security: "PLAINTEXT"},
			{Listener: "INTERNAL", Host: "10.0.0.1", Port: 9093, Security: "PLAINTEXT"}}}.Encode(),
		keys.Broker(2): meta.BrokerRecord{ID: 2, Incarnation: "b", DirectoryID: "e", Endpoints: []meta.Endpoint{
			{Listener: "PLAINTEXT", Host: "two.example", Port: 9092, Security: "PLAINTEXT"}}}.Encode(),
		keys.Features(): meta.FeaturesRecord{Levels: map[string]int16{meta.FeatureMetadata: 1, meta.FeatureGroups: 1}}.Encode(),
	})
	return w
}

// apply puts keys into the image; a nil value deletes.
func (w *world) apply(kvs map[string][]byte) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	ev := meta.Events{Revision: w.image.Revision() + 1}
	for k, v := range kvs {
		e := meta.Event{KV: meta.KV{Key: k, Value: v, CreateRevision: ev.Revision, ModRevision: ev.Revision}}
		if v == nil {
			e.Kind = meta.EventDelete
		}
		ev.Events = append(ev.Events, e)
	}
	slices.SortFunc(ev.Events, func(a, b meta.Event) int { return len(a.KV.Key) - len(b.KV.Key) })
	w.image, _ = w.image.Apply(ev)
	for f := range w.image.Faults() {
		w.t.Fatalf("image: %v", f)
	}
}

// topicOptions shape a topic of the world.
type topicOptions struct {
	partitions int32
	internal   bool
	mirror     string         // name of the mirror that it belongs to
	fenced     bool           // closed for a switchover
	leader     types.BrokerID // 0: broker 1
	epoch      types.LeaderEpoch
	noLog      bool // no partitions here
}

func topicIDOf(name string) types.TopicID {
	var id types.TopicID
	copy(id[:], "id-of-"+name)
	return id
}

// topic makes a topic, led by broker 1 unless said otherwise.
func (w *world) topic(name string, o topicOptions) types.TopicID {
	w.t.Helper()
	id := topicIDOf(name)
	o.partitions = max(o.partitions, 1)
	if o.leader == 0 {
		o.leader = 1
	}
	keys := meta.KeysOf(testCluster)
	kvs := map[string][]byte{
		keys.Topic(id):  meta.TopicRecord{ID: id, Name: name, Partitions: o.partitions, Internal: o.internal}.Encode(),
		keys.Name(name): meta.NameRecord{ID: id}.Encode(),
	}
	for n := range o.partitions {
		rec := meta.PartitionRecord{Replicas: []types.BrokerID{1, 2}, ISR: []meta.ISRMember{{ID: o.leader, BrokerEpoch: 1}},
			Leader: o.leader, LeaderBrokerEpoch: 1, LeaderEpoch: o.epoch, MinISR: 1, Writable: o.mirror == "",
			Timelines: timeline.List{{ID: "t", FirstEpoch: 0, FirstOffset: 0}}}
		if o.leader == types.NoBroker {
			rec.LeaderBrokerEpoch, rec.ISR = types.NoBrokerEpoch, []meta.ISRMember{{ID: 2, BrokerEpoch: 1}}
		}
		if o.fenced {
			rec.Writable, rec.Fence = false, &meta.Fence{ClusterID: "another", StartID: "s"}
		}
		if o.mirror != "" {
			rec.Mirror = &meta.MirrorState{Name: o.mirror, State: meta.MirrorMirroring, StartID: "s"}
		}
		kvs[keys.Partition(id, n)] = rec.Encode()
		if !o.noLog {
			w.parts[meta.PartitionID{Topic: id, Number: n}] = &fakePartition{id: id, tp: types.TopicPartition{Topic: name, Partition: n},
				epoch: o.epoch, leader: o.leader, mirror: o.mirror, release: new(counter)}
		}
	}
	w.apply(kvs)
	return id
}

func (w *world) part(name string, n int32) *fakePartition {
	p := w.parts[meta.PartitionID{Topic: topicIDOf(name), Number: n}]
	if p == nil {
		w.t.Fatalf("no partition %s-%d", name, n)
	}
	return p
}

// request makes a request as it would come off the wire.
func request(in kmsg.Request, version int16, client string) *wire.Request {
	in.SetVersion(version)
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID(client)).AppendRequest(nil, in, 42)
	req, err := wire.ParseRequest(frame[4:])
	if err != nil {
		panic(fmt.Sprintf("%T %d: %v", in, version, err))
	}
	req.Listener = "PLAINTEXT"
	return req
}

// try sends a request through encoding, dispatch and decoding; the answer is
// nil if there is none.
func (w *world) try(ctx context.Context, in kmsg.Request, version int16) (kmsg.Response, error) {
	w.t.Helper()
	return w.send(ctx, request(in, version, "test"), in)
}

func (w *world) send(ctx context.Context, req *wire.Request, in kmsg.Request) (kmsg.Response, error) {
	w.t.Helper()
	resp, err := w.server.Handle(ctx, req)
	if err != nil || resp == nil {
		return nil, err
	}
	defer resp.Done()
	b := flat(resp)
	if int64(len(b)) != resp.Size() {
		w.t.Errorf("answer of %d bytes says it has %d", len(b), resp.Size())
	}
	out := in.ResponseKind()
	out.SetVersion(req.Version)
	body := b[8:]
	if out.IsFlexible() && req.Key != wire.KeyApiVersions {
		body = body[1:]
	}
	if err := out.ReadFrom(body); err != nil {
		w.t.Fatalf("%T %d: unreadable answer: %v", in, req.Version, err)
	}
	return out, nil
}

// ask is try for requests that must be answered.
func ask[Out kmsg.Response](w *world, in kmsg.Request, version int16) Out {
	w.t.Helper()
	out, err := w.try(context.Background(), in, version)
	if err != nil {
		w.t.Fatalf("%T %d: %v", in, version, err)
	}
	msg, ok := out.(Out)
	if !ok {
		w.t.Fatalf("%T %d answered with %T", in, version, out)
	}
	return msg
}

func flat(r *wire.Response) []byte {
	var b []byte
	for _, p := range r.Pieces() {
		if p.File == nil {
			b = append(b, p.Mem...)
			continue
		}
		part := make([]byte, p.Len)
		if _, err := p.File.ReadAt(part, p.Off); err != nil {
			panic(err)
		}
		b = append(b, part...)
	}
	return b
}

// rawBatch makes a batch of n records of the given value size.
func rawBatch(n, size int) []byte {
	b := batch.NewBuilder(batch.BuilderOptions{})
	for i := range n {
		b.Append(types.Millis(1000+i), []byte("k"), make([]byte, size))
	}
	raw, err := b.Build()
	if err != nil {
		panic(err)
	}
	return raw
}

type counter struct {
	mu   sync.Mutex
	open int
}

func (c *counter) add(n int) {
	c.mu.Lock()
	c.open += n
	c.mu.Unlock()
}

func (c *counter) get() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// fakePartition is a partition in memory: batches, a high watermark, listeners.
type fakePartition struct {
	txnOpen bool // what Guard says
	id      types.TopicID
	tp      types.TopicPartition
	mirror  string

	mu        sync.Mutex
	epoch     types.LeaderEpoch
	batches   [][]byte
	starts    []types.Offset
	end       types.Offset
	hw        types.Offset
	stable    types.Offset // last stable offset; follows hw unless held
	held      bool
	logStart  types.Offset
	err       error // what every call gets
	appendErr error
	diverging *EpochEnd
	aborted   []AbortedTxn
	offsets   map[types.Millis]OffsetAnswer
	listeners map[int]func()
	nextID    int
	reads     int
	appended  []AppendRequest
	hold      chan struct{} // if set, Append waits for it
	release   *counter      // chunks handed out and not released
	readers   []replica.Reader
	leader    types.BrokerID // as the partition knows it
	follows   bool           // another broker leads: only GetReplica finds it
}

func (p *fakePartition) TopicID() types.TopicID     { return p.id }
func (p *fakePartition) Name() types.TopicPartition { return p.tp }

func (p *fakePartition) Append(_ context.Context, raw []byte, req AppendRequest) (AppendResult, error) {
	if p.hold != nil {
		<-p.hold
	}
	if p.mirror != "" {
		return AppendResult{}, ErrReadOnly(p.tp.Topic, p.mirror)
	}
	p.mu.Lock()
	if p.appendErr != nil || p.err != nil {
		defer p.mu.Unlock()
		return AppendResult{}, cmpErr(p.appendErr, p.err)
	}
	p.appended = append(p.appended, req)
	base := p.add(raw)
	p.mu.Unlock()
	p.advance(p.end)
	return AppendResult{BaseOffset: base, LogStart: p.logStart, LogAppendTime: types.NoTimestamp}, nil
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func (p *fakePartition) add(raw []byte) types.Offset {
	raw = slices.Clone(raw)
	h, err := batch.ParseHeader(raw)
	if err != nil {
		panic(err)
	}
	base := p.end
	batch.Stamp(raw, base, p.epoch)
	p.batches, p.starts = append(p.batches, raw), append(p.starts, base)
	p.end += types.Offset(h.LastOffsetDelta) + 1
	return base
}

// fill appends n batches of one record each, without moving the high watermark.
func (p *fakePartition) fill(n, size int) *fakePartition {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range n {
		p.add(rawBatch(1, size))
	}
	return p
}

// advance moves the high watermark and tells the listeners.
func (p *fakePartition) advance(hw types.Offset) {
	p.mu.Lock()
	p.hw = hw
	if !p.held {
		p.stable = hw
	}
	fs := make([]func(), 0, len(p.listeners))
	for _, f := range p.listeners {
		fs = append(fs, f)
	}
	p.mu.Unlock()
	for _, f := range fs {
		f()
	}
}

// fail makes every call fail from now on (nil: no more), and tells the listeners.
func (p *fakePartition) fail(err error) {
	p.mu.Lock()
	p.err = err
	hw := p.hw
	p.mu.Unlock()
	p.advance(hw)
}

func (p *fakePartition) Read(from types.Offset, req ReadRequest, out *ReadResult) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads++
	*out = ReadResult{Records: out.Records[:0], Aborted: out.Aborted[:0]}
	if err := p.fence(req.CurrentLeaderEpoch); err != nil {
		return err
	}
	out.HighWatermark, out.LastStable, out.LogStart = p.hw, p.stable, p.logStart
	if p.diverging != nil && req.LastFetchedEpoch >= 0 {
		out.Diverging, out.HasDiverging = *p.diverging, true
		return nil
	}
	if from < p.logStart || from > p.end {
		return wire.ErrOffsetOutOfRange
	}
	to := p.hw
	if req.Committed {
		to = p.stable
	}
	for i, b := range p.batches {
		if p.starts[i] < from || p.starts[i] >= to {
			continue
		}
		if out.Bytes+len(b) > req.MaxBytes && !(req.MinOne && out.Bytes == 0 && req.MaxBytes > 0) {
			break
		}
		out.Records = append(out.Records, wire.Piece{File: memFile(b), Len: int64(len(b))})
		out.Bytes += len(b)
	}
	if out.Bytes > 0 {
		if req.Committed {
			out.Aborted = append(out.Aborted, p.aborted...)
		}
		p.release.add(1)
		out.Release = func() { p.release.add(-1) }
	}
	return nil
}

func (p *fakePartition) fence(said types.LeaderEpoch) error {
	switch {
	case p.err != nil:
		return p.err
	case said < 0 || said == p.epoch:
		return nil
	case said < p.epoch:
		return wire.ErrFencedLeaderEpoch
	}
	return wire.ErrUnknownLeaderEpoch
}

func (p *fakePartition) Leader() (types.BrokerID, types.LeaderEpoch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leader == types.NoBroker {
		return types.NoBroker, types.NoLeaderEpoch
	}
	return p.leader, p.epoch
}

func (p *fakePartition) Readers() []replica.Reader {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.readers
}

func (p *fakePartition) OnProgress(f func()) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listeners == nil {
		p.listeners = make(map[int]func())
	}
	id := p.nextID
	p.nextID++
	p.listeners[id] = f
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.listeners, id)
	}
}

func (p *fakePartition) listening() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.listeners)
}

func (p *fakePartition) readCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reads
}

func (p *fakePartition) ListOffset(q OffsetQuery) (OffsetAnswer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.fence(q.CurrentLeaderEpoch); err != nil {
		return OffsetAnswer{}, err
	}
	switch q.Timestamp {
	case TimestampLatest:
		end := p.hw
		if q.Committed {
			end = p.stable
		}
		return OffsetAnswer{Offset: end, Timestamp: types.NoTimestamp, LeaderEpoch: p.epoch}, nil
	case TimestampEarliest, TimestampEarliestLocal:
		return OffsetAnswer{Offset: p.logStart, Timestamp: types.NoTimestamp, LeaderEpoch: 0}, nil
	}
	if a, ok := p.offsets[q.Timestamp]; ok {
		return a, nil
	}
	return OffsetAnswer{Offset: types.NoOffset, Timestamp: types.NoTimestamp, LeaderEpoch: types.NoLeaderEpoch}, nil
}

func (p *fakePartition) EpochEnd(current, asked types.LeaderEpoch) (types.LeaderEpoch, types.Offset, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.fence(current); err != nil {
		return 0, 0, err
	}
	if asked > p.epoch {
		return types.NoLeaderEpoch, types.NoOffset, nil
	}
	return asked, p.end, nil
}

func (p *fakePartition) LastEpoch(current types.LeaderEpoch) (types.LeaderEpoch, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.fence(current); err != nil || p.end == p.logStart {
		return types.NoLeaderEpoch, err
	}
	return p.epoch, nil
}

func (p *fakePartition) DeleteRecords(_ context.Context, before types.Offset) (types.Offset, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mirror != "" {
		return 0, ErrReadOnly(p.tp.Topic, p.mirror)
	}
	if before == types.NoOffset {
		before = p.hw
	}
	if before > p.hw {
		return 0, wire.ErrOffsetOutOfRange
	}
	p.logStart = max(p.logStart, before)
	return p.logStart, nil
}

type memFile []byte

func (f memFile) ReadAt(b []byte, off int64) (int, error) { return copy(b, f[off:]), nil }
func (f memFile) Fd() (uintptr, bool)                     { return 0, false }

type fakePartitions world

func (f *fakePartitions) Get(id types.TopicID, n int32) (Partition, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.parts[meta.PartitionID{Topic: id, Number: n}]
	if !ok {
		return nil, wire.ErrNotLeaderOrFollower
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.follows {
		return nil, wire.ErrNotLeaderOrFollower
	}
	return p, p.err
}

func (f *fakePartitions) GetReplica(id types.TopicID, n int32) (Partition, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.parts[meta.PartitionID{Topic: id, Number: n}]
	if !ok {
		return nil, wire.ErrNotLeaderOrFollower
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p, p.err
}

func (f *fakePartitions) LogDirs() []LogDir {
	return []LogDir{
		{Path: "/a", TotalBytes: 100, UsableBytes: 40, Partitions: []LogDirPartition{
			{TopicPartition: types.TopicPartition{Topic: "t", Partition: 1}, SizeBytes: 11, OffsetLag: 1},
			{TopicPartition: types.TopicPartition{Topic: "u", Partition: 0}, SizeBytes: 5},
			{TopicPartition: types.TopicPartition{Topic: "t", Partition: 0}, SizeBytes: 10}}},
		{Path: "/b", Err: wire.ErrKafkaStorageError, TotalBytes: -1, UsableBytes: -1},
	}
}

type fakePIDs world

func (f *fakePIDs) Next(context.Context) (types.ProducerID, error) {
	f.nextPID++
	return f.nextPID, f.pidErr
}

// fakeTopics notes what it is asked, and answers err or a fixed thing.
type fakeTopics struct {
	world   *world
	err     error
	created []CreateTopic
	deleted []types.TopicID
	added   []AddPartitions
	altered []fakeAlter
	entries []ConfigEntry
}

type fakeAlter struct {
	Resource     ConfigResource
	Changes      []ConfigChange
	Replace      bool
	ValidateOnly bool
}

func (f *fakeTopics) Create(_ context.Context, t CreateTopic) (CreatedTopic, error) {
	f.created = append(f.created, t)
	if f.err != nil {
		return CreatedTopic{}, f.err
	}
	made := CreatedTopic{Partitions: max(t.Partitions, 1), ReplicationFactor: max(t.ReplicationFactor, 1), Configs: f.entries}
	if !t.ValidateOnly {
		made.ID = f.world.topic(t.Name, topicOptions{partitions: made.Partitions})
	}
	return made, nil
}

func (f *fakeTopics) Delete(_ context.Context, id types.TopicID) error {
	f.deleted = append(f.deleted, id)
	return f.err
}

func (f *fakeTopics) AddPartitions(_ context.Context, t AddPartitions) error {
	f.added = append(f.added, t)
	return f.err
}

func (f *fakeTopics) AlterConfigs(_ context.Context, r ConfigResource, ch []ConfigChange, replace, validateOnly bool) error {
	f.altered = append(f.altered, fakeAlter{r, ch, replace, validateOnly})
	return f.err
}

func (f *fakeTopics) DescribeConfigs(_ context.Context, _ ConfigResource, names []string) ([]ConfigEntry, error) {
	if names == nil {
		return f.entries, f.err
	}
	return slices.DeleteFunc(slices.Clone(f.entries), func(e ConfigEntry) bool { return !slices.Contains(names, e.Name) }), f.err
}

func ptr[T any](v T) *T { return &v }
