package wire

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
)

type fileOf []byte

func (f fileOf) ReadAt(b []byte, off int64) (int, error) { return copy(b, f[off:]), nil }
func (f fileOf) Fd() (uintptr, bool)                     { return 0, false }

// flat gives the answer's bytes as they go onto the wire.
func flat(r *Response) []byte {
	var b []byte
	for _, p := range r.Pieces() {
		if p.File == nil {
			b = append(b, p.Mem...)
			continue
		}
		part := make([]byte, p.Len)
		if _, err := p.File.ReadAt(part, p.Off); err != nil {
			panic(err)
		}
		b = append(b, part...)
	}
	return b
}

// The encoder and kmsg write the same bytes for every version.
func TestFetchEncoderAgreesWithKmsg(t *testing.T) {
	id := types.TopicID{1, 2, 3, 15: 9}
	records := fileOf("....first records....second")
	parts := []FetchPartition{
		{Partition: 0, HighWatermark: 100, LastStable: 90, LogStart: 5, Committed: true,
			Aborted:   []AbortedTxn{{ProducerID: 7, FirstOffset: 50}, {ProducerID: 8, FirstOffset: 60}},
			Records:   []Piece{{File: records, Off: 4, Len: 13}, {File: records, Off: 21, Len: 6}},
			Preferred: types.NoBroker, Leader: types.NoBroker, LeaderEpoch: types.NoLeaderEpoch, DivergingEpoch: types.NoLeaderEpoch},
		{Partition: 300, Code: ErrFencedLeaderEpoch, HighWatermark: -1, LastStable: -1, LogStart: -1,
			Preferred: types.NoBroker, Leader: 2, LeaderEpoch: 11, DivergingEpoch: types.NoLeaderEpoch},
		{Partition: 2, HighWatermark: 3, LastStable: 3, LogStart: 0, Committed: true,
			Preferred: 3, Leader: types.NoBroker, LeaderEpoch: types.NoLeaderEpoch, DivergingEpoch: 4, DivergingEnd: 77},
	}
	rack := "r1"
	for version := int16(4); version <= 18; version++ {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			req := &Request{Key: KeyFetch, Version: version, CorrelationID: 42}
			e := NewFetchEncoder(req, None, 99, 2)
			e.Topic("alpha", id, 2)
			e.Partition(&parts[0])
			e.Partition(&parts[1])
			e.EndTopic()
			e.Topic("beta", types.TopicID{}, 1)
			e.Partition(&parts[2])
			e.EndTopic()
			r := e.Response([]Node{{ID: 2, Host: "h", Port: 9092}, {ID: 3, Host: "i", Port: 1, Rack: "r1"}})
			defer r.Done()

			m := kmsg.NewPtrFetchResponse()
			m.SessionID = 99
			m.Topics = []kmsg.FetchResponseTopic{
				{Topic: "alpha", TopicID: id, Partitions: []kmsg.FetchResponseTopicPartition{kmsgPart(&parts[0]), kmsgPart(&parts[1])}},
				{Topic: "beta", Partitions: []kmsg.FetchResponseTopicPartition{kmsgPart(&parts[2])}},
			}
			if version >= 16 {
				m.Brokers = []kmsg.FetchResponseBroker{{NodeID: 2, Host: "h", Port: 9092}, {NodeID: 3, Host: "i", Port: 1, Rack: &rack}}
			}
			want := flat(Encode(req, m))
			if got := flat(r); !bytes.Equal(got, want) {
				t.Errorf("differs from kmsg:\n got %x\nwant %x", got, want)
			}
			if r.Size() != int64(len(want)) {
				t.Errorf("Size %d, want %d", r.Size(), len(want))
			}
		})
	}
}

func kmsgPart(p *FetchPartition) kmsg.FetchResponseTopicPartition {
	k := kmsg.NewFetchResponseTopicPartition()
	k.Partition, k.ErrorCode = p.Partition, int16(p.Code)
	k.HighWatermark, k.LastStableOffset, k.LogStartOffset = int64(p.HighWatermark), int64(p.LastStable), int64(p.LogStart)
	if p.Committed {
		k.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
	}
	for _, a := range p.Aborted {
		k.AbortedTransactions = append(k.AbortedTransactions,
			kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: int64(a.ProducerID), FirstOffset: int64(a.FirstOffset)})
	}
	k.PreferredReadReplica = int32(p.Preferred)
	k.RecordBatches = []byte{}
	for _, r := range p.Records {
		b := make([]byte, r.Len)
		_, _ = r.File.ReadAt(b, r.Off) // fileOf can't fail
		k.RecordBatches = append(k.RecordBatches, b...)
	}
	k.CurrentLeader.LeaderID, k.CurrentLeader.LeaderEpoch = int32(p.Leader), int32(p.LeaderEpoch)
	if p.DivergingEpoch >= 0 {
		k.DivergingEpoch.Epoch, k.DivergingEpoch.EndOffset = int32(p.DivergingEpoch), int64(p.DivergingEnd)
	}
	return k
}

// A used encoder shows nothing of its former answer, and allocates nothing.
func TestFetchEncoderIsReusable(t *testing.T) {
	req := &Request{Key: KeyFetch, Version: 12}
	records := fileOf("0123456789")
	part := FetchPartition{Records: []Piece{{File: records, Off: 0, Len: 10}}, Leader: types.NoBroker,
		LeaderEpoch: types.NoLeaderEpoch, DivergingEpoch: types.NoLeaderEpoch}
	encode := func() *Response {
		e := NewFetchEncoder(req, None, 1, 1)
		e.Topic("t", types.TopicID{}, 1)
		e.Partition(&part)
		e.EndTopic()
		return e.Response(nil)
	}
	first := encode()
	want := flat(first)
	first.Done()
	second := encode()
	if diff := cmp.Diff(want, flat(second)); diff != "" {
		t.Error(diff)
	}
	second.Done()
	if n := testing.AllocsPerRun(100, func() { encode().Done() }); n > 0 && !underRace {
		t.Errorf("%v allocations per answer, want 0", n)
	}
}
