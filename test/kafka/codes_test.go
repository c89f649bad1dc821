//go:build kafka

package kafka_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// meantDifference is a pattern of questions that we mean to answer otherwise than Kafka, and why.
type meantDifference struct{ question, reason string }

// compareCodes compares what two have answered to the same questions. Each difference that is
// meant must show, so that the list says what there is.
func compareCodes(t *testing.T, was, is *asker, meant []meantDifference) {
	t.Helper()
	if !slices.Equal(was.questions, is.questions) {
		t.Fatalf("they were asked %d and %d questions, which differ", len(was.questions), len(is.questions))
	}
	used := make([]int, len(meant))
	for i, question := range was.questions {
		k, m := was.answers[i], is.answers[i]
		which := slices.IndexFunc(meant, func(d meantDifference) bool { return matches(d.question, question) })
		switch {
		case k == m:
		case which >= 0:
			used[which]++
		default:
			t.Errorf("%s:\n  Kafka    %s\n  Tidemark %s", question, k, m)
		}
	}
	t.Logf("%d answers; differences that are meant: %v", len(was.questions), used)
	for i, d := range meant {
		if used[i] == 0 {
			t.Errorf("no answer shows this difference any more: %+v", d)
		}
	}
}

// asker asks one contender and keeps what it says.
type asker struct {
	t                  *testing.T
	c                  *contender
	questions, answers []string
}

func newAsker(t *testing.T, name, addr string) *asker {
	t.Helper()
	ctx := testContext(t, 2*time.Minute)
	cl := client(t, addr)
	createTopic(ctx, t, cl, "codes", 2, 1)
	topics, err := kadm.NewClient(cl).ListTopics(ctx, "codes")
	if err != nil {
		t.Fatal(err)
	}
	a := &asker{t: t, c: &contender{name: name, addr: map[int32]string{1: addr}, conns: map[int32]net.Conn{}, topic: "codes", topicID: topics["codes"].ID}}
	t.Cleanup(func() {
		for _, conn := range a.c.conns {
			_ = conn.Close()
		}
	})
	find := kmsg.NewPtrFindCoordinatorRequest()
	for _, kind := range []int8{0, 1} {
		find.CoordinatorType, find.CoordinatorKeys = kind, []string{"first"}
		a.settled(find, 4)
	}
	return a
}

// passing are codes of a moment: coordinators that load, markers on their way.
var passing = []int16{kerr.CoordinatorLoadInProgress.Code, kerr.CoordinatorNotAvailable.Code, kerr.NotCoordinator.Code, kerr.ConcurrentTransactions.Code,
	kerr.NotEnoughReplicas.Code}

// settled asks until the answer isn't one of a moment.
func (a *asker) settled(req kmsg.Request, version int16) kmsg.Response {
	a.t.Helper()
	req.SetVersion(version)
	var resp kmsg.Response
	eventually(a.t, time.Minute, a.c.name+" answers "+kmsg.NameForKey(req.Key()), func() error {
		var err error
		if resp, err = a.c.ask(1, req); err != nil {
			return err
		}
		if codes := codesIn(resp); slices.ContainsFunc(codes, func(c int16) bool { return slices.Contains(passing, c) }) {
			return fmt.Errorf("%v", codes)
		}
		return nil
	})
	return resp
}

// ask asks and keeps the codes of the answer.
func (a *asker) ask(question string, req kmsg.Request, version int16) kmsg.Response {
	a.t.Helper()
	resp := a.settled(req, version)
	var names []string
	for _, c := range codesIn(resp) {
		names = append(names, codeName(c))
	}
	a.keep(fmt.Sprintf("%s v%d: %s", kmsg.NameForKey(req.Key()), version, question), strings.Join(names, ","))
	return resp
}

func (a *asker) keep(question, answer string) {
	if slices.Contains(a.questions, question) {
		a.t.Fatalf("%q is asked twice", question)
	}
	a.questions, a.answers = append(a.questions, question), append(a.answers, answer)
}

// producer gives a transactional id a producer.
func (a *asker) producer(id string) txnProducer {
	a.t.Helper()
	resp := a.settled(initRequest(id, 60000, -1, -1), 5).(*kmsg.InitProducerIDResponse)
	if resp.ErrorCode != 0 {
		a.t.Fatalf("%s: a producer for %q: %s", a.c.name, id, codeName(resp.ErrorCode))
	}
	return txnProducer{id, resp.ProducerID, resp.ProducerEpoch}
}
