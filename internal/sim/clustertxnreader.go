package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// stableReader reads the committed records of a partition, as clients do
// (read_committed): up to the last stable offset, without those of the aborted
// transactions that come with the answer.
type stableReader struct {
	w         *txnWorld
	partition int32
	topic     types.TopicID
	leader    types.BrokerID
	at, end   types.Offset
	aborted   map[int64]bool // producers whose open transaction is an aborted one, at the position
	since     time.Duration  // of its last answer
	began     time.Duration  // when it began to read, from the first record on
}

func (r *stableReader) who() string { return r.w.c.prefix + fmt.Sprintf("reader %d", r.partition) }

func (r *stableReader) run() {
	d := r.w.k.dice(r.who())
	r.since = -1
	for {
		if r.topic != r.w.topicID() || r.aborted == nil || r.began < r.w.c.check.ledger(meta.PartitionID{Topic: r.topic, Number: r.partition}).unclean {
			r.begin() // an unclean election may have taken what was read, as the leader epoch tells clients (KIP-320)
		}
		if r.leader == 0 || d.chance(0.05) {
			r.leader, _ = r.w.c.leader(r.topic, int(r.partition), d, r.leader)
		}
		if !r.fetch() {
			r.leader = 0
		}
		_, _ = r.w.p.Wait(r.w.p.context(), d.between(50*time.Millisecond, 500*time.Millisecond), nil) // nothing ends it
	}
}

func (r *stableReader) begin() {
	r.topic, r.at, r.end, r.leader, r.aborted, r.began = r.w.topicID(), 0, 0, 0, map[int64]bool{}, r.w.k.now
}

// behind says what the reader lacks after the faults.
func (r *stableReader) behind() string {
	l := r.w.c.check.ledger(meta.PartitionID{Topic: r.topic, Number: r.partition})
	if len(r.w.judge.lost) > 0 || l.unclean >= 0 {
		return "" // what an unclean election took may have been the end of a transaction
	}
	if r.since < r.w.c.healedAt || r.at < r.end {
		return fmt.Sprintf("%s is at %d, the end is %d", r.who(), r.at, r.end)
	}
	return ""
}

func (r *stableReader) fetch() bool {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.IsolationLevel, req.SessionEpoch = 11, -1, 100, 1, 3000, 1, -1
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.PartitionMaxBytes, part.CurrentLeaderEpoch = r.partition, int64(r.at), 3000, -1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.Partitions = clusterTopic, []kmsg.FetchRequestTopicPartition{part}
	req.Topics = append(req.Topics, topic)
	resp, err := r.w.request(sending{from: r.who(), to: r.w.c.machine(r.leader), req: req, timeout: clientTimeout}, nil)
	if err != nil {
		return false
	}
	f := resp.(*kmsg.FetchResponse)
	if f.ErrorCode != 0 || len(f.Topics) != 1 || len(f.Topics[0].Partitions) != 1 {
		return false
	}
	return r.take(&f.Topics[0].Partitions[0])
}

// earliest takes the position where the log begins, as clients do that find theirs deleted
// (auto.offset.reset=earliest).
func (r *stableReader) earliest(leader types.BrokerID) bool {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID, req.IsolationLevel = 7, -1, 1
	part := kmsg.NewListOffsetsRequestTopicPartition()
	part.Partition, part.Timestamp, part.CurrentLeaderEpoch = r.partition, -2, -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic, topic.Partitions = clusterTopic, []kmsg.ListOffsetsRequestTopicPartition{part}
	req.Topics = append(req.Topics, topic)
	resp, err := r.w.request(sending{from: r.who(), to: r.w.c.machine(leader), req: req, timeout: clientTimeout}, nil)
	if err != nil {
		return false
	}
	l := resp.(*kmsg.ListOffsetsResponse)
	if len(l.Topics) != 1 || len(l.Topics[0].Partitions) != 1 || l.Topics[0].Partitions[0].ErrorCode != 0 {
		return false
	}
	r.at = types.Offset(l.Topics[0].Partitions[0].Offset)
	r.w.k.probe("transaction: a reader's position was deleted")
	return true
}

// take reads an answer, batch by batch, as clients do.
func (r *stableReader) take(p *kmsg.FetchResponseTopicPartition) bool {
	if code := wire.ErrCode(p.ErrorCode); code == wire.ErrOffsetOutOfRange {
		at := r.leader
		r.begin() // an unclean election has taken what was read, or it was deleted
		return r.w.c.o.RetentionBytes == 0 || r.earliest(at)
	} else if code != wire.None {
		return false
	}
	r.since, r.end = r.w.k.now, types.Offset(p.HighWatermark)
	clear(r.aborted) // each answer tells of all that lie in it, from wherever it is read
	next := slices.SortedFunc(slices.Values(p.AbortedTransactions), func(a, b kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return cmp.Compare(a.FirstOffset, b.FirstOffset)
	})
	if p.LastStableOffset < p.HighWatermark {
		r.w.k.probe("transaction: the stable offset stands below the mark")
	}
	for it := batch.Iterate(p.RecordBatches); it.Next(); {
		h := &it.Header
		if h.NextOffset() <= r.at {
			continue
		}
		if h.BaseOffset >= types.Offset(p.LastStableOffset) {
			r.w.c.check.fail("NoAbortedRead", "%s is given %d-%d, the last stable offset is %d", r.who(), h.BaseOffset, h.NextOffset()-1, p.LastStableOffset)
			return false
		}
		for len(next) > 0 && types.Offset(next[0].FirstOffset) < h.NextOffset() {
			r.aborted[next[0].ProducerID], next = true, next[1:]
		}
		r.at = h.NextOffset()
		r.batch(h, it.Raw)
	}
	return true
}

func (r *stableReader) batch(h *batch.Header, raw []byte) {
	pid := int64(h.ProducerID)
	switch {
	case !h.IsTransactional():
	case h.IsControl():
		delete(r.aborted, pid)
	default:
		r.w.ear.delivered(r, h, raw, r.aborted[pid])
	}
}
