package e2e

import (
	"fmt"
	"strings"
	"testing"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// bigRecords of produceBig are more than one fetch brings (mirror.partition.fetch.bytes): a mirror
// with a low throttle stays behind after the first.
const bigRecords = 200

func produceBig(t testing.TB, b *harness.Broker, topic string) {
	t.Helper()
	value := strings.Repeat("x", 60_000)
	values := make([]string, bigRecords)
	for i := range values {
		values[i] = fmt.Sprint(i, value)
	}
	b.Produce(t, topic, 0, values...)
}

// A partition that is behind says by how much, before and after the failover, with the source gone;
// one that is complete says since when it can't know.
func TestLossIsStatedWithoutTheSource(t *testing.T) {
	source := harness.StartBroker(t)
	standby := startStandby(t)
	source.CreateTopic(t, "big", 1, nil)
	source.CreateTopic(t, "idle", 1, nil)
	source.Produce(t, "idle", 0, "1")
	const records = bigRecords
	produceBig(t, source, "big")
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}, Settings: map[string]string{"mirror.throttle.bytes.per.second": "1000"}})
	harness.Eventually(t, "the source's end is seen before its records are here", func() bool {
		p := statusOf(t, standby, "big", 0)
		return p.Loss != nil && p.Loss.Known && p.Loss.Records > 0 && p.SrcEnd == records
	})
	source.Stop(t)
	before := statusOf(t, standby, "big", 0)
	if l := before.Loss; l == nil || l.Records != int64(records-before.End) || l.SrcEnd != records || l.SrcEpoch < 0 || l.SeenAt <= 0 {
		t.Errorf("before the failover: %+v of %+v", l, before)
	}
	sum := status(t, standby).Loss
	if sum == nil || sum.Behind == 0 || !strings.Contains(sum.Statement, "at most") {
		t.Errorf("the mirror's loss: %+v", sum)
	}
	st := failover(t, standby)
	for _, p := range st.Partitions {
		if p.Topic != "big" {
			continue
		}
		taken := p.Promotion.LastMirroredOffset
		if l := p.Loss; !l.Known || l.Records != int64(records-taken) || l.SrcEnd != types.Offset(records) || l.Ms <= 0 {
			t.Errorf("after the failover: %+v, taken up to %d", l, taken)
		}
	}
	text := strings.Join(st.Message, "\n")
	if !strings.Contains(text, "big-0: taken up to offset") || !strings.Contains(text, "at most") {
		t.Errorf("the failover says:\n%s", text)
	}
	// It is in the metadata: a restart doesn't forget it.
	again := statusOf(t, standby.Restart(t), "big", 0)
	if again.Loss == nil || again.Loss.Records <= 0 || !again.Loss.Known {
		t.Errorf("after a restart: %+v", again.Loss)
	}
}

// A partition to which nothing happens is watched all the same: incremental fetches don't answer for it.
func TestIdlePartitionIsSeen(t *testing.T) {
	source := harness.StartBroker(t)
	standby := startStandby(t, harness.WithSetting("mirror.metadata.refresh.ms", "600000"))
	source.CreateTopic(t, "idle", 1, nil)
	source.Produce(t, "idle", 0, "1")
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}})
	awaitEnd(t, standby, "idle", 0, 1)
	var first *mirror.Loss
	harness.Eventually(t, "the source is seen", func() bool { first = statusOf(t, standby, "idle", 0).Loss; return first != nil && first.Known })
	harness.Eventually(t, "the source is seen again and again", func() bool {
		l := statusOf(t, standby, "idle", 0).Loss
		return l != nil && l.Known && l.SeenAt > first.SeenAt+500 && l.Ms < 5_000
	})
}
