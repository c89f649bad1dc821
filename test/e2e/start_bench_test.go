package e2e

import (
	"fmt"
	"runtime"
	"testing"

	"tidemark/test/e2e/harness"
)

// BenchmarkStart measures how long a node with many partitions takes to start
// (from Open to serving all of them), and its memory per partition.
func BenchmarkStart(b *testing.B) {
	for _, n := range []int{0, 1000, 10000} {
		b.Run(fmt.Sprintf("partitions=%d", n), func(b *testing.B) {
			node := harness.StartBroker(b)
			for made := 0; made < n; made += 1000 {
				node.CreateTopic(b, fmt.Sprintf("topic-%d", made), 1000, nil)
			}
			b.ResetTimer()
			for range b.N {
				b.StopTimer()
				node.Stop(b)
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				b.StartTimer()
				node = node.Restart(b)
				b.StopTimer()
				runtime.GC()
				runtime.ReadMemStats(&after)
				if n > 0 {
					b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(n), "B/partition")
				}
				b.StartTimer()
			}
		})
	}
}
