package source

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// FetchPartition is what a session asks of one partition.
type FetchPartition struct {
	types.TopicPartition
	// TopicID is zero for a source without topic ids; the session then stays below Fetch 13.
	TopicID types.TopicID
	// Offset is the asker's log end.
	Offset types.Offset
	// CurrentEpoch fences the fetch (KIP-320): the source's leader epoch as the asker knows it.
	CurrentEpoch types.LeaderEpoch
	// LastEpoch is the epoch of the asker's last record (KIP-595), types.NoLeaderEpoch for an empty log.
	LastEpoch types.LeaderEpoch
	// LogStart is the asker's log start; said only by a replica's session.
	LogStart types.Offset
	// Tail is the end of the asker's log, if it is to be compared; said only by a replica's session.
	Tail types.Tail
	// MaxBytes is the soft limit for this partition; the first batch comes whole.
	MaxBytes int32
}

// FetchLimits bound one fetch.
type FetchLimits struct {
	MaxWait            time.Duration
	MinBytes, MaxBytes int32
}

// EpochEnd is a diverging answer: the largest epoch that both may share and its end at the source.
type EpochEnd struct {
	Epoch types.LeaderEpoch
	End   types.Offset
}

// LeaderHint is what a broker that doesn't lead says about who does (KIP-951).
type LeaderHint struct {
	Leader types.BrokerID
	Epoch  types.LeaderEpoch
}

// FetchedPartition is one partition of an answer.
type FetchedPartition struct {
	types.TopicPartition
	// Asked is the request this answers; an asker that has moved on since drops the answer.
	Asked FetchPartition
	// Unchanged: the broker left the partition out, as sessions do where nothing
	// has changed: no error, no divergence, no records, the marks as they were.
	Unchanged bool
	Code      Code
	// Err is set if the source's figures can't be right; nothing else is valid then.
	Err error
	// HighWatermark, LastStable and LogStart are types.NoOffset where the source doesn't say.
	HighWatermark, LastStable, LogStart types.Offset
	Diverging                           *EpochEnd
	Leader                              *LeaderHint
	// Records are whole batches and perhaps the beginning of one more, as received.
	// They are valid until the answer's last Release.
	Records []byte
}

// Outgrows gives the size in bytes of the first batch if it is larger than the limit that it
// was asked with and didn't come whole; 0 otherwise. Kafka gives the first batch of an answer
// whole, whatever its size, but only the first.
func (p *FetchedPartition) Outgrows(bytesMax int32) int32 {
	if p.Code != 0 || p.Err != nil || len(p.Records) < batch.HeaderSize {
		return 0
	}
	h, err := batch.ParseHeader(p.Records)
	if err != nil || h.Size() <= len(p.Records) || h.Size() <= int(bytesMax) {
		return 0
	}
	return int32(h.Size())
}

// FetchAnswer is the answer to one fetch. It holds a part of the budget until
// released; each further holder calls Retain first. One that was made elsewhere (the simulator) holds none.
type FetchAnswer struct {
	Partitions []FetchedPartition
	// Version is the Fetch version it came by; below 12 a divergence is not told.
	Version int16
	// RecordBytes is the sum of the records' sizes.
	RecordBytes int64
	// Throttle is how long the source asks to wait before the next request (KIP-219).
	Throttle time.Duration

	frame *frame
}

// Retain adds a holder of the records.
func (a *FetchAnswer) Retain() {
	if a.frame != nil {
		a.frame.retain()
	}
}

// Release gives up the records; after the last holder their memory is used again.
func (a *FetchAnswer) Release() {
	if a.frame != nil {
		a.frame.release()
	}
}

// Session fetches from one broker with a fetch session (KIP-227), falling back
// to full requests where the broker keeps none. One goroutine uses it at a time.
type Session struct {
	c      *Client
	broker types.BrokerID
	budget *Budget
	lane   purpose
	// replica is nil for a consumer's session.
	replica *Replica
	said    types.BrokerEpoch // the replica's registration, as the session's last request named it

	// over, if not nil, carries requests in the place of connections.
	over Exchange

	// asking is the session id and, in the lower half, the epoch of the request
	// under way, 0 if there is none that could be woken.
	asking atomic.Int64

	id    int32
	epoch int32 // 0: the next request is full and opens a session

	wanted   map[types.TopicPartition]*wantedPartition
	order    []types.TopicPartition // of wanted, for full requests; rotated
	dirty    []types.TopicPartition // to be sent in the next incremental request
	gone     []forgotten
	zeroIDs  int // wanted partitions without topic id
	byID     map[types.TopicID]string
	rotation int
	answers  uint64 // taken so far
}

type wantedPartition struct {
	FetchPartition
	dirty bool
	place int // in order
	// answered is the number of the last answer that held it (Session.answers).
	answered uint64
	// highWatermark and logStart are as last answered in this session.
	highWatermark, logStart types.Offset
}

type forgotten struct {
	topic     string
	id        types.TopicID
	partition int32
}

// SessionOptions are a session's own. The zero value is right for one session with a broker.
type SessionOptions struct {
	// Budget is what the answers' memory is taken from; nil for the client's.
	Budget *Budget
	// Lane numbers the sessions with one broker: each lane is a connection of its
	// own, so that one's long poll doesn't hold up another's answer.
	Lane int
	// Replica fetches as a replica of the broker's own cluster; nil: as a consumer.
	Replica *Replica
}

// Replica is who fetches from another broker of its own cluster.
type Replica struct {
	ID types.BrokerID
	// Epoch gives the present registration at each fetch (KIP-903).
	Epoch func() types.BrokerEpoch
}

// NewSession makes a session with the broker; nothing is sent before Fetch.
func (c *Client) NewSession(broker types.BrokerID, o SessionOptions) *Session {
	if o.Budget == nil {
		o.Budget = c.budget
	}
	return &Session{c: c, broker: broker, budget: o.Budget, lane: purposeFetches + purpose(o.Lane), replica: o.Replica, wanted: map[types.TopicPartition]*wantedPartition{}, byID: map[types.TopicID]string{}}
}

// Exchange sends a request's frame, without its size field, and gives the answer's.
type Exchange func(ctx context.Context, request []byte) (answer []byte, err error)

// NewSessionOver makes a session that speaks over something else than a
// connection: the simulator's network. The broker speaks what this program speaks.
func NewSessionOver(over Exchange, broker types.BrokerID, o SessionOptions) *Session {
	c := &Client{cfg: &Config{}, brokers: map[types.BrokerID]Broker{}}
	s := c.NewSession(broker, o)
	s.over = over
	return s
}

// NewClientOver makes a client whose requests about transactions (WriteTxnMarkers,
// AddPartitionsToTxn) go over something else than connections, as NewSessionOver does.
// It can do nothing else.
func NewClientOver(over func(broker types.BrokerID) Exchange) *Client {
	return &Client{cfg: &Config{}, brokers: map[types.BrokerID]Broker{}, over: over}
}

// line is what a session asks over.
type line interface {
	version(key int16) (int16, error)
	roundTrip(ctx context.Context, req kmsg.Request, timeout time.Duration, bytesMax int, budget *Budget) (kmsg.Response, *frame, error)
	name() string
}

func (s *Session) line(ctx context.Context, p purpose) (line, error) {
	if s.over != nil {
		return s.over, nil
	}
	return s.c.brokerConn(ctx, s.broker, p)
}

func (x Exchange) name() string { return "the simulator" }

func (x Exchange) version(key int16) (int16, error) { return apiOf(key).max, nil }

func (x Exchange) roundTrip(ctx context.Context, req kmsg.Request, _ time.Duration, _ int, _ *Budget) (kmsg.Response, *frame, error) {
	raw, err := x(ctx, kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)[4:])
	if err != nil {
		return nil, nil, err
	}
	f := &frame{bytes: raw[4:]} // behind the correlation id
	f.refs.Store(1)
	head := 0
	if req.IsFlexible() {
		if head, err = tagSectionSize(f.bytes); err != nil {
			return nil, nil, err
		}
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	return resp, f, resp.ReadFrom(f.bytes[head:])
}

// Broker gives the broker that the session fetches from.
func (s *Session) Broker() types.BrokerID { return s.broker }

// Len gives the number of partitions in the session.
func (s *Session) Len() int { return len(s.wanted) }

// Set adds a partition or changes what is asked of it from the next fetch on.
func (s *Session) Set(p FetchPartition) {
	w := s.wanted[p.TopicPartition]
	if w != nil && w.TopicID != p.TopicID {
		s.Remove(p.TopicPartition) // a recreated topic is another partition of the session
		w = nil
	}
	if w == nil {
		w = &wantedPartition{place: len(s.order), highWatermark: types.NoOffset, logStart: types.NoOffset}
		s.wanted[p.TopicPartition] = w
		s.order = append(s.order, p.TopicPartition)
		if p.TopicID.IsZero() {
			s.zeroIDs++
		} else {
			s.byID[p.TopicID] = p.Topic
		}
	}
	w.FetchPartition = p
	if !w.dirty {
		w.dirty = true
		s.dirty = append(s.dirty, p.TopicPartition)
	}
}

// Remove takes a partition out of the session.
func (s *Session) Remove(tp types.TopicPartition) {
	w := s.wanted[tp]
	if w == nil {
		return
	}
	delete(s.wanted, tp)
	last := len(s.order) - 1
	s.order[w.place] = s.order[last]
	if w.place != last {
		s.wanted[s.order[w.place]].place = w.place
	}
	s.order = s.order[:last]
	if w.TopicID.IsZero() {
		s.zeroIDs--
	}
	if s.epoch > 0 {
		s.gone = append(s.gone, forgotten{tp.Topic, w.TopicID, tp.Partition})
	}
}

// fetchBytesOver is what an answer may be larger than the asked bytes: the first batch
// comes whole, and no broker takes a request above 100 MiB by default (socket.request.max.bytes).
const fetchBytesOver = 100<<20 + 64<<10

// Fetch sends what is wanted and waits for the answer. A session that the
// broker has forgotten is opened anew at once. The caller releases the answer.
func (s *Session) Fetch(ctx context.Context, lim FetchLimits) (*FetchAnswer, error) {
	for attempt := 0; ; attempt++ {
		a, code, err := s.fetchOnce(ctx, lim)
		if err != nil {
			s.epoch = 0
			return nil, err
		}
		switch code {
		case CodeNone:
			return a, nil
		case CodeFetchSessionIDNotFound, CodeInvalidFetchSessionEpoch, CodeFetchSessionTopicIDError, CodeInconsistentTopicID:
			if code == CodeFetchSessionIDNotFound {
				s.id = 0
			}
			if full := s.epoch == 0; !full || attempt == 0 {
				s.epoch = 0
				continue
			}
		}
		s.epoch = 0
		return nil, answerError(s.brokerName(), "Fetch", code, "")
	}
}

// Wake asks the broker to answer the fetch that waits there, if there is one and
// the broker is one of ours. Unlike the other methods it may be called from any goroutine, beside Fetch.
func (s *Session) Wake(ctx context.Context) error {
	asking := s.asking.Load()
	if asking == 0 {
		return nil
	}
	l, err := s.line(ctx, purposeRequests)
	if err != nil {
		return err
	}
	if _, err := l.version(int16(wire.KeyWakeFetch)); err != nil {
		return nil // it isn't one of ours
	}
	_, _, err = l.roundTrip(ctx, &wire.WakeFetchRequest{SessionID: int32(asking >> 32), SessionEpoch: int32(asking)}, s.c.cfg.RequestTimeout, controlBytesMax, nil)
	return err
}

func (s *Session) brokerName() string {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if b, ok := s.c.brokers[s.broker]; ok {
		return b.Address()
	}
	return fmt.Sprintf("broker %d", s.broker)
}

func (s *Session) fetchOnce(ctx context.Context, lim FetchLimits) (*FetchAnswer, Code, error) {
	l, err := s.line(ctx, s.lane)
	if err != nil {
		return nil, 0, err
	}
	version, err := l.version(1)
	if err != nil {
		return nil, 0, err
	}
	if s.zeroIDs > 0 {
		version = min(version, 12)
	}
	req, asked := s.request(version, lim)
	if s.epoch > 0 {
		s.asking.Store(int64(s.id)<<32 | int64(s.epoch))
		defer s.asking.Store(0)
	}
	kr, f, err := l.roundTrip(ctx, req, s.c.cfg.RequestTimeout+lim.MaxWait, int(lim.MaxBytes)+fetchBytesOver, s.budget)
	if err != nil {
		return nil, 0, err
	}
	resp := kr.(*kmsg.FetchResponse)
	if resp.ErrorCode != 0 {
		f.release()
		return nil, Code(resp.ErrorCode), nil
	}
	a, err := s.answer(l.name(), resp, f)
	if err != nil {
		f.release()
		return nil, 0, err
	}
	s.addUnchanged(a, asked)
	s.sent(asked)
	s.advance(resp.SessionID)
	for _, b := range resp.Brokers {
		s.c.addBroker(Broker{ID: types.BrokerID(b.NodeID), Host: b.Host, Port: b.Port})
	}
	return a, 0, nil
}

// request builds a full request (epoch 0) or an incremental one with what has changed.
func (s *Session) request(version int16, lim FetchLimits) (*kmsg.FetchRequest, []types.TopicPartition) {
	s.renew()
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(version)
	req.ReplicaID = -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(lim.MaxWait/time.Millisecond), lim.MinBytes, lim.MaxBytes
	req.IsolationLevel = 0
	req.SessionID, req.SessionEpoch = s.id, s.epoch
	s.identify(req)
	asked := s.dirty
	if s.epoch == 0 {
		// The order rotates past the partitions that have just given data, so that
		// none is always beyond the byte limit; within a session the broker does it.
		asked = make([]types.TopicPartition, 0, len(s.order))
		for i := range s.order {
			asked = append(asked, s.order[(i+s.rotation)%len(s.order)])
		}
	} else {
		req.ForgottenTopics = s.forgotten()
	}
	for _, tp := range asked {
		w := s.wanted[tp]
		if w == nil {
			continue
		}
		n := len(req.Topics)
		if n == 0 || req.Topics[n-1].Topic != tp.Topic {
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = tp.Topic, w.TopicID
			req.Topics = append(req.Topics, t)
			n++
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset = tp.Partition, int64(w.Offset)
		p.CurrentLeaderEpoch, p.LastFetchedEpoch = int32(w.CurrentEpoch), int32(w.LastEpoch)
		p.LogStartOffset, p.PartitionMaxBytes = -1, w.MaxBytes
		if s.replica != nil {
			p.LogStartOffset = int64(w.LogStart)
			if w.Tail.Known {
				p.UnknownTags.Set(wire.FetchTailTag, wire.FormatFetchTail(w.Tail))
			}
		}
		req.Topics[n-1].Partitions = append(req.Topics[n-1].Partitions, p)
	}
	return req, asked
}

// renew opens the session anew when the replica has registered anew. A leader
// looks at an idle partition when it is asked for, and not with each request of a
// session: it would go on counting it in the registration of the first one, in
// which it can't join the ISR (KIP-903).
func (s *Session) renew() {
	if s.replica == nil {
		return
	}
	if now := s.replica.Epoch(); now != s.said {
		s.said, s.epoch = now, 0
	}
}

// identify says which replica fetches, if one does: in a field of its own from version 15 on.
func (s *Session) identify(req *kmsg.FetchRequest) {
	if s.replica == nil {
		return
	}
	req.ReplicaID = int32(s.replica.ID)
	if req.Version >= 15 {
		req.ReplicaState.ID, req.ReplicaState.Epoch = int32(s.replica.ID), int64(s.said)
	}
}

// forgotten lists the partitions that left the session and did not come back as the same ones.
func (s *Session) forgotten() []kmsg.FetchRequestForgottenTopic {
	var out []kmsg.FetchRequestForgottenTopic
	for _, g := range s.gone {
		if w := s.wanted[types.TopicPartition{Topic: g.topic, Partition: g.partition}]; w != nil && w.TopicID == g.id {
			continue
		}
		f := kmsg.NewFetchRequestForgottenTopic()
		f.Topic, f.TopicID, f.Partitions = g.topic, g.id, []int32{g.partition}
		out = append(out, f)
	}
	return out
}

// addUnchanged answers for the broker what it was newly asked and left out.
func (s *Session) addUnchanged(a *FetchAnswer, asked []types.TopicPartition) {
	for _, tp := range asked {
		w := s.wanted[tp]
		if w == nil || !w.dirty || w.answered == s.answers {
			continue
		}
		w.answered = s.answers
		a.Partitions = append(a.Partitions, FetchedPartition{
			TopicPartition: tp, Asked: w.FetchPartition, Unchanged: true,
			HighWatermark: w.highWatermark, LastStable: types.NoOffset, LogStart: w.logStart,
		})
	}
}

// sent marks what the broker now knows.
func (s *Session) sent(asked []types.TopicPartition) {
	for _, tp := range asked {
		if w := s.wanted[tp]; w != nil {
			w.dirty = false
		}
	}
	for _, tp := range s.dirty { // a full request sends the dirty ones too
		if w := s.wanted[tp]; w != nil {
			w.dirty = false
		}
	}
	s.dirty, s.gone = s.dirty[:0], s.gone[:0]
	if len(s.byID) > 2*len(s.wanted)+16 {
		clear(s.byID)
		for _, w := range s.wanted {
			s.byID[w.TopicID] = w.Topic
		}
	}
}

// advance moves to the session's next epoch; id 0 means that the broker keeps no session.
func (s *Session) advance(id int32) {
	switch {
	case id == 0:
		s.id, s.epoch = 0, 0
	case s.epoch == 1<<31-1:
		s.id, s.epoch = id, 1
	default:
		s.id, s.epoch = id, s.epoch+1
	}
}

// answer checks the response against what was asked.
func (s *Session) answer(broker string, resp *kmsg.FetchResponse, f *frame) (*FetchAnswer, error) {
	a := &FetchAnswer{Version: resp.Version, Throttle: time.Duration(max(resp.ThrottleMillis, 0)) * time.Millisecond, frame: f}
	s.answers++
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		topic := rt.Topic
		if resp.Version >= 13 {
			var ok bool
			if topic, ok = s.byID[rt.TopicID]; !ok {
				return nil, protocolError(broker, "Fetch", "an answer for topic id %s, which was not asked for", types.TopicID(rt.TopicID))
			}
		}
		for j := range rt.Partitions {
			tp := types.TopicPartition{Topic: topic, Partition: rt.Partitions[j].Partition}
			w := s.wanted[tp]
			if w == nil || (resp.Version >= 13 && w.TopicID != types.TopicID(rt.TopicID)) {
				return nil, protocolError(broker, "Fetch", "an answer for %s, which was not asked for", tp)
			}
			if w.answered == s.answers {
				return nil, protocolError(broker, "Fetch", "two answers for %s", tp)
			}
			w.answered = s.answers
			p := fetchedFrom(broker, w.FetchPartition, &rt.Partitions[j])
			if p.Code == 0 && p.Err == nil && p.Diverging == nil {
				w.highWatermark, w.logStart = p.HighWatermark, p.LogStart
			}
			a.RecordBytes += int64(len(p.Records))
			if len(p.Records) > 0 {
				s.rotation++
			}
			a.Partitions = append(a.Partitions, p)
		}
	}
	return a, nil
}

// fetchedFrom takes one partition over and checks its figures.
func fetchedFrom(broker string, asked FetchPartition, rp *kmsg.FetchResponseTopicPartition) FetchedPartition {
	p := FetchedPartition{
		TopicPartition: asked.TopicPartition, Asked: asked, Code: Code(rp.ErrorCode),
		HighWatermark: types.Offset(rp.HighWatermark), LastStable: types.Offset(rp.LastStableOffset), LogStart: types.Offset(rp.LogStartOffset),
	}
	if rp.CurrentLeader.LeaderID >= 0 || rp.CurrentLeader.LeaderEpoch >= 0 {
		p.Leader = &LeaderHint{Leader: types.BrokerID(rp.CurrentLeader.LeaderID), Epoch: types.LeaderEpoch(rp.CurrentLeader.LeaderEpoch)}
	}
	if p.Code != 0 {
		return p
	}
	if rp.DivergingEpoch.Epoch >= 0 || rp.DivergingEpoch.EndOffset >= 0 {
		p.Diverging = &EpochEnd{Epoch: types.LeaderEpoch(rp.DivergingEpoch.Epoch), End: types.Offset(rp.DivergingEpoch.EndOffset)}
		if p.Diverging.End < 0 {
			p.Err = protocolError(broker, "Fetch", "%s diverges at epoch %d, offset %d", p.TopicPartition, p.Diverging.Epoch, p.Diverging.End)
		}
		return p
	}
	if p.HighWatermark < 0 || p.LogStart < types.NoOffset || p.LogStart > p.HighWatermark {
		p.Err = protocolError(broker, "Fetch", "%s has log start %d and high watermark %d", p.TopicPartition, p.LogStart, p.HighWatermark)
		return p
	}
	p.Records = rp.RecordBatches
	return p
}

// SetBroker says where a broker is to be found, beside what metadata says.
func (c *Client) SetBroker(b Broker) { c.addBroker(b) }

// addBroker learns an address from a leader hint.
func (c *Client) addBroker(b Broker) {
	if b.ID < 0 || b.Host == "" || b.Port <= 0 || b.Port > 65535 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.brokers[b.ID] = b
}

// FetchAt fetches one partition once, without a session, over the connection for
// requests: for comparing, not for copying. The caller releases the answer.
func (c *Client) FetchAt(ctx context.Context, broker types.BrokerID, p FetchPartition) (*FetchedPartition, *FetchAnswer, error) {
	cn, err := c.brokerConn(ctx, broker, purposeRequests)
	if err != nil {
		return nil, nil, err
	}
	version, err := cn.versions.choose(cn.address, 1)
	if err != nil {
		return nil, nil, err
	}
	s := c.NewSession(broker, SessionOptions{})
	s.Set(p)
	if p.TopicID.IsZero() {
		version = min(version, 12)
	}
	lim := FetchLimits{MaxWait: 0, MinBytes: 0, MaxBytes: p.MaxBytes}
	req, _ := s.request(version, lim)
	req.SessionID, req.SessionEpoch = 0, -1 // no session (KIP-227)
	kr, f, err := cn.roundTrip(ctx, req, c.cfg.RequestTimeout, int(lim.MaxBytes)+fetchBytesOver, c.budget)
	if err != nil {
		return nil, nil, err
	}
	resp := kr.(*kmsg.FetchResponse)
	var a *FetchAnswer
	if resp.ErrorCode != 0 {
		err = answerError(cn.address, "Fetch", Code(resp.ErrorCode), "")
	} else if a, err = s.answer(cn.address, resp, f); err == nil && len(a.Partitions) != 1 {
		err = protocolError(cn.address, "Fetch", "no answer for %s", p.TopicPartition)
	}
	if err != nil {
		f.release()
		return nil, nil, err
	}
	return &a.Partitions[0], a, nil
}
