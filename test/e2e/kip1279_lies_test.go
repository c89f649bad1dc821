package e2e

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
	"tidemark/test/e2e/harness"
)

// describedBy alters what a source tells of its mirrors, behind the answer's header.
func describedBy(alter func(r *wire.DescribeClusterMirrorsResponse)) func([]byte) []byte {
	return func(body []byte) []byte {
		var r wire.DescribeClusterMirrorsResponse
		if err := r.ReadFrom(body[1:]); err != nil {
			return body
		}
		alter(&r)
		return r.AppendTo(body[:1:1])
	}
}

// eachPartition alters what is told of the partitions.
func eachPartition(alter func(p *wire.DescribedMirrorPartition)) func([]byte) []byte {
	return describedBy(func(r *wire.DescribeClusterMirrorsResponse) {
		for m := range r.Mirrors {
			for t := range r.Mirrors[m].Topics {
				for p := range r.Mirrors[m].Topics[t].Partitions {
					alter(&r.Mirrors[m].Topics[t].Partitions[p])
				}
			}
		}
	})
}

// kipLie is one way in which a source tells what isn't so, and what the operator is told of it.
type kipLie struct {
	name  string
	key   wire.Key
	alter func(body []byte) []byte
	says  []string
}

func kipLies(topic types.TopicID) []kipLie {
	const off = "mirror.kip1279.enable=false"
	other := types.TopicID{9, 9, 9}
	return []kipLie{
		{"an offset above every log", wire.KeyDescribeClusterMirrors, eachPartition(func(p *wire.DescribedMirrorPartition) { p.LastMirrorOffset = 1 << 40 }),
			[]string{"SOURCE_INCONSISTENT", "mirror m last copied epoch", "the log ends at", off}},
		{"an epoch above the leader's", wire.KeyDescribeClusterMirrors, eachPartition(func(p *wire.DescribedMirrorPartition) { p.LastMirrorEpoch = 1<<31 - 1 }),
			[]string{"SOURCE_INCONSISTENT", "its leader epoch is", off}},
		{"another topic id", wire.KeyMetadata, func(body []byte) []byte { return bytes.ReplaceAll(body, topic[:], other[:]) },
			[]string{"TOPIC_ID_MISMATCH", topic.String(), other.String(), "deleted and made again"}},
		{"another topic", wire.KeyDescribeClusterMirrors, describedBy(func(r *wire.DescribeClusterMirrorsResponse) {
			for m := range r.Mirrors {
				for t := range r.Mirrors[m].Topics {
					r.Mirrors[m].Topics[t].Name = "others"
				}
			}
		}), []string{"SOURCE_CORRUPT", "others-0, which was not asked for", off}},
		{"another cluster's mirror", wire.KeyDescribeClusterMirrors, describedBy(func(r *wire.DescribeClusterMirrorsResponse) {
			for m := range r.Mirrors {
				r.Mirrors[m].SourceClusterID = "elsewhere"
			}
		}), []string{"SOURCE_CORRUPT", `mirror m is of cluster "elsewhere"`, off}},
		{"one partition twice", wire.KeyDescribeClusterMirrors, describedBy(func(r *wire.DescribeClusterMirrorsResponse) {
			r.Mirrors = append(r.Mirrors, r.Mirrors...)
			r.Mirrors[0].Topics = append(r.Mirrors[0].Topics, r.Mirrors[0].Topics...)
		}),
			[]string{"SOURCE_CORRUPT", "two answers for", off}},
		{"an answer cut short", wire.KeyDescribeClusterMirrors, func(body []byte) []byte { return body[:len(body)-7] },
			[]string{"SOURCE_CORRUPT", "DescribeClusterMirrors", off}},
		{"a list cut short", wire.KeyListClusterMirrors, func(body []byte) []byte { return body[:len(body)-3] },
			[]string{"SOURCE_CORRUPT", "ListClusterMirrors", off}},
		{"nothing of what was asked", wire.KeyDescribeClusterMirrors, describedBy(func(r *wire.DescribeClusterMirrorsResponse) { r.Mirrors = nil }),
			[]string{"MIRROR_LOOP", "state UNKNOWN", "stop the topic there"}},
		{"the partition left out", wire.KeyDescribeClusterMirrors, describedBy(func(r *wire.DescribeClusterMirrorsResponse) {
			for m := range r.Mirrors {
				for t := range r.Mirrors[m].Topics {
					parts := r.Mirrors[m].Topics[t].Partitions
					parts[0].Partition, parts[0].LastMirrorEpoch, parts[0].LastMirrorOffset = 0, -1, -1
				}
			}
		}), []string{"UNRELATED_LOGS", "no last mirrored epoch", "into the vault"}},
	}
}

// TestLyingKIP1279Source: what a source tells that can't be so, or tells of something
// else, changes nothing here, neither before a start nor after it, and is told with
// the way out; once it tells the truth the sides change, and the vaults hold what was to be cut.
func TestLyingKIP1279Source(t *testing.T) {
	a, b := kipPair(t, 1, 1)
	clear(a.written)
	b.pauseMirror(t)
	a.write(t, 1, "lag", 2)
	maps.Copy(a.cut, a.written)
	b.failOver(t, 1)
	b.write(t, 1, "new", 3)
	before, end := a.any().LogBytes(t, backTopic, 0), a.logEnd(t, 0)
	topic, _ := a.any().Image().TopicByName(backTopic)
	lies := kipLies(topic.Record.ID)
	for _, lie := range lies {
		b.lie(lie.key, lie.alter)
		a.refusedBecause(t, lie.says...)
		b.lie(lie.key, nil)
		if !bytes.Equal(a.any().LogBytes(t, backTopic, 0), before) || a.logEnd(t, 0) != end {
			t.Fatalf("%s: the log is another", lie.name)
		}
	}
	for _, kept := range a.vaulted(t) {
		if len(kept) > 0 {
			t.Fatalf("the lies had %v cut", kept)
		}
	}
	a.failBack(t, len(a.cut))
	awaitCopy(t, b.side, a.side, 1)
	list := a.record(0).Timelines

	// A mirror that runs: lies about what its start has adopted stop it, a last mirrored
	// epoch that falls or is forgotten changes nothing.
	for _, lie := range lies {
		if lie.key != wire.KeyDescribeClusterMirrors || !strings.HasPrefix(lie.says[0], "SOURCE_") {
			continue
		}
		b.lie(lie.key, lie.alter)
		b.reconnect()
		p := awaitReason(t, a.any(), backTopic, 0, core.Reason(lie.says[0]))
		if !strings.Contains(p.Reason, "mirror.kip1279.enable=false") {
			t.Errorf("%s: FAILED with %q", lie.name, p.Reason)
		}
		b.lie(lie.key, nil)
		harness.Eventually(t, "it mirrors again after "+lie.name, func() bool { return statusOf(t, a.any(), backTopic, 0).State == meta.MirrorMirroring })
	}
	for _, fall := range []func(p *wire.DescribedMirrorPartition){
		func(p *wire.DescribedMirrorPartition) { p.LastMirrorEpoch-- },
		func(p *wire.DescribedMirrorPartition) { p.LastMirrorEpoch, p.LastMirrorOffset = -1, -1 },
	} {
		b.lie(wire.KeyDescribeClusterMirrors, eachPartition(fall))
		b.reconnect()
		b.write(t, 1, "after", 1)
		awaitCopy(t, b.side, a.side, 1)
	}
	if now := a.record(0).Timelines; !now.Equal(list) {
		t.Errorf("timelines %v became %v", list, now)
	}
	a.checkVaults(t)
	b.checkVaults(t)
}
