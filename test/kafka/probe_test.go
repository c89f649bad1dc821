//go:build kafka

package kafka_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
)

// answer is what a contender said to one question, field by field, in words that don't depend on who was asked: epochs are named by
// the stage of the story that they belong to, times are counted from the story's first record.
type answer struct {
	question string
	fields   map[string]string
}

// epochRef is an epoch of the story and its number at one contender.
type epochRef struct {
	name  string
	value int32
}

// epochName gives the story's name of an epoch of partition p: E3 is the leader epoch at the end of stage 3 (and since an earlier one,
// if that is its name), E3+ one between it and the next, above one higher than all.
func (c *contender) epochName(p int32, epoch int32) string {
	if epoch < 0 {
		return fmt.Sprint(epoch)
	}
	name := "below"
	for i, e := range c.stages[p] {
		if e == epoch {
			return fmt.Sprint("E", i)
		}
		if e < epoch {
			name = fmt.Sprintf("E%d+", slices.Index(c.stages[p], e))
		}
	}
	if last := c.stages[p]; epoch > last[len(last)-1] {
		return "above"
	}
	return name
}

func (c *contender) currentEpoch(p int32) int32 { return c.stages[p][len(c.stages[p])-1] }

// epochRefs are all epochs worth asking for: none, each stage's, one and many above the current one.
func (c *contender) epochRefs(p int32) []epochRef {
	refs := []epochRef{{"-1", -1}}
	for i, e := range c.stages[p] {
		if slices.Index(c.stages[p], e) == i {
			refs = append(refs, epochRef{fmt.Sprint("E", i), e})
		}
	}
	return append(refs, epochRef{"cur+1", c.currentEpoch(p) + 1}, epochRef{"cur+1000", c.currentEpoch(p) + 1000})
}

// currentRefs are what an asker may believe the leader epoch to be: nothing, right, fenced, unknown.
func (c *contender) currentRefs(p int32) []epochRef {
	cur := c.currentEpoch(p)
	refs := []epochRef{{"-1", -1}, {"cur", cur}, {"cur+1", cur + 1}}
	if cur > 0 {
		refs = append(refs, epochRef{"cur-1", cur - 1})
	}
	return refs
}

func codeName(code int16) string {
	if code == 0 {
		return "NONE"
	}
	if err, ok := kerr.ErrorForCode(code).(*kerr.Error); ok {
		return err.Message
	}
	return fmt.Sprint(code)
}

// prober asks one contender and gathers its answers; the first failure of a connection ends it.
type prober struct {
	c       *contender
	s       *story
	answers []answer
	err     error
}

func (q *prober) ask(id int32, req kmsg.Request) kmsg.Response {
	if q.err != nil {
		return nil
	}
	resp, err := q.c.ask(id, req)
	q.err = err
	return resp
}

func (q *prober) add(question string, fields map[string]string) {
	q.answers = append(q.answers, answer{question, fields})
}

// probe asks everything about the present state. The leader of each partition is asked in full, one of its followers in short.
func (c *contender) probe(s *story) ([]answer, error) {
	q := &prober{c: c, s: s}
	for p := range int32(storyPartitions) {
		leader := s.leaders[p]
		q.epochEnds(p, leader, "leader")
		q.fetches(p, leader)
		q.listOffsets(p, leader, "leader")
		for id := int32(1); id <= 3; id++ {
			if c.up[id] && id != leader {
				q.epochEnds(p, id, "follower")
				q.listOffsets(p, id, "follower")
				q.fetchesOfFollower(p, id)
				break
			}
		}
	}
	q.strangers(s.leaders[0])
	return q.answers, q.err
}

func (q *prober) epochEnds(p, id int32, role string) {
	for version := int16(2); version <= 4; version++ {
		for _, replica := range []int32{-1, q.s.follower(p)} {
			for _, current := range q.c.currentRefs(p) {
				for _, epoch := range q.c.epochRefs(p) {
					q.epochEnd(version, p, id, replica, current, epoch, role)
				}
			}
		}
	}
}

func (q *prober) epochEnd(version int16, p, id, replica int32, current, epoch epochRef, role string) {
	if replica >= 0 && (version < 3 || role != "leader") {
		return
	}
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.SetVersion(version)
	req.ReplicaID = replica
	rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
	rt.Topic = q.c.topic
	rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = p, current.value, epoch.value
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	raw := q.ask(id, req)
	if q.err != nil {
		return
	}
	question := fmt.Sprintf("OffsetForLeaderEpoch v%d %s of p%d replica=%d current=%s epoch=%s", version, role, p, replica, current.name, epoch.name)
	got := raw.(*kmsg.OffsetForLeaderEpochResponse)
	if len(got.Topics) != 1 || len(got.Topics[0].Partitions) != 1 {
		q.add(question, map[string]string{"shape": fmt.Sprintf("%+v", got.Topics)})
		return
	}
	a := got.Topics[0].Partitions[0]
	q.add(question, map[string]string{"error": codeName(a.ErrorCode), "partition": fmt.Sprint(a.Partition),
		"epoch": q.c.epochName(p, a.LeaderEpoch), "end": fmt.Sprint(a.EndOffset)})
}

// fetchCase is one Fetch request's content.
type fetchCase struct {
	version       int16
	replica       int32
	offset        int64
	current, last epochRef
	committed     int8
}

func (f fetchCase) String() string {
	return fmt.Sprintf("Fetch v%d replica=%d offset=%d current=%s last=%s isolation=%d", f.version, f.replica, f.offset, f.current.name, f.last.name, f.committed)
}

// fetches asks in full as a consumer by name and as a follower by topic id; the versions between get a few of the questions.
func (q *prober) fetches(p, id int32) {
	currents, lasts := q.c.currentRefs(p), q.c.epochRefs(p)
	none := epochRef{"-1", -1}
	offsets, follower := q.s.offsets(p), q.s.follower(p)
	for _, offset := range offsets {
		for _, last := range lasts {
			q.fetch(p, id, "leader", fetchCase{version: 12, replica: -1, offset: offset, current: currents[1], last: last})
			q.fetch(p, id, "leader", fetchCase{version: 17, replica: follower, offset: offset, current: currents[1], last: last})
			q.fetch(p, id, "leader", fetchCase{version: 12, replica: follower, offset: offset, current: none, last: last})
		}
	}
	end := q.s.logs[p].end
	for version := int16(4); version <= 18; version++ {
		for _, offset := range []int64{q.s.logs[p].start, end, end + 1} {
			q.fetch(p, id, "leader", fetchCase{version: version, replica: -1, offset: offset, current: none, last: none, committed: int8(version % 2)})
		}
	}
	for _, version := range []int16{9, 12, 13, 15, 16, 18} {
		for _, current := range currents {
			for _, replica := range []int32{-1, follower} {
				q.fetch(p, id, "leader", fetchCase{version: version, replica: replica, offset: end, current: current, last: none})
				q.fetch(p, id, "leader", fetchCase{version: version, replica: replica, offset: end, current: current, last: lasts[1]})
			}
		}
	}
}

// fetchesOfFollower asks a broker that doesn't lead.
func (q *prober) fetchesOfFollower(p, id int32) {
	none := epochRef{"-1", -1}
	cur := epochRef{"cur", q.c.currentEpoch(p)}
	for _, version := range []int16{10, 12, 13, 16, 18} {
		for _, current := range []epochRef{none, cur} {
			q.fetch(p, id, "follower", fetchCase{version: version, replica: -1, offset: q.s.logs[p].end, current: current, last: none})
			q.fetch(p, id, "follower", fetchCase{version: version, replica: q.s.leaders[p], offset: q.s.logs[p].end, current: current, last: none})
		}
	}
}

// fetchRequest lays out a Fetch without session that waits for nothing.
func (q *prober) fetchRequest(p int32, f fetchCase) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(f.version)
	req.MaxBytes, req.SessionEpoch, req.IsolationLevel = 1<<20, -1, f.committed
	if f.version >= 15 {
		req.ReplicaState.ID = f.replica
	} else {
		req.ReplicaID = f.replica
	}
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = q.c.topic, q.c.topicID
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p, f.offset, 1<<20
	rp.CurrentLeaderEpoch, rp.LastFetchedEpoch = f.current.value, f.last.value
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func (q *prober) fetch(p, id int32, role string, f fetchCase) {
	raw := q.ask(id, q.fetchRequest(p, f))
	if q.err != nil {
		return
	}
	got := raw.(*kmsg.FetchResponse)
	question := fmt.Sprintf("%v, %s of p%d", f, role, p)
	if got.ErrorCode != 0 || len(got.Topics) != 1 || len(got.Topics[0].Partitions) != 1 {
		q.add(question, map[string]string{"whole": codeName(got.ErrorCode), "shape": fmt.Sprint(len(got.Topics))})
		return
	}
	a := got.Topics[0].Partitions[0]
	fields := map[string]string{
		"error": codeName(a.ErrorCode), "partition": fmt.Sprint(a.Partition), "highWatermark": fmt.Sprint(a.HighWatermark),
		"lastStable": fmt.Sprint(a.LastStableOffset), "logStart": fmt.Sprint(a.LogStartOffset), "aborted": fmt.Sprint(len(a.AbortedTransactions)),
		"diverging": fmt.Sprintf("%s ends at %d", q.c.epochName(p, a.DivergingEpoch.Epoch), a.DivergingEpoch.EndOffset),
		"leader":    fmt.Sprintf("%d in %s", a.CurrentLeader.LeaderID, q.c.epochName(p, a.CurrentLeader.LeaderEpoch)),
		"preferred": fmt.Sprint(a.PreferredReadReplica), "records": q.records(p, a.RecordBatches),
	}
	var nodes []string
	for _, b := range got.Brokers {
		nodes = append(nodes, fmt.Sprint(b.NodeID, " at its address: ", q.c.addr[b.NodeID] == fmt.Sprintf("%s:%d", b.Host, b.Port)))
	}
	fields["nodes"] = strings.Join(nodes, ", ")
	q.add(question, fields)
}

// records tells batches by offsets, epoch, size and checksum.
func (q *prober) records(p int32, raw []byte) string {
	var out []string
	it := batch.Iterate(raw)
	for it.Next() {
		h := &it.Header
		out = append(out, fmt.Sprintf("%d-%d %s %d bytes crc %08x", h.BaseOffset, h.LastOffset(), q.c.epochName(p, int32(h.PartitionLeaderEpoch)), len(it.Raw), h.CRC))
	}
	if it.Err() != nil {
		out = append(out, it.Err().Error())
	}
	return strings.Join(out, "; ")
}

// listOffsets asks for every special time in every version, and of the leader, in the first and the last version, for times between the records.
func (q *prober) listOffsets(p, id int32, role string) {
	special := []int64{-1, -2, -3, -4, -5, -6, -7}
	times := append([]int64{0, q.s.now + int64(time.Hour/time.Millisecond)}, special...)
	for _, b := range q.s.logs[p].times {
		times = append(times, b-1, b)
	}
	for version := int16(1); version <= 11; version++ {
		currents, ask := []epochRef{{"-1", -1}}, special
		if version == 4 || version == 9 || version == 11 {
			currents = q.c.currentRefs(p)
		}
		if role == "leader" && (version == 1 || version == 11) {
			ask = times
		}
		for _, ts := range ask {
			for _, current := range currents {
				q.listOffset(version, p, id, ts, current, role)
			}
		}
	}
}

func (q *prober) listOffset(version int16, p, id int32, ts int64, current epochRef, role string) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.SetVersion(version)
	req.ReplicaID, req.IsolationLevel = -1, int8(version%2)
	req.TimeoutMillis = 1000
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = q.c.topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = p, ts, current.value
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	raw := q.ask(id, req)
	if q.err != nil {
		return
	}
	question := fmt.Sprintf("ListOffsets v%d %s of p%d time=%s current=%s", version, role, p, q.s.timeName(ts), current.name)
	got := raw.(*kmsg.ListOffsetsResponse)
	if len(got.Topics) != 1 || len(got.Topics[0].Partitions) != 1 {
		q.add(question, map[string]string{"shape": fmt.Sprintf("%+v", got.Topics)})
		return
	}
	a := got.Topics[0].Partitions[0]
	q.add(question, map[string]string{"error": codeName(a.ErrorCode), "partition": fmt.Sprint(a.Partition), "offset": fmt.Sprint(a.Offset),
		"time": q.s.timeName(a.Timestamp), "epoch": q.c.epochName(p, a.LeaderEpoch)})
}

// strangers asks for what isn't there: a partition beyond the last, and replicas that have none.
func (q *prober) strangers(id int32) {
	none := epochRef{"-1", -1}
	q.epochEnd(4, 0, id, -2, none, epochRef{"E0", q.c.stages[0][0]}, "leader")
	for _, version := range []int16{12, 13, 17} {
		for _, replica := range []int32{4, 77, id} {
			q.fetch(0, id, "leader", fetchCase{version: version, replica: replica, offset: q.s.logs[0].end, current: none, last: none})
		}
		req := q.fetchRequest(storyPartitions, fetchCase{version: version, replica: -1, current: none, last: none})
		if raw := q.ask(id, req); q.err == nil {
			a := raw.(*kmsg.FetchResponse)
			q.add(fmt.Sprintf("Fetch v%d of a partition that isn't there", version), map[string]string{"whole": codeName(a.ErrorCode), "error": codeName(a.Topics[0].Partitions[0].ErrorCode),
				"highWatermark": fmt.Sprint(a.Topics[0].Partitions[0].HighWatermark), "logStart": fmt.Sprint(a.Topics[0].Partitions[0].LogStartOffset)})
		}
		req.Topics[0].Topic, req.Topics[0].TopicID = "nothing", [16]byte{1, 2, 3}
		if raw := q.ask(id, req); q.err == nil {
			a := raw.(*kmsg.FetchResponse)
			q.add(fmt.Sprintf("Fetch v%d of a topic that isn't there", version), map[string]string{"whole": codeName(a.ErrorCode), "error": codeName(a.Topics[0].Partitions[0].ErrorCode)})
		}
	}
	ask := kmsg.NewPtrOffsetForLeaderEpochRequest()
	ask.SetVersion(4)
	rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
	rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	rt.Topic, rp.Partition = q.c.topic, storyPartitions
	rt.Partitions = append(rt.Partitions, rp)
	ask.Topics = append(ask.Topics, rt)
	if raw := q.ask(id, ask); q.err == nil {
		a := raw.(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
		q.add("OffsetForLeaderEpoch of a partition that isn't there", map[string]string{"error": codeName(a.ErrorCode), "epoch": fmt.Sprint(a.LeaderEpoch), "end": fmt.Sprint(a.EndOffset)})
	}
}
