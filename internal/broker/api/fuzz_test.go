package api

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// FuzzHandle feeds bodies to the handlers: whatever a client sends, there is an
// answer that decodes, or the connection closes; never a panic. The group APIs
// are fuzzed where their coordinator is.
func FuzzHandle(f *testing.F) {
	for _, e := range append(coreAPIs(), ownAPIs()...) {
		api, _ := wire.LookupAPI(e.key)
		for v := api.Min; v <= api.Max; v++ {
			f.Add(int16(e.key), v, kmsgBody(e.key, v))
		}
	}
	f.Add(int16(0), int16(9), produceOf(1, "t", types.TopicID{}, map[int32][]byte{0: rawBatch(2, 10)}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		api, ok := wire.LookupAPI(wire.Key(key))
		if !ok || !api.HasVersion(version) || !isCore(api.Key) {
			return
		}
		w := newWorld(t)
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
	})
}

func isCore(key wire.Key) bool {
	for _, e := range append(coreAPIs(), ownAPIs()...) {
		if e.key == key {
			return true
		}
	}
	return false
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
	default:
		in = kmsg.RequestForKey(int16(key))
	}
	in.SetVersion(version)
	return in.AppendTo(nil)
}
