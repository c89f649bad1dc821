package api

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/clock"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// Produce (key 0): append one batch to each of some partitions.
//
// Behaviour
//   - Acks are 0, 1 or -1; anything else is INVALID_REQUIRED_ACKS for every partition.
//   - With acks=0 there is no answer; if any partition fails the connection is
//     closed, which is the only way to tell the client (Kafka parity).
//   - A partition's records are exactly one batch of format 2; the partition's
//     log checks the rest.
//   - Partitions of one request are appended at once, so that they share one
//     wait for acks. One connection's requests go one after another.
//   - Internal topics are closed to clients, but for Kafka's admin client
//     (client id __admin_client).
//   - A mirrored topic is read-only: POLICY_VIOLATION with a sentence (ErrReadOnly).
//   - Of a transaction's first batch the coordinator is asked whether the partition
//     belongs to it, or told that it does (txnproduce.go, KIP-890).
//
// Versions
//   - 0-2: refused, though 0 is advertised (see ApiVersions).
//   - 3: transactional id. 5: log start offset in the answer. 7: zstd (KIP-110).
//     8: record errors and messages (KIP-467). 9: flexible. 10: current leader
//     hints (KIP-951). 11, 12: transactions (KIP-890). 13: topic ids (KIP-516).
func (c *Call) produce(in *kmsg.ProduceRequest) (kmsg.Response, error) {
	jobs := produceJobs(in)
	c.appendAll(in, jobs)
	if in.Acks == 0 {
		for i := range jobs {
			if jobs[i].err != nil {
				return nil, fmt.Errorf("%w: Produce with acks=0 failed: %w", ErrClose, jobs[i].err)
			}
		}
		return nil, nil
	}
	return c.produceAnswer(in, jobs), nil
}

// produceJob is one partition of a Produce request.
type produceJob struct {
	ref   topicRef
	index int32
	raw   []byte

	id  types.TopicID // zero if the topic isn't known
	res AppendResult
	err error
	// hint is what the partition knew of its leader that refused the append.
	hint leaderHint
	// guard is what was learned of the batch's transaction.
	guard TxnGuard
}

func produceJobs(in *kmsg.ProduceRequest) []produceJob {
	n := 0
	for i := range in.Topics {
		n += len(in.Topics[i].Partitions)
	}
	jobs := make([]produceJob, 0, n)
	for i := range in.Topics {
		t := &in.Topics[i]
		ref := topicRef{name: t.Topic, id: t.TopicID, useID: in.Version >= 13}
		for j := range t.Partitions {
			jobs = append(jobs, produceJob{hint: noHint, ref: ref, index: t.Partitions[j].Partition, raw: t.Partitions[j].Records})
		}
	}
	return jobs
}

// appendAllMax is how many partitions of one request are appended at once.
const appendAllMax = 1024

func (c *Call) appendAll(in *kmsg.ProduceRequest, jobs []produceJob) {
	if len(jobs) == 1 {
		c.appendOne(in, &jobs[0])
		return
	}
	each(c.Ctx, len(jobs), appendAllMax, func(i int) { c.appendOne(in, &jobs[i]) })
}

// each runs f for 0 to n-1 on up to width goroutines and waits. A panic of f
// becomes one of the caller, so that it costs one connection only.
func each(ctx context.Context, n, width int, f func(i int)) {
	var wg sync.WaitGroup
	var once sync.Once
	var failure any
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	for range min(n, width) {
		clock.Go(ctx, &wg, func() {
			defer func() {
				p := recover()
				if _, ended := p.(clock.Ended); ended {
					panic(p) // nobody waits any more
				}
				if p != nil {
					once.Do(func() { failure = p })
				}
			}()
			for i := range next {
				f(i)
			}
		})
	}
	clock.Join(ctx, &wg)
	if failure != nil {
		panic(failure)
	}
}

// adminClientID is what Kafka's own tools call themselves when they write to
// internal topics.
const adminClientID = "__admin_client"

func (c *Call) appendOne(in *kmsg.ProduceRequest, j *produceJob) {
	h, p, err := c.checkProduce(in, j)
	if err == nil && h.IsTransactional() {
		err = c.enlist(in, j, &h, p)
	}
	if err == nil {
		ctx := c.Ctx
		if in.Acks == 0 {
			// A client that sends and goes has still sent.
			ctx = context.WithoutCancel(ctx)
		}
		j.res, err = p.Append(ctx, j.raw, AppendRequest{
			Acks: in.Acks, Timeout: time.Duration(in.TimeoutMillis) * time.Millisecond,
			LeaderEpoch: types.NoLeaderEpoch, RequestVersion: in.Version, Guard: j.guard,
		})
	}
	if j.err = err; err != nil {
		if p != nil {
			j.hint = hintOf(p)
		}
		return
	}
	if c.Metrics != nil {
		c.Metrics.Produced(p.Name().Topic, len(j.raw), int(h.RecordsCount))
	}
}

// checkProduce does what needs no log, in Kafka's order: acks, records, topic.
func (c *Call) checkProduce(in *kmsg.ProduceRequest, j *produceJob) (batch.Header, Partition, error) {
	if in.Acks < -1 || in.Acks > 1 {
		return batch.Header{}, nil, wire.Errorf(wire.ErrInvalidRequiredAcks, "acks must be -1, 0 or 1, not %d", in.Acks)
	}
	h, err := oneBatch(j.raw, in.Version)
	if err != nil {
		return h, nil, err
	}
	t, err := j.ref.find(c.Image)
	if err != nil {
		return h, nil, err
	}
	j.id = t.ID
	switch {
	case t.Internal && c.Req.ClientID != adminClientID:
		return h, nil, wire.Errorf(wire.ErrInvalidTopic, "Topic %s is internal: clients can't write to it.", t.Name)
	case h.IsTransactional() && in.TransactionID == nil:
		return h, nil, wire.Errorf(wire.ErrTransactionalIDAuthorizationFailed, "A batch of a transaction came without a transactional id.")
	case j.index < 0 || j.index >= t.Partitions:
		return h, nil, wire.ErrUnknownTopicOrPartition
	}
	p, err := c.Partitions.Get(t.ID, j.index)
	return h, p, err
}

// oneBatch checks that raw is one whole batch of format 2.
func oneBatch(raw []byte, version int16) (batch.Header, error) {
	if len(raw) == 0 {
		return batch.Header{}, wire.Errorf(wire.ErrInvalidRecord, "A produce request of version %d needs one record batch for each partition.", version)
	}
	h, err := batch.ParseHeader(raw)
	switch {
	case err != nil:
		return h, err
	case h.Size() > len(raw):
		return h, batch.ErrShort
	case h.Size() < len(raw):
		return h, wire.Errorf(wire.ErrInvalidRecord, "A produce request of version %d takes one record batch for each partition, not more.", version)
	case h.Compression() == batch.Zstd && version < 7:
		return h, wire.Errorf(wire.ErrUnsupportedCompressionType, "zstd needs Produce version 7 or later.")
	}
	return h, nil
}

func (c *Call) produceAnswer(in *kmsg.ProduceRequest, jobs []produceJob) *kmsg.ProduceResponse {
	out := kmsg.NewPtrProduceResponse()
	out.Topics = make([]kmsg.ProduceResponseTopic, len(in.Topics))
	// The newest image: an append that waited may have lost its leader meanwhile.
	h := hints{call: c, image: c.Server.Image()}
	next := 0
	for i := range in.Topics {
		from, to := &in.Topics[i], &out.Topics[i]
		to.Topic, to.TopicID = from.Topic, from.TopicID
		to.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(from.Partitions))
		for k := range to.Partitions {
			c.producePart(&to.Partitions[k], &jobs[next], &h)
			next++
		}
	}
	if in.Version >= 10 {
		for _, n := range h.nodes {
			out.Brokers = append(out.Brokers, kmsg.ProduceResponseBroker{NodeID: int32(n.ID), Host: n.Host, Port: n.Port, Rack: nullable(n.Rack)})
		}
	}
	return out
}

func (c *Call) producePart(p *kmsg.ProduceResponseTopicPartition, j *produceJob, h *hints) {
	p.Default()
	p.Partition = j.index
	if j.err == nil {
		p.BaseOffset, p.LogStartOffset = int64(j.res.BaseOffset), int64(j.res.LogStart)
		p.LogAppendTime = int64(j.res.LogAppendTime)
		return
	}
	code := c.failed(wire.KeyProduce, j.err)
	p.ErrorCode = int16(code)
	p.BaseOffset, p.LogAppendTime, p.LogStartOffset = -1, -1, -1
	p.ErrorMessage = MessageOf(j.err)
	for _, r := range recordErrors(j.res, j.err) {
		p.ErrorRecords = append(p.ErrorRecords, kmsg.ProduceResponseTopicPartitionErrorRecord{RelativeOffset: r.Index, ErrorMessage: nullable(r.Message)})
	}
	if c.Req.Version >= 10 && !j.id.IsZero() {
		leader, epoch := h.leader(j.id, j.index, code, j.hint)
		p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = int32(leader), int32(epoch)
	}
}
