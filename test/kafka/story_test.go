//go:build kafka

package kafka_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

const storyPartitions = 3

// storyReplicas are the replicas of each partition; the first that is in sync leads, at either contender.
var storyReplicas = [storyPartitions][]int32{{1, 2, 3}, {2, 3, 1}, {3, 1, 2}}

// stage is one step of the story: what happens to the brokers, who is in sync then, and what is written.
type stage struct {
	name   string
	happen func(c *contender) error
	isr    []int32
	// rollback: what the stage before wrote is lost, uncleanly.
	rollback bool
	// deletes: what deletions says is gone from the beginning of the logs.
	deletes bool
	// writes are the records of each batch that every partition gets.
	writes []int
	acks   int16
}

var everyone = []int32{1, 2, 3}

// stages tell of elections by failure, by preference and by an orderly stop, of two in a row without records, of a leader that is left
// alone with records, of an unclean election behind its back and of its return, of deleted records, and of a follower that misses some.
func (s *story) stages() []stage {
	return []stage{
		{name: "all is well", isr: everyone, writes: []int{1, 2, 3}, acks: -1},
		{name: "1 is killed", happen: each((*contender).killNow, 1), isr: []int32{2, 3}, writes: []int{2, 1}, acks: -1},
		{name: "1 is back and leads", happen: each((*contender).startNow, 1), isr: everyone},
		{name: "1 stops in order", happen: each((*contender).stopNow, 1), isr: []int32{2, 3}},
		{name: "1 leads again, two elections left no record", happen: each((*contender).startNow, 1), isr: everyone, writes: []int{1}, acks: -1},
		{name: "1 is left alone and writes on", happen: each((*contender).killNow, 3, 2), isr: []int32{1}, writes: []int{3, 1, 2}, acks: 1},
		{name: "1 is gone too, the others are elected uncleanly", happen: s.uncleanly, isr: []int32{2, 3}, rollback: true, writes: []int{1, 1}, acks: -1},
		{name: "1 returns with its tail, and leads", happen: each((*contender).startNow, 1), isr: everyone, writes: []int{2}, acks: -1},
		{name: "records are deleted", happen: s.deleteRecords, deletes: true, isr: everyone},
		{name: "2 is killed", happen: each((*contender).killNow, 2), isr: []int32{1, 3}, writes: []int{2, 2}, acks: -1},
		{name: "2 catches up", happen: each((*contender).startNow, 2), isr: everyone, writes: []int{1}, acks: -1},
	}
}

func each(f func(*contender, int32), ids ...int32) func(*contender) error {
	return func(c *contender) error {
		for _, id := range ids {
			f(c, id)
		}
		return nil
	}
}

func (c *contender) killNow(id int32) { c.hangUp(id); c.kill(id); c.up[id] = false }
func (c *contender) stopNow(id int32) { c.hangUp(id); c.stop(id); c.up[id] = false }
func (c *contender) startNow(id int32) {
	if !c.up[id] {
		c.start(id)
		c.up[id] = true
	}
}

// chronicle is what the story knows of a partition's log; the same holds at both contenders.
type chronicle struct {
	start, end int64
	marks      []int64 // offsets where a stage's records begin or ended, also of those that were lost
	times      []int64 // of the batches, those that were lost included
	before     int64   // the end before the last stage's writes
}

// story is one telling: the same stages at both contenders, and what each answered after each.
type story struct {
	t       *testing.T
	both    []*contender
	now     int64 // the time of the first batch, ms
	logs    [storyPartitions]chronicle
	leaders [storyPartitions]int32
	moves   [storyPartitions]bool // the present stage has another leader than the one before
	answers [][]answer            // per contender
}

const settleLimit = 90 * time.Second

// atBoth runs f for the two contenders at once.
func (s *story) atBoth(f func(i int, c *contender) error) error {
	errs := make([]error, len(s.both))
	var wg sync.WaitGroup
	for i, c := range s.both {
		wg.Go(func() {
			if err := f(i, c); err != nil {
				errs[i] = fmt.Errorf("%s: %w", c.name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// tell makes the topic and goes through the stages; answers holds what was said.
func (s *story) tell(topic string) error {
	err := s.atBoth(func(_ int, c *contender) error {
		for id := range c.addr {
			c.startNow(id)
		}
		c.topic, c.stages = topic, [storyPartitions][]int32{}
		return within(settleLimit, "the topic is made", c.createTopic)
	})
	if err != nil {
		return err
	}
	s.answers = make([][]answer, len(s.both))
	for n, st := range s.stages() {
		began := time.Now()
		if err := s.stage(n, st); err != nil {
			return fmt.Errorf("stage %d (%s): %w", n, st.name, err)
		}
		s.t.Logf("stage %d (%s): %s", n, st.name, time.Since(began).Round(time.Millisecond))
	}
	return nil
}

func (s *story) stage(n int, st stage) error {
	if st.happen != nil {
		if err := s.atBoth(func(_ int, c *contender) error { return st.happen(c) }); err != nil {
			return err
		}
	}
	for p := range storyPartitions {
		l := &s.logs[p]
		if st.rollback {
			l.end = l.before
		}
		l.before = l.end
		was := s.leaders[p]
		s.leaders[p] = storyReplicas[p][slices.IndexFunc(storyReplicas[p], func(id int32) bool { return slices.Contains(st.isr, id) })]
		s.moves[p] = s.leaders[p] != was
	}
	err := s.atBoth(func(_ int, c *contender) error {
		return within(settleLimit, "leaders and replicas are as the story says", func() error { return c.settled(s, st.isr, true) })
	})
	if err != nil {
		return err
	}
	batches := s.lay(st)
	return s.atBoth(func(i int, c *contender) error {
		answers, err := c.write(s, batches, st.acks)
		if err != nil {
			return err
		}
		if err := within(settleLimit, "the records are everywhere", func() error { return c.settled(s, st.isr, false) }); err != nil {
			return err
		}
		probed, err := c.probe(s)
		if err != nil {
			return err
		}
		answers = append(append(answers, probed...), c.epochsNow(s))
		for _, a := range answers {
			a.question = fmt.Sprintf("after stage %d (%s): %s", n, st.name, a.question)
			s.answers[i] = append(s.answers[i], a)
		}
		return c.settled(s, st.isr, false)
	})
}

// epochsNow tells in which stage each partition's leader epoch began.
func (c *contender) epochsNow(*story) answer {
	fields := map[string]string{}
	for p := range int32(storyPartitions) {
		fields[fmt.Sprint("p", p)] = c.epochName(p, c.currentEpoch(p))
	}
	return answer{"the leader epochs", fields}
}

func (c *contender) createTopic() error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(7)
	req.TimeoutMillis = 10000
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = c.topic, -1, -1
	for p, replicas := range storyReplicas {
		ra := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		ra.Partition, ra.Replicas = int32(p), replicas
		rt.ReplicaAssignment = append(rt.ReplicaAssignment, ra)
	}
	req.Topics = append(req.Topics, rt)
	raw, err := c.ask(c.anyUp(), req)
	if err != nil {
		return err
	}
	if code := raw.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != 0 && code != kerr.TopicAlreadyExists.Code {
		return kerr.ErrorForCode(code)
	}
	return nil
}

// elect asks for elections of all partitions of the kind and gives the answers' codes.
func (c *contender) elect(kind int8) ([storyPartitions]int16, error) {
	var out [storyPartitions]int16
	req := kmsg.NewPtrElectLeadersRequest()
	req.SetVersion(2)
	req.ElectionType, req.TimeoutMillis = kind, 10000
	rt := kmsg.NewElectLeadersRequestTopic()
	rt.Topic, rt.Partitions = c.topic, []int32{0, 1, 2}
	req.Topics = append(req.Topics, rt)
	raw, err := c.ask(c.anyUp(), req)
	if err != nil {
		return out, err
	}
	resp := raw.(*kmsg.ElectLeadersResponse)
	if resp.ErrorCode != 0 {
		return out, kerr.ErrorForCode(resp.ErrorCode)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			out[p.Partition] = p.ErrorCode
		}
	}
	return out, nil
}

// uncleanly ends the last leader, starts the two that lack its records, and asks for them to be elected.
func (s *story) uncleanly(c *contender) error {
	c.killNow(1)
	c.startNow(2)
	c.startNow(3)
	return within(settleLimit, "an unclean election of all partitions", func() error {
		if _, err := c.elect(1); err != nil {
			return err
		}
		now, err := c.look(2)
		if err != nil {
			return err
		}
		for p, l := range now {
			if l.leader != 2 && l.leader != 3 {
				return fmt.Errorf("%d leads p%d", l.leader, p)
			}
		}
		return nil
	})
}

// deleteRecords cuts p0 inside the second leader's records and all of p1; the answers must be the same low watermarks.
func (s *story) deleteRecords(c *contender) error {
	for p, to := range s.deletions() {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.SetVersion(2)
		req.TimeoutMillis = 10000
		rt := kmsg.NewDeleteRecordsRequestTopic()
		rt.Topic = c.topic
		rp := kmsg.NewDeleteRecordsRequestTopicPartition()
		rp.Partition, rp.Offset = p, to
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		raw, err := c.ask(storyReplicas[p][0], req)
		if err != nil {
			return err
		}
		a := raw.(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
		if a.ErrorCode != 0 || a.LowWatermark != s.startAfterDeletion(p) {
			return fmt.Errorf("p%d deleted up to %d: %s, %d", p, to, codeName(a.ErrorCode), a.LowWatermark)
		}
	}
	return nil
}

// deletions say up to where records are deleted; -1 is up to the high watermark.
func (s *story) deletions() map[int32]int64 { return map[int32]int64{0: s.logs[0].marks[1] + 1, 1: -1} }

func (s *story) startAfterDeletion(p int32) int64 {
	switch to, deleted := s.deletions()[p]; {
	case !deleted:
		return s.logs[p].start
	case to == -1:
		return s.logs[p].end
	default:
		return to
	}
}

// settled looks whether leaders, in-sync replicas, ends and sizes are those of the story at every broker that is up. At the beginning
// of a stage it asks for preferred leaders and takes down the epochs that it finds; later epochs must stay.
func (c *contender) settled(s *story, isr []int32, begins bool) error {
	var epochs [storyPartitions]int32
	for id := int32(1); id <= 3; id++ {
		if !c.up[id] {
			continue
		}
		now, err := c.look(id)
		if err != nil {
			return err
		}
		for p, l := range now {
			if id == c.anyUp() {
				epochs[p] = l.epoch
			}
			if !slices.Equal(l.isr, isr) || epochs[p] != l.epoch {
				return fmt.Errorf("p%d at %d: in sync are %v, epoch %d here and %d elsewhere", p, id, l.isr, l.epoch, epochs[p])
			}
			if l.leader != s.leaders[p] {
				err := errDisturbed
				if begins {
					_, err = c.elect(0)
					err = cmp.Or(err, errors.New("asked for it"))
				}
				return fmt.Errorf("p%d at %d: %d leads, not %d; %w", p, id, l.leader, s.leaders[p], err)
			}
		}
	}
	for p, e := range epochs {
		if !begins || !s.moves[p] {
			if c.currentEpoch(int32(p)) != e {
				return fmt.Errorf("p%d: epoch %d, was %d: %w", p, e, c.currentEpoch(int32(p)), errDisturbed)
			}
		}
	}
	for p, e := range epochs {
		if begins {
			c.stages[p] = append(c.stages[p], e)
		}
	}
	if err := c.sameEnds(s); err != nil {
		if begins {
			for p := range c.stages {
				c.stages[p] = c.stages[p][:len(c.stages[p])-1]
			}
		}
		return err
	}
	return nil
}

// sameEnds looks whether each leader serves the end that the story knows, and every replica that is up has as many bytes.
func (c *contender) sameEnds(s *story) error {
	for p := range int32(storyPartitions) {
		req := kmsg.NewPtrListOffsetsRequest()
		req.SetVersion(4)
		req.ReplicaID = -1
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = c.topic
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = p, -1, c.currentEpoch(p)
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		raw, err := c.ask(s.leaders[p], req)
		if err != nil {
			return err
		}
		a := raw.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		if a.ErrorCode != 0 || a.Offset != s.logs[p].end {
			return fmt.Errorf("p%d ends at %d (%s), not at %d", p, a.Offset, codeName(a.ErrorCode), s.logs[p].end)
		}
	}
	var first [storyPartitions]int64
	for id := int32(1); id <= 3; id++ {
		if !c.up[id] {
			continue
		}
		if err := c.marksAt(s, id); err != nil {
			return err
		}
		sizes, err := c.sizes(id)
		if err != nil {
			return err
		}
		if id == c.anyUp() {
			first = sizes
		}
		if sizes != first {
			return fmt.Errorf("bytes at %d: %v, elsewhere %v", id, sizes, first)
		}
	}
	return nil
}

// marksAt looks whether a broker, if it lets consumers read where it follows (KIP-392), has heard of the high watermarks.
func (c *contender) marksAt(s *story, id int32) error {
	q := &prober{c: c, s: s}
	for p := range int32(storyPartitions) {
		resp := q.ask(id, q.fetchRequest(p, fetchCase{version: 12, replica: -1, offset: s.logs[p].end, current: epochRef{value: -1}, last: epochRef{value: -1}}))
		if q.err != nil {
			return q.err
		}
		a := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if a.ErrorCode == 0 && a.HighWatermark != s.logs[p].end || a.ErrorCode == kerr.OffsetOutOfRange.Code {
			return fmt.Errorf("p%d at %d: high watermark %d (%s), not %d", p, id, a.HighWatermark, codeName(a.ErrorCode), s.logs[p].end)
		}
	}
	return nil
}

// lay makes the batches of a stage and writes them into the chronicle.
func (s *story) lay(st stage) [storyPartitions][][]byte {
	var out [storyPartitions][][]byte
	for p := range out {
		l := &s.logs[p]
		if st.deletes {
			l.start = s.startAfterDeletion(int32(p))
		}
		if len(st.writes) > 0 {
			l.marks = append(l.marks, l.end)
		}
		for i, n := range st.writes {
			at := s.now + int64(len(l.times))*1000
			b := batch.NewBuilder(batch.BuilderOptions{LeaderEpoch: types.NoLeaderEpoch})
			for r := range n {
				b.Append(types.Millis(at), []byte("key"), fmt.Appendf(nil, "%s, batch %d, record %d of p%d", st.name, i, r, p))
			}
			raw, err := b.Build()
			if err != nil {
				s.t.Error(err)
			}
			out[p] = append(out[p], raw)
			l.times = append(l.times, at)
			l.end += int64(n)
		}
		if len(st.writes) > 0 {
			l.marks = append(l.marks, l.end)
		}
	}
	return out
}

// write sends each batch in a Produce of its own.
func (c *contender) write(s *story, batches [storyPartitions][][]byte, acks int16) ([]answer, error) {
	q := &prober{c: c, s: s}
	for p := range int32(storyPartitions) {
		for i, raw := range batches[p] {
			q.produce(p, s.leaders[p], int16(9+i%3), acks, raw, fmt.Sprintf("batch %d of p%d", i, p))
		}
		for id := int32(1); id <= 3 && len(batches[p]) > 0; id++ {
			if c.up[id] && id != s.leaders[p] {
				for version := int16(7); version <= 11; version++ {
					q.produce(p, id, version, acks, batches[p][0], fmt.Sprintf("a batch of p%d at a follower", p))
				}
			}
		}
	}
	return q.answers, q.err
}

func (q *prober) produce(p, id int32, version, acks int16, raw []byte, what string) {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(version)
	req.Acks, req.TimeoutMillis = acks, 20000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = q.c.topic, q.c.topicID
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = p, bytes.Clone(raw)
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp := q.ask(id, req)
	if q.err != nil {
		return
	}
	a := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	q.add(fmt.Sprintf("Produce v%d of %s", version, what), map[string]string{"error": codeName(a.ErrorCode), "base": fmt.Sprint(a.BaseOffset),
		"appended": fmt.Sprint(a.LogAppendTime), "logStart": fmt.Sprint(a.LogStartOffset), "wrong records": fmt.Sprint(len(a.ErrorRecords)),
		"leader": fmt.Sprintf("%d in %s", a.CurrentLeader.LeaderID, q.c.epochName(p, a.CurrentLeader.LeaderEpoch)), "nodes": fmt.Sprint(len(resp.(*kmsg.ProduceResponse).Brokers))})
}

// offsets are all that are worth fetching at.
func (s *story) offsets(p int32) []int64 {
	l := &s.logs[p]
	out := []int64{-1, 0, l.start - 1, l.start, l.start + 1, l.end - 1, l.end, l.end + 1, l.end + 100}
	for _, m := range l.marks {
		out = append(out, m-1, m)
	}
	out = slices.DeleteFunc(out, func(o int64) bool { return o < -1 })
	slices.Sort(out)
	return slices.Compact(out)
}

// follower is a replica of p that doesn't lead; it may be down.
func (s *story) follower(p int32) int32 {
	return storyReplicas[p][slices.IndexFunc(storyReplicas[p], func(id int32) bool { return id != s.leaders[p] })]
}

func (s *story) timeName(ts int64) string {
	if ts < s.now-1 {
		return fmt.Sprint(ts)
	}
	return fmt.Sprintf("%+d", ts-s.now)
}

// files compares what lies in the folders of all replicas of all contenders: batches from the log start on, and the epoch histories.
func (s *story) files() (map[string][]string, error) {
	out := map[string][]string{}
	for _, c := range s.both {
		for p := range int32(storyPartitions) {
			for id := range c.addr {
				folder := filepath.Join(c.folder(id), fmt.Sprintf("%s-%d", c.topic, p))
				told, err := c.folderTold(folder, p, s.logs[p].start)
				if err != nil {
					return nil, err
				}
				key := fmt.Sprintf("p%d: %s", p, told)
				out[key] = append(out[key], fmt.Sprintf("%s %d", c.name, id))
			}
		}
	}
	return out, nil
}

func (c *contender) folderTold(folder string, p int32, start int64) (string, error) {
	names, err := filepath.Glob(filepath.Join(folder, "*.log"))
	if err != nil {
		return "", err
	}
	q := &prober{c: c}
	var told []string
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		for it := batch.Iterate(raw); it.Next(); {
			if int64(it.Header.LastOffset()) >= start {
				told = append(told, q.records(p, it.Raw))
			}
		}
	}
	raw, err := os.ReadFile(filepath.Join(folder, "leader-epoch-checkpoint"))
	if err != nil {
		return "", err
	}
	for i, line := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
		var epoch, at int64
		if _, err := fmt.Sscan(line, &epoch, &at); err == nil && i >= 2 {
			told = append(told, fmt.Sprintf("%s at %d", c.epochName(p, int32(epoch)), at))
		}
	}
	return strings.Join(told, "; "), nil
}
