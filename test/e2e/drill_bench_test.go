package e2e

import (
	"fmt"
	"testing"
	"time"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	"tidemark/test/e2e/harness"
)

// BenchmarkDrill measures a drill, and compares what it says of a failover with the
// failover that follows.
func BenchmarkDrill(b *testing.B) {
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
				b.StartTimer()
				report, err := standby.Mirrors().Drill(harness.Context(b), "m", mirror.DrillRequest{Drill: "d"})
				b.StopTimer()
				if err != nil {
					b.Fatal(err)
				}
				for _, s := range report.Steps {
					b.Logf("%s: %.1f ms", s.Name, s.Ms)
				}
				from := time.Now()
				failover(b, standby)
				b.ReportMetric(report.FailoverMs, "ms-said")
				b.ReportMetric(float64(time.Since(from).Milliseconds()), "ms-failover")
				source.Stop(b)
				standby.Stop(b)
			}
		})
	}
}
