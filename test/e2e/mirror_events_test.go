package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"tidemark/internal/broker/mirror"
	"tidemark/test/e2e/harness"
)

// cutStory is a standby whose topic t lost offsets 2 and 3 ("2 lost", "3 lost")
// to another history of its source: after them comes "2 new". A group "reader" had committed 4.
type cutStory struct {
	source, standby *harness.Broker
	proxy           *proxy
}

func newCutStory(t testing.TB, opts ...harness.Option) *cutStory {
	t.Helper()
	s := &cutStory{source: harness.StartBroker(t)}
	s.proxy = newProxy(t, s.source.Addr)
	s.standby = startStandby(t, opts...)
	s.source.CreateTopic(t, "t", 1, nil)
	mirrorOf(t, s.standby, mirror.Spec{Bootstrap: []string{s.proxy.ln.Addr().String()}})
	s.source.Produce(t, "t", 0, "0", "1")
	awaitEnd(t, s.standby, "t", 0, 2)
	s.source.Stop(t)
	before, folder := t.TempDir(), filepath.Join(s.source.Dir, "t-0")
	copyTree(t, folder, before)
	s.restart(t)
	s.source.Produce(t, "t", 0, "2 lost", "3 lost")
	awaitEnd(t, s.standby, "t", 0, 4)
	commit(t, s.source.Admin(t), "reader", "t", 4)
	adm := s.standby.Admin(t)
	harness.Eventually(t, "the group's offset is mirrored", func() bool { return committed(t, adm, "reader", "t", 0) == 4 })
	s.source.Stop(t)
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	copyTree(t, before, folder)
	s.restart(t)
	s.source.Produce(t, "t", 0, "2 new")
	awaitEnd(t, s.standby, "t", 0, 3)
	// Nobody reads before the groups have followed the cut, but the copying goes on meanwhile.
	harness.Eventually(t, "the group has followed the cut", func() bool { return slices.Contains(kinds(s.standby), "GROUP_CUT") })
	return s
}

func (s *cutStory) restart(t testing.TB) {
	s.source = s.source.Restart(t)
	s.proxy.setTarget(s.source.Addr)
}

func kinds(b *harness.Broker) []string {
	var out []string
	for _, e := range b.Mirrors().Events() {
		out = append(out, e.Kind)
	}
	return out
}

// The event log outlives restarts, and what its files lack is told by the vault and the metadata.
func TestEventsOutliveARestart(t *testing.T) {
	s := newCutStory(t)
	failover(t, s.standby)
	before := s.standby.Mirrors().Events()
	find := func(list []mirror.Event, kind string) (found []mirror.Event) {
		for _, e := range list {
			if e.Kind == kind {
				found = append(found, e)
			}
		}
		return found
	}
	cut := find(before, "CUT")
	if len(cut) != 1 || cut[0].From != 2 || cut[0].To != 4 || cut[0].VaultID == "" || cut[0].Seq == 0 {
		t.Fatalf("cuts before the restart: %+v", cut)
	}
	s.standby = s.standby.Restart(t)
	after := s.standby.Mirrors().Events()
	for _, kind := range []string{"CUT", "GROUP_CUT", "PROMOTED"} {
		if a, b := find(before, kind), find(after, kind); len(a) != 1 || len(b) != 1 || a[0].From != b[0].From || a[0].To != b[0].To {
			t.Errorf("%s: %+v before the restart, %+v after it", kind, a, b)
		}
	}
	if got := find(after, "CUT")[0]; got != cut[0] {
		t.Errorf("the cut is %+v after the restart, %+v before", got, cut[0])
	}
	// A crash took the lines: the cut is in the vault, the promotion in the metadata.
	s.standby.Stop(t)
	if err := os.RemoveAll(filepath.Join(s.standby.Dir, "events")); err != nil {
		t.Fatal(err)
	}
	s.standby = s.standby.Restart(t)
	list := s.standby.Mirrors().Events()
	if c := find(list, "CUT"); len(c) != 1 || c[0].VaultID != cut[0].VaultID || c[0].Records != 2 || c[0].Mirror != "m" {
		t.Errorf("from the vault: %+v", c)
	}
	if p := find(list, "PROMOTED"); len(p) != 1 || p[0].From != 3 {
		t.Errorf("from the metadata: %+v", p)
	}
	if !slices.IsSortedFunc(list, func(a, b mirror.Event) int { return int(a.At - b.At) }) {
		t.Errorf("events are not in order: %s", fmt.Sprint(kinds(s.standby)))
	}
}
