package api

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/acl"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// FuzzHandle feeds bodies to the handlers: whatever a client sends, there is an
// answer that decodes, or the connection closes; never a panic. The group APIs
// are fuzzed where their coordinator is.
func FuzzHandle(f *testing.F) {
	for _, e := range served() {
		api, _ := wire.LookupAPI(e.key)
		for v := api.Min; v <= api.Max; v++ {
			f.Add(int16(e.key), v, kmsgBody(e.key, v))
		}
	}
	f.Add(int16(0), int16(9), produceOf(1, "t", types.TopicID{}, map[int32][]byte{0: rawBatch(2, 10)}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		api, ok := wire.LookupAPI(wire.Key(key))
		if !ok || !api.HasVersion(version) || !isServed(api.Key) {
			return
		}
		w := newWorld(t)
		w.server.Groups, w.server.Security = agreeing{&fakeGroups{node: 1}}, &fakeSecurity{}
		w.topic("t", topicOptions{partitions: 2})
		w.part("t", 0).fill(2, 10).advance(2)
		// A long poll ends at once: the fuzzer has no time for it.
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		req := &wire.Request{Key: api.Key, Version: version, Body: body, Listener: "PLAINTEXT"}
		in := wire.NewRequest(wire.Key(key))
		_, _ = w.send(ctx, req, in)
		if n := w.part("t", 0).release.get(); n != 0 {
			t.Errorf("%d chunks never released", n)
		}
		// With an authorizer and no ACL, whatever is asked, nothing is read, written or changed.
		g := newWorld(t).guarded()
		fake := &fakeSecurity{}
		g.server.Groups, g.server.Security = agreeing{&fakeGroups{node: 1}}, fake
		g.topic("t", topicOptions{partitions: 2})
		g.part("t", 0).fill(2, 10).advance(2)
		_, _ = g.send(ctx, &wire.Request{Key: api.Key, Version: version, Body: body, Listener: "PLAINTEXT", Principal: acl.Anonymous}, wire.NewRequest(wire.Key(key)))
		p := g.part("t", 0)
		if f := &g.topics; p.reads+len(p.appended)+len(f.created)+len(f.deleted)+len(f.added)+len(f.altered)+len(fake.add)+len(fake.remove)+len(fake.set)+len(fake.deleted) > 0 {
			t.Errorf("%s reached its handler: %+v, %+v", api.Name, g.topics, fake)
		}
	})
}

// agreeing answers with one code for each member or partition asked about, as the interface promises.
type agreeing struct{ *fakeGroups }

func (agreeing) Leave(_ context.Context, ev group.Leave) group.LeaveResponse {
	return group.LeaveResponse{Members: make([]errcode.Code, len(ev.Members))}
}

func (agreeing) Commit(_ context.Context, ev group.Commit) group.CommitResponse {
	return group.CommitResponse{Partitions: make([]errcode.Code, len(ev.Offsets))}
}

func (agreeing) DeleteOffsets(_ context.Context, ev group.DeleteOffsets) group.CommitResponse {
	return group.CommitResponse{Partitions: make([]errcode.Code, len(ev.Partitions))}
}

// served are all APIs.
func served() []entry { return slices.Concat(coreAPIs(), groupAPIs(), securityAPIs(), ownAPIs()) }

func isServed(key wire.Key) bool {
	return slices.ContainsFunc(served(), func(e entry) bool { return e.key == key })
}

// kmsgBody gives a body with something in it where that is easily had.
func kmsgBody(key wire.Key, version int16) []byte {
	var in kmsg.Request
	switch key {
	case wire.KeyFetch:
		in = fetchOf(want{topic: "t", epoch: unsaid, last: unsaid})
	case wire.KeyProduce:
		in = produceOf(-1, "t", topicIDOf("t"), map[int32][]byte{0: rawBatch(1, 1)})
	case wire.KeyMetadata:
		in = metadataOf("t", "x")
	case wire.KeyDescribeLineage:
		in = &wire.LineageRequest{Topics: []wire.LineageRequestTopic{{ID: topicIDOf("t"), Partitions: []int32{0, 1}}}}
	case wire.KeyWakeFetch:
		in = &wire.WakeFetchRequest{SessionID: 1, SessionEpoch: 1}
	case wire.KeyDescribeScramKeys:
		in = &wire.ScramKeysRequest{AfterUser: "a"}
	case wire.KeyMirrorVerb:
		in = &wire.MirrorVerbRequest{Verb: "fence", Body: []byte("{}")}
	default:
		in = kmsg.RequestForKey(int16(key))
	}
	in.SetVersion(version)
	return in.AppendTo(nil)
}
