package e2e

import (
	"strings"
	"testing"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// groupOf gives what the mirror says of one group's offset of partition 0.
func groupOf(t testing.TB, b *harness.Broker, group, topic string) mirror.GroupSync {
	t.Helper()
	list, err := b.Mirrors().Groups(harness.Context(t), "m")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range list {
		if g.Group == group && g.Topic == topic && g.Partition == 0 {
			return g
		}
	}
	return mirror.GroupSync{Source: -2, Standby: -2, Clamped: -2}
}

// A cut takes a group's offset back; that is shown with what it was, also after a restart.
func TestGroupsShowACut(t *testing.T) {
	s := newCutStory(t)
	harness.Eventually(t, "the cut of the group is shown", func() bool {
		g := groupOf(t, s.standby, "reader", "t")
		return g.Source == 4 && g.Standby == 2 && g.Clamped == 4 && g.ClampedAt > 0 && g.AgeMs >= 0 && g.Reason == "GROUP_CUT"
	})
	op := operate(t, s.standby)
	if stdout, _ := op.run("mirror", "groups", "m", "--problems", "-o", "wide"); !strings.Contains(stdout, "GROUP_CUT") || !strings.Contains(stdout, "classic") {
		t.Error(stdout)
	}
	// The group goes on at the source: it is the same on both sides again, and what was taken back stays to be seen.
	commit(t, s.source.Admin(t), "reader", "t", 3)
	harness.Eventually(t, "the new offset is here", func() bool {
		g := groupOf(t, s.standby, "reader", "t")
		return g.Source == 3 && g.Standby == 3 && g.Reason == "" && g.Clamped == 4
	})
	again := s.standby.Restart(t)
	harness.Eventually(t, "the cut is shown after a restart, once the group is loaded", func() bool { return groupOf(t, again, "reader", "t").Clamped == 4 })
}

// What waits for data that never came is clamped at the failover, and says so.
func TestGroupsShowAClamp(t *testing.T) {
	source := harness.StartBroker(t)
	standby := startStandby(t)
	source.CreateTopic(t, "big", 1, nil)
	produceBig(t, source, "big")
	commit(t, source.Admin(t), "ahead", "big", bigRecords)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}, Settings: map[string]string{"mirror.throttle.bytes.per.second": "1000"}})
	harness.Eventually(t, "the group waits", func() bool {
		g := groupOf(t, standby, "ahead", "big")
		return g.Source == bigRecords && g.Standby == -1 && g.Reason == "PENDING"
	})
	source.Stop(t)
	st := failover(t, standby)
	taken := st.Partitions[0].Promotion.LastMirroredOffset
	shown := func(b *harness.Broker) {
		t.Helper()
		harness.Eventually(t, "the clamp is shown", func() bool {
			g := groupOf(t, b, "ahead", "big")
			return g.Standby == taken && g.Clamped == types.Offset(bigRecords) && g.Reason == "CLAMPED"
		})
	}
	shown(standby)
	shown(standby.Restart(t))
}
