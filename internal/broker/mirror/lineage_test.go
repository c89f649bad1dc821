package mirror

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
	"tidemark/internal/wire"
)

func TestTakeLineage(t *testing.T) {
	f := func(name string, a source.Lineage, want core.Reason) *looked {
		t.Helper()
		k := &looked{source: core.Source{ClusterID: "A", LeaderEpoch: 4, LastEpoch: -1}}
		if got := k.takeLineage(a); got.Reason != want {
			t.Errorf("%s: %+v, want %q", name, got, want)
		}
		if want != "" && (k.source.Timelines != nil || k.source.Path != nil) {
			t.Errorf("%s: taken nevertheless: %+v", name, k.source)
		}
		return k
	}
	said := source.Lineage{LeaderEpoch: 4, Timelines: []wire.Timeline{{ID: "r"}, {ID: "p", FirstEpoch: 3, FirstOffset: 9}}, IsMirror: true, LastEpoch: 2, Path: []string{"B"}}
	k := f("all well", said, "")
	want := core.Source{ClusterID: "A", LeaderEpoch: 4, Timelines: timeline.List{{ID: "r"}, {ID: "p", FirstEpoch: 3, FirstOffset: 9}}, IsMirror: true, LastEpoch: 2, Path: []string{"B"}}
	if diff := cmp.Diff(want, k.source); diff != "" {
		t.Error(diff)
	}
	for _, epoch := range []types.LeaderEpoch{3, 5} {
		other := said
		other.LeaderEpoch = epoch
		f("another leader epoch", other, core.SourceLeaderMoved)
	}
	f("not the leader", source.Lineage{Code: source.CodeNotLeaderOrFollower}, core.SourceLeaderMoved)
	f("not allowed", source.Lineage{Code: source.CodeTopicAuthorizationFailed}, core.SourceAuth)
	if k := f("no list yet", source.Lineage{LeaderEpoch: 4, IsMirror: true, LastEpoch: -1}, ""); k.source.Timelines == nil || len(k.source.Timelines) != 0 {
		t.Errorf("an empty list is not told from none: %#v", k.source.Timelines)
	}
}
