package consumer

import (
	"slices"
	"testing"
)

// TestExpressionsStandForWhatMayBeSeen: topics that the sender may not describe are left
// out, and a permission that was given or taken counts after a while (KIP-848).
func TestExpressionsStandForWhatMayBeSeen(t *testing.T) {
	b := newBench(t, map[string]int32{"open": 1, "other": 1, "secret": 1})
	may := []string{"open", "secret.view"}
	sees := func(topic string) bool { return slices.Contains(may, topic) }
	from := func(h Heartbeat) Heartbeat { h.Sees = sees; return h }
	got := func(h Heartbeat, want ...Partition) {
		t.Helper()
		a, code := b.beat(from(h))
		if code != 0 || h.Epoch == JoinEpoch && !slices.Equal(a.Assignment, want) {
			t.Errorf("code %d, assigned %v, want %v", code, a.Assignment, want)
		}
		if topics := b.g.regexes[".*"].Topics; len(topics) != len(want) {
			t.Errorf("the expression stands for %v", topics)
		}
	}
	got(join("m").regex(".*"), parts("open", 0)...)
	may = append(may, "other")
	epoch := b.g.members["m"].Epoch
	got(at("m", epoch), parts("open", 0)...) // nearly all heartbeats look at nothing
	b.now += regexRefresh
	got(at("m", epoch), append(parts("open", 0), parts("other", 0)...)...)
	may = []string{}
	b.now += regexRefresh - 1
	got(at("m", b.g.members["m"].Epoch), append(parts("open", 0), parts("other", 0)...)...)
	b.now++
	got(at("m", b.g.members["m"].Epoch))
	log := len(b.log)
	b.now += regexRefresh
	got(at("m", b.g.members["m"].Epoch))
	if len(b.log) != log {
		t.Error("a look that finds nothing new is written")
	}
}
