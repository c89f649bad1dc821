package sim

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tidemark/internal/broker/api"
	"tidemark/internal/core/group"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// A run of the cluster is a function of its seed too (I-161).
func TestClusterSameSeedSameRun(t *testing.T) {
	for seed := range uint64(6) {
		a := run(t, Run{Seed: seed, Profile: "cluster"})
		b := run(t, Run{Seed: seed, Profile: "cluster", Story: true})
		if a.Trace != b.Trace || a.Steps != b.Steps {
			t.Fatalf("seed %d: trace %x after %d steps, then %x after %d", seed, a.Trace, a.Steps, b.Trace, b.Steps)
		}
	}
}

// The stories of the source documents: with the rule that they are about, no
// record is lost; without it, the harm that they tell of is done.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/stories/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := ParseStory(filepath.Base(file), string(text))
			if err != nil {
				t.Fatal(err)
			}
			var told bytes.Buffer
			if f, err := s.Play(false, &told); f != nil || err != nil {
				t.Fatalf("with its rules: %v, %v\n%s", f, err, &told)
			}
			told.Reset()
			f, err := s.Play(true, &told)
			if err != nil || f == nil || f.Invariant != s.Breaks {
				t.Fatalf("with %s switched off: %v, %v; want %s to break\n%s", s.Mutation, f, err, s.Breaks, &told)
			}
			t.Log(f)
		})
	}
}

func TestAStoryMustGoAsItIsTold(t *testing.T) {
	for _, text := range []string{"dance 1", "topic replicas=1,2,3\nexpect end 1 = 7", "topic replicas=1,2,3\nexpect mood 1 = 7", "crash 9"} {
		s, err := ParseStory("test", text)
		if err != nil {
			continue
		}
		if f, err := s.Play(false, &bytes.Buffer{}); err == nil && f == nil {
			t.Errorf("%q went well", text)
		}
	}
}

// consumerThatRead gives a consumer that is at offset 3, with an attempt under way.
func consumerThatRead(t *testing.T) *reader {
	t.Helper()
	o, err := SwarmCluster(1, "cluster-calm")
	if err != nil {
		t.Fatal(err)
	}
	o.Compacted = false
	r := newReader(newCluster(1, &o, &Mutation{}, nil), 0, 0)
	r.topic, r.at = r.c.wantTopic, 3
	r.busy, r.sent = true, 7
	return r
}

// An attempt has one answer: the same frame a second time would be judged at the
// position that the first one led to.
func TestAConsumersAttemptEndsOnce(t *testing.T) {
	r := consumerThatRead(t)
	if r.closes(6) {
		t.Error("the answer to an earlier attempt was taken")
	}
	if !r.closes(7) {
		t.Fatal("the answer to the attempt under way was not taken")
	}
	if r.closes(7) {
		t.Error("an answer was taken twice")
	}
}

// ConsumerSeesStable can fail: a consumer is told of a divergence, or that what it
// has read is out of range, without a deletion up to there or an unclean election.
func TestAConsumerThatIsToldOfATruncation(t *testing.T) {
	f := func(out api.ReadResult, told error, deleted types.Offset, unclean time.Duration, breaks bool) {
		t.Helper()
		r := consumerThatRead(t)
		l := r.c.check.ledger(meta.PartitionID{Topic: r.topic, Number: 0})
		l.starts.legal, l.unclean = deleted, unclean
		r.answered(r.c.machine(1), out, nil, told)
		if found := r.k.failure; (found != nil) != breaks || breaks && found.Invariant != "ConsumerSeesStable" {
			t.Errorf("found %v", found)
		}
	}
	diverging := api.ReadResult{HasDiverging: true}
	f(diverging, nil, 0, -1, true)
	f(api.ReadResult{}, wire.ErrOffsetOutOfRange, 0, -1, true)
	f(api.ReadResult{}, wire.ErrOffsetOutOfRange, 3, -1, true)
	f(api.ReadResult{}, wire.ErrOffsetOutOfRange, 4, -1, false)
	f(diverging, nil, 0, time.Second, false)
	f(api.ReadResult{}, nil, 0, -1, false)
}

// A log whose start has risen to its end holds nothing that LogMatching could compare:
// the records that were there may have been others. Behind records that are left, or
// where the partition begins, a batch must lie as it was written.
func TestAPathBeginsAtTheLogStart(t *testing.T) {
	const sum, tail, wrote = 11, 7, 9
	w := &writtenBatch{path: wrote}
	f := func(s *shadowLog, base types.Offset, w *writtenBatch, want uint64) {
		t.Helper()
		if got := s.pathOf(&shadowBatch{base: base}, sum, w); got != want {
			t.Errorf("path %d, want %d", got, want)
		}
	}
	risen := &shadowLog{tail: 5, tailPath: tail}
	f(risen, 5, w, wrote)
	f(risen, 5, nil, mixed(tail, sum)) // who leads goes on behind what it had
	f(&shadowLog{paths: []uint64{3}, tail: 5, tailPath: tail}, 5, w, mixed(3, sum))
	f(&shadowLog{}, 0, w, mixed(1, sum))
	f(&shadowLog{}, 8, nil, 0)
}

// Two logs are compared by what lies below, and where one began anew above what it
// had, by their batches.
func TestLogsAreComparedWithoutAPath(t *testing.T) {
	f := func(x, y *shadowLog, want bool) {
		t.Helper()
		if got := sameUpTo(x, y, len(x.batches)-1, len(y.batches)-1); got != want {
			t.Errorf("the same: %v, want %v", got, want)
		}
	}
	s := func(path uint64, raws ...string) *shadowLog {
		l := &shadowLog{}
		for i, raw := range raws {
			l.batches = append(l.batches, shadowBatch{base: types.Offset(i), next: types.Offset(i + 1), epoch: 4, raw: []byte(raw)})
			l.paths = append(l.paths, path)
		}
		return l
	}
	f(s(7, "a", "b"), s(7, "a", "b"), true)
	f(s(7, "a", "b"), s(8, "a", "b"), false) // other records below the start
	f(s(0, "a", "b"), s(8, "a", "b"), true)
	f(s(8, "a", "b"), s(0, "c", "b"), false)
	f(s(0, "a", "b"), s(8, "a"), false)
}

// GroupNotAhead can fail, and lets a member begin a topic that was made again where a
// coordinator had kept the earlier one's offset: that is ahead by right, until a
// record of the new topic is read.
func TestAnOffsetOfAnEarlierTopic(t *testing.T) {
	f := func(earlier, breaks bool) {
		t.Helper()
		c := consumerThatRead(t).c
		c.topic, c.wantTopic = types.TopicID{1}, types.TopicID{1}
		old := c.check.commits("g", 0, 93, c.topic, c.topic)
		c.topic, c.wantTopic = types.TopicID{2}, types.TopicID{2}
		of := c.wantTopic
		if earlier {
			told := group.OffsetEntry{Committed: group.Committed{Offset: 93, Metadata: old.text}}
			of = c.check.foundIn("g", told, c.wantTopic)
		}
		c.check.notAhead(c.machine(1), "g", c.check.commits("g", 0, 93, c.topic, of))
		if found := c.k.failure; (found != nil) != breaks || breaks && found.Invariant != "GroupNotAhead" {
			t.Errorf("found %v", found)
		}
	}
	f(true, false)
	f(false, true)
}

// CommitKept can fail, and a copy of an older commit that the coordinator carries out
// after a newer one is no reason.
func TestACommitThatIsOverlooked(t *testing.T) {
	f := func(read *groupCommit, overlooks bool) {
		t.Helper()
		newer := &groupCommit{began: 20, ended: 30}
		if a := overlooked([]*groupCommit{newer}, read, 0, 100); (a == newer) != overlooks {
			t.Errorf("overlooked: %v", a)
		}
	}
	f(nil, true)
	f(&groupCommit{ended: 10, last: 10}, true)
	f(&groupCommit{ended: 10, last: 40}, false)
	f(&groupCommit{ended: 10, last: 10, running: 1}, false)
	f(&groupCommit{ended: -1}, false)
}

// AckedIsKept can fail: two batches at one offset, both promised. A leader that an unclean
// election has followed, and that hasn't heard of it, promises nothing any more.
func TestAPromiseAfterAnUncleanElection(t *testing.T) {
	f := func(in, unclean types.LeaderEpoch, breaks bool) {
		t.Helper()
		j := consumerThatRead(t).c.check
		l := j.ledger(meta.PartitionID{Topic: j.c.wantTopic})
		l.uncleanIn = unclean
		batch := func(e types.LeaderEpoch) *writtenBatch {
			return &writtenBatch{shadowBatch: shadowBatch{base: 0, next: 1, epoch: e}}
		}
		j.promise(l, batch(0), "readable", in)
		j.promise(l, batch(3), "readable", 3)
		if found := j.c.k.failure; (found != nil) != breaks || breaks && found.Invariant != "AckedIsKept" {
			t.Errorf("found %v", found)
		}
	}
	f(2, 3, false)
	f(-1, 3, false) // it leads no more when it answers
	f(3, 3, true)   // who was elected uncleanly has heard of it
	f(2, 2, true)
	f(2, -1, true)
}
