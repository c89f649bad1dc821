package cli

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
)

// TestStatusNamesTheWayOut: each reason that needs somebody is explained once, with the names to type.
func TestStatusNamesTheWayOut(t *testing.T) {
	st := mirror.Status{Mirror: "dr", Partitions: []mirror.PartitionStatus{
		{Topic: "a", Reason: ""}, {Topic: "b", Reason: "SOURCE_GAP: 3-5"}, {Topic: "c", Reason: "SOURCE_GAP: 0-9"}, {Topic: "d", Reason: "SOURCE_LEADER_MOVED"},
		{Topic: "e", Reason: "TOPIC_ID_MISMATCH: made again"},
	}}
	want := []string{
		"SOURCE_GAP: the source has dropped records that are missing here: `mirror accept-gap dr --topic=b` goes on behind them",
		"TOPIC_ID_MISMATCH: `mirror failover dr --topic=e` keeps this copy, writable; `topic delete e` then makes room, and the source's new topic is mirrored",
	}
	if got := waysOut(st); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	dead := mirror.Status{Mirror: "dr", State: "RUNNING", Reason: "a:9092: connect: can't be reached: connection refused", FailingMs: 190_400, WayOut: "is it running?"}
	if got := waysOut(dead); len(got) != 1 || !strings.HasSuffix(got[0], "tried again and again: is it running?") {
		t.Errorf("of a source that can't be reached: %q", got)
	}
	if got := headline(dead); got != "mirror dr of cluster -: RUNNING: a:9092: connect: can't be reached: connection refused (for 3m10s)" {
		t.Errorf("headline: %q", got)
	}
}

// TestVerifyOfNothing is no proof that both sides are equal.
func TestVerifyOfNothing(t *testing.T) {
	c := mirrorVerifyCmd{named: named{Name: "dr"}}
	c.Output = "json"
	f := func(v mirror.Verify, ok bool) {
		t.Helper()
		if err := c.show(Streams{Out: io.Discard, Err: io.Discard}, v, nil); errors.Is(err, errUnmet) == ok {
			t.Errorf("%+v: %v", v, err)
		}
	}
	f(mirror.Verify{Done: true, Equal: true, Partitions: []mirror.VerifyPartition{{Topic: "a"}}}, true)
	f(mirror.Verify{Done: true, Equal: true}, false)
	f(mirror.Verify{Done: true, Equal: true, NotHere: 3}, false)
}

// TestWaitSeesTopicsThatAreRefused: a topic that can't be mirrored has no partition,
// and a mirror without it is not caught up.
func TestWaitSeesTopicsThatAreRefused(t *testing.T) {
	c := mirrorWaitCmd{For: "caught-up"}
	st := mirror.Status{Mirror: "dr", State: "RUNNING", Partitions: []mirror.PartitionStatus{{Topic: "a", State: meta.MirrorMirroring}}}
	if got := c.missing(st); got != "" {
		t.Errorf("it waits for %q", got)
	}
	st.Reason = "b: a topic of this name exists here"
	if c.missing(st) == "" {
		t.Error("a mirror that leaves a topic out is caught up")
	}
	if c.For = "stopped"; c.missing(st) == st.Reason {
		t.Error("a failover waits for a topic that isn't mirrored")
	}
}

// TestStatusPrintsItsSwitchover: what an operator may have to do about it comes below the table.
func TestStatusPrintsItsSwitchover(t *testing.T) {
	var out, errs strings.Builder
	st := mirror.Status{Mirror: "dr", State: "RUNNING", Partitions: []mirror.PartitionStatus{{Topic: "a"}}}
	target := Target{Output: "table"}
	show := func() string {
		t.Helper()
		out.Reset()
		errs.Reset()
		if err := target.printStatus(Streams{Out: &out, Err: &errs}, st); err != nil {
			t.Fatal(err)
		}
		return errs.String()
	}
	if got := show(); got != "" {
		t.Errorf("without any it prints %q", got)
	}
	st.Switchover = &mirror.SwitchoverStatus{Attempt: 3, State: "working", Message: "switchover 3: it is under way"}
	if got := show(); got != "switchover 3: it is under way\n" {
		t.Errorf("it prints %q", got)
	}
	target.Output = "json"
	if got := show(); got != "" || !strings.Contains(out.String(), `"attempt": 3`) {
		t.Errorf("as JSON it prints %q and %s", got, out.String())
	}
}
