package e2e

import (
	"fmt"
	"testing"
	"time"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	"tidemark/test/e2e/harness"
)

// BenchmarkFailover measures the time from the failover of a mirror to a node
// that lets clients write to each of its partitions.
func BenchmarkFailover(b *testing.B) {
	for _, n := range []int32{100, 1000} {
		b.Run(fmt.Sprintf("partitions=%d", n), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				source, standby := harness.StartBroker(b), startStandby(b)
				source.CreateTopic(b, "t", n, nil)
				mirrorOf(b, standby, mirror.Spec{Bootstrap: []string{source.Addr}})
				harness.Eventually(b, "everything mirrors", func() bool {
					running := int32(0)
					for _, p := range status(b, standby).Partitions {
						if p.State == meta.MirrorMirroring {
							running++
						}
					}
					return running == n
				})
				source.Stop(b)
				b.StartTimer()
				from := time.Now()
				failover(b, standby)
				promoted := time.Since(from)
				for p := range n {
					part, _ := standby.PartitionByName("t", p)
					harness.Eventually(b, "served", func() bool { _, err := part.LeaderEpoch(); return err == nil })
				}
				b.StopTimer()
				b.ReportMetric(float64(promoted.Milliseconds()), "ms-promoted")
				b.ReportMetric(float64(time.Since(from).Milliseconds()), "ms-writable")
				standby.Stop(b)
			}
		})
	}
}
