package group

import (
	"fmt"
	"testing"

	"tidemark/internal/core/types"
)

// benchTable holds n stable groups of one member each.
func benchTable(b *testing.B, n int) *Table {
	b.Helper()
	table := NewTable(Config{MinSessionTimeout: 1, MaxSessionTimeout: 1 << 40, MaxSize: 10, OffsetMetadataMaxBytes: 10, OffsetsRetention: 1 << 40})
	var fx Effects
	for i := range n {
		fx.Reset()
		g := fmt.Sprintf("g%d", i)
		table.Step(1, Join{
			Request: 1, Group: g, FreshMemberID: "m", SessionTimeout: 45000, RebalanceTimeout: 45000,
			ProtocolType: "consumer", Protocols: []Protocol{{Name: "range", Metadata: subscription("t")}},
		}, &fx)
		table.Step(1, Sync{Request: 2, Group: g, MemberID: "m", Generation: 1}, &fx)
		table.Step(1, Appended{Token: table.lastToken}, &fx)
	}
	return table
}

func BenchmarkHeartbeat(b *testing.B) {
	table := benchTable(b, 1000)
	var fx Effects
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("g%d", i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		fx.Reset()
		table.Step(types.Millis(i/1000+2), Heartbeat{Request: 1, Group: names[i%1000], MemberID: "m", Generation: 1}, &fx)
	}
}

func BenchmarkCommit(b *testing.B) {
	table := benchTable(b, 1)
	var fx Effects
	offsets := make([]CommitOffset, 10)
	for i := range offsets {
		offsets[i] = CommitOffset{Topic: "topic", Partition: int32(i), Offset: 5, Retention: -1}
	}
	b.ReportAllocs()
	for b.Loop() {
		fx.Reset()
		table.Step(2, Commit{Request: 1, Group: "g0", MemberID: "m", Generation: 1, Offsets: offsets}, &fx)
		table.Step(2, Appended{Token: table.lastToken}, &fx)
	}
}

// BenchmarkTick is the cost of time passing over many groups of which none is due.
func BenchmarkTick(b *testing.B) {
	table := benchTable(b, 10000)
	var fx Effects
	b.ReportAllocs()
	for b.Loop() {
		fx.Reset()
		table.Step(2, Tick{}, &fx)
	}
}
