package api

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/await"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// sessionClient keeps a session as clients do.
type sessionClient struct {
	w       *world
	version int16
	id      int32
	epoch   int32
}

// fetch sends a full request if the session is new, else an incremental one.
func (c *sessionClient) fetch(forget []int32, wants ...want) *kmsg.FetchResponse {
	c.w.t.Helper()
	in := fetchOf(wants...)
	in.SessionID, in.SessionEpoch = c.id, c.epoch
	if len(forget) > 0 {
		in.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{Topic: "t", TopicID: topicIDOf("t"), Partitions: forget}}
	}
	out := ask[*kmsg.FetchResponse](c.w, in, c.version)
	c.id = out.SessionID
	c.epoch++
	return out
}

func plain(part int32, offset types.Offset) want {
	return want{topic: "t", part: part, offset: offset, epoch: unsaid, last: unsaid}
}

func TestSessionAnswersWhatChanged(t *testing.T) {
	for _, v := range []int16{7, 12, 13, 18} {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			w := newWorld(t)
			w.topic("t", topicOptions{partitions: 3})
			c := &sessionClient{w: w, version: v}
			p0, p1, p2 := w.part("t", 0), w.part("t", 1), w.part("t", 2)

			wantGot(t, c.fetch(nil, plain(0, 0), plain(1, 0), plain(2, 0)), got{Part: "t-0"}, got{Part: "t-1"}, got{Part: "t-2"})
			if c.id == 0 {
				t.Fatal("no session was made")
			}
			wantGot(t, c.fetch(nil)) // nothing changed: an empty answer

			p1.fill(2, 10).advance(2)
			wantGot(t, c.fetch(nil), got{Part: "t-1", HW: 2, Offsets: []types.Offset{0, 1}})
			// The client hasn't moved on: the records come again.
			wantGot(t, c.fetch(nil), got{Part: "t-1", HW: 2, Offsets: []types.Offset{0, 1}})
			wantGot(t, c.fetch(nil, plain(1, 2)))

			p0.fill(1, 10)
			wantGot(t, c.fetch(nil)) // appended, not committed
			p2.mu.Lock()
			p2.logStart = 0
			p2.hw = 0
			p2.mu.Unlock()
			p0.advance(1)
			wantGot(t, c.fetch([]int32{2}, plain(0, 1)), got{Part: "t-0", HW: 1}) // the high watermark is news

			p2.fill(1, 10).advance(1) // forgotten
			wantGot(t, c.fetch(nil))
			if n := p2.listening(); n != 0 {
				t.Errorf("%d listeners on a forgotten partition", n)
			}
			wantGot(t, c.fetch(nil, plain(2, 0)), got{Part: "t-2", HW: 1, Offsets: []types.Offset{0}})
		})
	}
}

// A poll of a quiet session reads no partition at all.
func TestQuietSessionReadsNothing(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topicOptions{partitions: 50})
	c := &sessionClient{w: w, version: 12}
	c.fetch(nil, wantAll("t", 50, 1<<20)...)
	reads := func() (n int) {
		for _, p := range w.parts {
			n += p.readCount()
		}
		return n
	}
	before := reads()
	w.part("t", 7).fill(1, 10).advance(1)
	wantGot(t, c.fetch(nil), got{Part: "t-7", HW: 1, Offsets: []types.Offset{0}})
	if n := reads() - before; n != 1 {
		t.Errorf("%d partitions were read for one that moved", n)
	}
}

// An error is answered every time until it is gone, and then the partition comes back.
func TestSessionRepeatsErrors(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topicOptions{})
	c := &sessionClient{w: w, version: 12}
	c.fetch(nil, plain(0, 0))
	w.part("t", 0).fail(wire.ErrNotLeaderOrFollower)
	for range 2 {
		wantGot(t, c.fetch(nil), got{Part: "t-0", Code: wire.ErrNotLeaderOrFollower, HW: -1})
	}
	w.part("t", 0).fail(nil)
	w.part("t", 0).fill(1, 1).advance(1)
	wantGot(t, c.fetch(nil), got{Part: "t-0", HW: 1, Offsets: []types.Offset{0}})
	c.fetch(nil, plain(0, 1))
	w.part("t", 0).fill(1, 1).advance(2) // it is subscribed again
	wantGot(t, c.fetch(nil), got{Part: "t-0", HW: 2, Offsets: []types.Offset{1}})
}

// Partitions take turns when an answer can't hold all of them.
func TestSessionIsFair(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topicOptions{partitions: 3})
	for n := range int32(3) {
		w.part("t", n).fill(5, 1000).advance(5)
	}
	c := &sessionClient{w: w, version: 12}
	w.settings.FetchMaxBytes = 1 // one batch each time
	served := map[string]int{}
	next := map[string]types.Offset{}
	out := c.fetch(nil, wantAll("t", 3, 1<<20)...)
	for range 9 {
		var moved []want
		for _, g := range gotOf(t, out) {
			if len(g.Offsets) == 0 {
				continue
			}
			served[g.Part]++
			next[g.Part] = g.Offsets[0] + 1
			moved = append(moved, plain(int32(g.Part[2]-'0'), next[g.Part]))
		}
		out = c.fetch(nil, moved...)
	}
	for part, n := range served {
		if n != 3 {
			t.Errorf("%s was served %d times of nine, want 3", part, n)
		}
	}
}

// What an incremental request names is compared although the answer is full: a follower
// takes what is left out for what agrees with its log.
func TestSessionLooksAtWhatIsAsked(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topicOptions{partitions: 3})
	c := &sessionClient{w: w, version: 12}
	c.fetch(nil, plain(0, 0))
	for n := range int32(3) {
		w.part("t", n).fill(5, 1000).advance(5)
	}
	w.part("t", 2).diverging = &EpochEnd{Epoch: 3, End: 2}
	w.settings.FetchMaxBytes = 1 // one batch
	out := c.fetch(nil, plain(1, 0), want{topic: "t", part: 2, offset: 4, epoch: unsaid, last: 4})
	wantGot(t, out, got{Part: "t-0", HW: 5, Offsets: []types.Offset{0}}, got{Part: "t-1", HW: 5}, got{Part: "t-2", HW: 5})
	if t.Failed() {
		t.FailNow()
	}
	if d := out.Topics[0].Partitions[2].DivergingEpoch; d.Epoch != 3 || d.EndOffset != 2 {
		t.Errorf("diverging epoch %+v", d)
	}
	// What was looked at without records has its turn.
	wantGot(t, c.fetch(nil, plain(0, 1)), got{Part: "t-1", HW: 5, Offsets: []types.Offset{0}})
}

func TestSessionErrors(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topicOptions{})
	open := func(version int16) *sessionClient {
		c := &sessionClient{w: w, version: version}
		c.fetch(nil, plain(0, 0))
		return c
	}
	f := func(name string, version int16, id, epoch int32, code wire.ErrCode) {
		t.Helper()
		in := fetchOf()
		in.SessionID, in.SessionEpoch = id, epoch
		out := ask[*kmsg.FetchResponse](w, in, version)
		if got := wire.ErrCode(out.ErrorCode); got != code || out.SessionID != 0 || len(out.Topics) != 0 {
			t.Errorf("%s: %v with session %d and %d topics, want %v alone", name, got, out.SessionID, len(out.Topics), code)
		}
	}
	f("unknown session", 12, 12345, 1, wire.ErrFetchSessionIDNotFound)
	f("session id 0", 12, 0, 1, wire.ErrFetchSessionIDNotFound)
	c := open(12)
	f("epoch too high", 12, c.id, 2, wire.ErrInvalidFetchSessionEpoch)
	f("names, then ids", 13, c.id, 1, wire.ErrFetchSessionTopicIDError)
	wantGot(t, c.fetch(nil)) // it is still there
	f("epoch again", 12, c.id, 1, wire.ErrInvalidFetchSessionEpoch)
	f("ids, then names", 12, open(13).id, 1, wire.ErrFetchSessionTopicIDError)
}

func TestSessionEnds(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topicOptions{})
	c := &sessionClient{w: w, version: 12}
	c.fetch(nil, plain(0, 0))
	old := c.id

	// Epoch 0 with an id: the old one ends, a new one begins.
	c.epoch = 0
	c.fetch(nil, plain(0, 0))
	if c.id == old || c.id == 0 {
		t.Errorf("session %d after %d", c.id, old)
	}
	if n := w.server.FetchSessions(); n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}
	// All partitions forgotten: it ends, and says so.
	out := c.fetch([]int32{0})
	if out.SessionID != 0 || w.server.FetchSessions() != 0 {
		t.Errorf("session %d, %d in all", out.SessionID, w.server.FetchSessions())
	}
	// Epoch -1 with an id: it ends, the answer is full and without one.
	c = &sessionClient{w: w, version: 12}
	c.fetch(nil, plain(0, 0))
	c.epoch = -1
	wantGot(t, c.fetch(nil, plain(0, 0)), got{Part: "t-0"})
	if c.id != 0 || w.server.FetchSessions() != 0 {
		t.Errorf("session %d, %d in all", c.id, w.server.FetchSessions())
	}
	w.nothingHeld()
}

// Slots are bounded: only a session that was idle long enough gives way.
func TestSessionSlots(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topicOptions{})
	w.settings.FetchSessionSlots, w.settings.FetchSessionIdle = 2, time.Hour
	open := func() *sessionClient {
		c := &sessionClient{w: w, version: 12}
		c.fetch(nil, plain(0, 0))
		return c
	}
	a, b := open(), open()
	if c := open(); c.id != 0 {
		t.Error("a third session although all slots are in use")
	}
	a.fetch(nil) // b is now the least recently used
	w.settings.FetchSessionIdle = 0
	if c := open(); c.id == 0 {
		t.Error("no session although an idle one could go")
	}
	in := fetchOf()
	in.SessionID, in.SessionEpoch = b.id, b.epoch
	if out := ask[*kmsg.FetchResponse](w, in, 12); out.ErrorCode != int16(wire.ErrFetchSessionIDNotFound) {
		t.Errorf("the evicted session answers %v", wire.ErrCode(out.ErrorCode))
	}
	wantGot(t, a.fetch(nil))
	if n := w.part("t", 0).listening(); n != 2 {
		t.Errorf("%d listeners for two sessions", n)
	}
}

func TestSessionEpochWrapsToOne(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topicOptions{})
	c := &sessionClient{w: w, version: 12}
	c.fetch(nil, plain(0, 0))
	s := w.server.sessions.use(c.id, time.Now())
	s.epoch = 1<<31 - 1
	c.epoch = 1<<31 - 1
	wantGot(t, c.fetch(nil))
	c.epoch = 1
	wantGot(t, c.fetch(nil))
}

// A client that comes back on another connection doesn't wait for its old long poll.
func TestSessionRequestEndsTheOneBefore(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topicOptions{})
	c := &sessionClient{w: w, version: 12}
	c.fetch(nil, plain(0, 0))
	in := fetchOf()
	in.SessionID, in.SessionEpoch, in.MaxWaitMillis, in.MinBytes = c.id, 1, 60_000, 1
	first := w.start(context.Background(), in, 12)
	s := w.server.sessions.use(c.id, time.Now())
	await.True(t, "the first request to take the session", func() bool {
		free := s.busy.TryLock()
		if free {
			s.busy.Unlock()
		}
		return !free
	})
	c.epoch = 2
	second := make(chan *kmsg.FetchResponse, 1)
	go func() {
		in := fetchOf()
		in.SessionID, in.SessionEpoch = c.id, 2
		out, err := w.send(context.Background(), request(in, 12, "test"), in)
		if err != nil {
			w.t.Error(err)
		}
		second <- out.(*kmsg.FetchResponse)
	}()
	wantGot(t, <-first)
	// It may also have come first, and then has the wrong epoch: never does it wait.
	if out := <-second; out.ErrorCode != 0 && out.ErrorCode != int16(wire.ErrInvalidFetchSessionEpoch) {
		t.Errorf("answered %v", wire.ErrCode(out.ErrorCode))
	}
}

// TestWakeFetch: a fetch that waits in a session is answered when its epoch is
// woken, before or after it has come; another epoch's is not.
func TestWakeFetch(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topicOptions{})
	open := fetchOf(whole(0))
	open.SessionEpoch = 0
	id := ask[*kmsg.FetchResponse](w, open, 12).SessionID
	fetch := func(epoch int32, wait time.Duration) <-chan time.Duration {
		in := fetchOf()
		in.SessionID, in.SessionEpoch, in.MinBytes, in.MaxWaitMillis = id, epoch, 1, int32(wait/time.Millisecond)
		took := make(chan time.Duration, 1)
		go func() {
			from := time.Now()
			if out := ask[*kmsg.FetchResponse](w, in, 12); out.ErrorCode != 0 {
				t.Errorf("epoch %d: %v", epoch, wire.ErrCode(out.ErrorCode))
			}
			took <- time.Since(from)
		}()
		return took
	}
	wake := func(epoch int32) {
		ask[*wire.WakeFetchResponse](w, &wire.WakeFetchRequest{SessionID: id, SessionEpoch: epoch}, 0)
	}
	ask[*wire.WakeFetchResponse](w, &wire.WakeFetchRequest{SessionID: id + 1, SessionEpoch: 1}, 0)
	wake(1)
	if d := <-fetch(1, time.Hour); d > time.Minute {
		t.Errorf("woken before it came: %v", d)
	}
	took := fetch(2, time.Hour)
	await.True(t, "the fetch is at work", func() bool { s := w.server.sessions.find(id); s.turn.Lock(); defer s.turn.Unlock(); return s.at == 2 })
	wake(2)
	if d := <-took; d > time.Minute {
		t.Errorf("woken while it waited: %v", d)
	}
	if d := <-fetch(3, 300*time.Millisecond); d < 200*time.Millisecond {
		t.Errorf("nobody woke the third: %v", d)
	}
}
