package mirror

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/source"
)

// TestARefusalEndsWithItsReason: a failback that makes a topic the mirror's ends the
// refusal that the last look at the source left, before there is another look; and
// what is left out of a source is told.
func TestARefusalEndsWithItsReason(t *testing.T) {
	n := newPaperNode(t, 1)
	n.put(t, meta.KeysOf(paperCluster).Name("t"), meta.NameRecord{ID: paperTopic}.Encode())
	m := &Mirrors{o: Options{Node: n}, log: slog.New(slog.DiscardHandler), ctx: t.Context(), runs: map[string]*run{}}
	r := &run{m: m, name: "back", ctx: t.Context(), health: newHealthBook(t.Context()), trouble: errors.New("there is no source")}
	m.runs["back"] = r
	rec := &meta.MirrorRecord{Name: "back", Want: meta.WantRunning, StartID: "s2"}
	r.record.Store(rec)
	f, err := newFilter(rec)
	if err != nil {
		t.Fatal(err)
	}
	r.filter.Store(f)
	s, err := settingsOf(config.Default().Mirror, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.settings.Store(s)
	r.health.ok(syncMetadata)
	one := []source.Partition{{}}
	look := &source.Metadata{Tidemark: true, Topics: []source.Topic{{Name: "t", ID: paperTopic, Partitions: one}}}
	for _, drilled := range []string{"d", "c", "b", "a"} {
		look.Topics = append(look.Topics, source.Topic{Name: "drill.friday." + drilled, Partitions: one})
	}
	status := func() string {
		st := Status{Mirror: "back"}
		m.summarize(&st, rec)
		return st.Reason
	}
	r.takeTopics(t.Context(), look)
	if got := status(); !strings.Contains(got, "mirror failback back") {
		t.Errorf("a topic in the way: %q", got)
	}
	health := r.syncs(n.Image())
	if len(health) != 2 || !strings.Contains(health[1].Detail, "4 topics of drills at the source (drill.friday.a, drill.friday.b, drill.friday.c, …)") || health[1].Error != status() {
		t.Errorf("describe says %+v", health)
	}
	key := meta.KeysOf(paperCluster).Partition(paperTopic, 0)
	now, _ := n.Image().Partition(paperTopic, 0)
	next := now.Clone()
	next.Mirror = core.NewMirrored("back", "s2")
	if _, err := n.commit(meta.Plan{Why: "a failback", If: []meta.Compare{}, Then: []meta.Op{meta.Put(key, next.Encode())}}); err != nil {
		t.Fatal(err)
	}
	if got := status(); got != "" {
		t.Errorf("after the failback: %q", got)
	}
	if got := r.syncs(n.Image())[1].Error; got != "" {
		t.Errorf("describe says %q", got)
	}
	look.Topics = look.Topics[:1]
	r.takeTopics(t.Context(), look)
	if health := r.syncs(n.Image())[1]; health.Detail != "" || health.Error != "" {
		t.Errorf("nothing is left out, and %+v", health)
	}
}
