package mirror

import (
	"context"
	"errors"
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/source"
)

// answeringSource is a source whose addresses lead to a cluster.
type answeringSource struct {
	Source
	id, pinned string
}

func (s *answeringSource) Metadata(context.Context, []string) (*source.Metadata, error) {
	return &source.Metadata{ClusterID: s.id}, nil
}

func (s *answeringSource) Pin(id string) { s.pinned = id }

// TestOneSourceForAllNodes: a mirror's addresses lead two nodes to two clusters, and both
// connect for the first time. The later one took over the one that answered it, and adopted
// its history for the partitions that it led, beside the record that named the other (R26).
func TestOneSourceForAllNodes(t *testing.T) {
	for _, c := range []struct{ known, answers, want string }{{"", "one", "one"}, {"one", "one", "one"}, {"one", "two", "one"}} {
		n := clusterNode{newPaperNode(t, 0)}
		rec := meta.MirrorRecord{Name: "m", Want: meta.WantRunning, StartID: "s", Bootstrap: []string{"h:1"}}
		stale := rec
		rec.SourceClusterID = c.known
		n.put(t, meta.KeysOf(paperCluster).Mirror("m"), rec.Encode())
		src := &answeringSource{id: c.answers}
		r := &run{m: &Mirrors{o: Options{Node: n}, ctx: t.Context()}, name: "m", client: src}
		for _, heard := range []*meta.MirrorRecord{&stale, &rec} {
			r.record.Store(heard)
			_, err := r.refresh(t.Context())
			if errors.Is(err, source.ErrOtherCluster) != (c.answers != c.want) || src.pinned != c.want {
				t.Errorf("%+v, heard of %q: pinned %q, %v", c, heard.SourceClusterID, src.pinned, err)
			}
		}
		if e, _ := n.Image().Mirror("m"); e.Record.SourceClusterID != c.want {
			t.Errorf("%+v: the record names %q", c, e.Record.SourceClusterID)
		}
	}
}

// clusterNode is a paper node of a cluster of its own.
type clusterNode struct{ *paperNode }

func (clusterNode) ClusterID() string { return paperCluster }
