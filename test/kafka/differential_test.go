//go:build kafka

package kafka_test

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// difference is an answer that we mean to give otherwise than Kafka does.
type difference struct {
	question string // a regular expression
	field    string // regular expressions of the field's name
	kafka    string // and of the two values
	tidemark string
	reason   string
}

// differences are all that we mean. One that no answer shows any more fails the test as well.
var differences = slices.Concat(
	alike("Fetch .* last=cur\\+\\d+ .*", "an asker whose last epoch is above all of ours gets a divergence, with which it can go on; "+
		"out of range sends it round in circles (R5, KAFKA-15608)", "error", "OFFSET_OUT_OF_RANGE", "NONE"),
	alike("Fetch .* last=cur\\+\\d+ .*", "as above", "diverging", "-1 ends at -1", "E\\d+ ends at \\d+"),
	alike("Fetch .* last=cur\\+\\d+ .*", "as above", "highWatermark|lastStable|logStart", "-1", "\\d+"),
	alike("ListOffsets .* time=-3 .*", "the record of the largest time was deleted: it is no answer",
		"offset|time|epoch", "\\+?\\d+|E\\d+", "-1"),
	alike("(ListOffsets|OffsetForLeaderEpoch) .* follower .*", "who doesn't lead says so first, whatever epoch the asker believes in: clients do the same on either",
		"error", "FENCED_LEADER_EPOCH|UNKNOWN_LEADER_EPOCH", "NOT_LEADER_FOR_PARTITION"),
	alike("Fetch v\\d+ replica=\\d+ .*, leader of p0", "who answers that it doesn't lead never names itself: the asker would come back for ever",
		"leader", "\\d in E\\d+", "-1 in -1"),
)

// alike is a difference in a question that may be asked after any stage.
func alike(question, reason, field, kafka, tidemark string) []difference {
	return []difference{{"after stage .*: " + question, field, kafka, tidemark, reason}}
}

// numbers are left out when differences are put together by kind.
var numbers = regexp.MustCompile(`-?\b[0-9]+\b|\bE[0-9]+\+?`)

// TestDifferential tells one story of elections, cuts and restarts to three brokers of each kind, and asks both the same with frames
// made by hand after every stage. The answers must be the same, field by field, but for the differences that we mean.
func TestDifferential(t *testing.T) {
	both := make([]*contender, 2)
	both[0] = newKafkaContender(t)
	both[1] = newTidemarkContender(t)
	var s *story
	for attempt := 1; ; attempt++ {
		s = &story{t: t, both: both, now: time.Now().Add(-time.Hour).UnixMilli()}
		err := s.tell(fmt.Sprint("story-", attempt))
		if err == nil {
			break
		}
		// Only what happened to the machine may be tried again.
		if !errors.Is(err, errDisturbed) || attempt == 3 || t.Failed() {
			t.Fatal(err)
		}
		t.Logf("told again: %v", err)
	}
	compareAnswers(t, s.answers[0], s.answers[1])
	err := within(settleLimit, "all folders hold the same", func() error {
		told, err := s.files()
		if err == nil && len(told) != storyPartitions {
			for _, what := range slices.Sorted(maps.Keys(told)) {
				err = errors.Join(err, fmt.Errorf("%v: %s", told[what], what))
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// compareAnswers goes through both lists field by field.
func compareAnswers(t *testing.T, kafka, tidemark []answer) {
	t.Helper()
	if len(kafka) != len(tidemark) {
		t.Fatalf("%d answers of Kafka, %d of Tidemark", len(kafka), len(tidemark))
	}
	used := make([]int, len(differences))
	fields := 0
	kinds := map[string][]string{}
	for i, k := range kafka {
		if k.question != tidemark[i].question {
			t.Fatalf("question %d was %q to Kafka and %q to Tidemark", i, k.question, tidemark[i].question)
		}
		names := maps.Clone(k.fields)
		maps.Copy(names, tidemark[i].fields)
		for name := range names {
			fields++
			was, is := k.fields[name], tidemark[i].fields[name]
			if was == is {
				continue
			}
			if d := meant(k.question, name, was, is); d >= 0 {
				used[d]++
				continue
			}
			api, _, _ := strings.Cut(k.question[strings.Index(k.question, ": ")+2:], " ")
			kind := numbers.ReplaceAllString(fmt.Sprintf("%s %s: Kafka %s, Tidemark %s", api, name, was, is), "n")
			kinds[kind] = append(kinds[kind], fmt.Sprintf("%s\n    %s of Kafka: %s; of Tidemark: %s", k.question, name, was, is))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		all := kinds[kind]
		t.Errorf("%d times %s\n  first: %s\n  last: %s", len(all), kind, all[0], all[len(all)-1])
	}
	for i, d := range differences {
		if used[i] == 0 {
			t.Errorf("no answer shows this difference any more: %+v", d)
		}
	}
	t.Logf("%d answers, %d fields; differences that are meant: %v", len(kafka), fields, used)
}

// meant gives the index of the difference that covers this one, -1 if none does.
func meant(question, field, kafka, tidemark string) int {
	return slices.IndexFunc(differences, func(d difference) bool {
		return matches(d.field, field) && matches(d.question, question) && matches(d.kafka, kafka) && matches(d.tidemark, tidemark)
	})
}

func matches(pattern, text string) bool {
	return regexp.MustCompile("^(?:" + pattern + ")$").MatchString(text)
}
