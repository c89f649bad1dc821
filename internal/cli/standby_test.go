package cli

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"tidemark/internal/broker/mirror"
)

func copying(lag, bytes int64) mirror.Status {
	return mirror.Status{Mirror: "standby", State: "RUNNING", Partitions: []mirror.PartitionStatus{
		{Topic: "t", State: "MIRRORING", Bytes: bytes, LagRecords: lag, LagBytes: lag * 100, Loss: &mirror.Loss{Known: true}},
		{Topic: "t", Partition: 1, State: "MIRRORING", Bytes: 10, Loss: &mirror.Loss{Known: true}},
	}}
}

func TestCopyStateText(t *testing.T) {
	r := &rate{}
	begin := time.Unix(0, 0)
	r.seen(begin, 0)
	for i := range 60 {
		r.seen(begin.Add(time.Duration(i+1)*time.Second), int64(i+1)*1000)
	}
	got := copyStateOf(copying(50, 60_000)).text(r)
	for _, want := range []string{"58.6 KiB here", "1 of 2 partitions complete", "999 B/s", "4.9 KiB (50 records) left", "5s to go"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if got := copyStateOf(mirror.Status{State: "CONNECTING", Reason: "refused"}).text(r); got != "first copy: CONNECTING: refused" {
		t.Error(got)
	}
}

// What is logged meanwhile goes above the line, which is gone at the end.
func TestCopyWatchDrawsOneLine(t *testing.T) {
	var out bytes.Buffer
	live := &liveLine{w: &out}
	looks := 0
	w := &copyWatch{log: slog.New(slog.NewTextHandler(live, nil)), line: live, status: func(context.Context) (mirror.Status, error) {
		if looks++; looks < 2 {
			return copying(5, 100), nil
		}
		return copying(0, 600), nil
	}}
	w.run(t.Context())
	s := out.String()
	if !strings.Contains(s, "500 B (5 records) left") || !strings.Contains(s, "first copy is complete") || !strings.HasSuffix(s, "\r\x1b[K") {
		t.Errorf("%q", s)
	}
	fmt.Fprint(live, "after")
	if !strings.HasSuffix(out.String(), "after") {
		t.Errorf("a line was drawn after the end: %q", out.String())
	}
}

// What mirror wait says of a partition that isn't complete; an unknown number is no number.
func TestWhatAMirrorWaitsFor(t *testing.T) {
	c := &mirrorWaitCmd{For: "caught-up", MaxLag: 5}
	f := func(lag int64, want string) {
		t.Helper()
		if got := c.missing(copying(lag, 0)); got != want {
			t.Errorf("%d: %q, want %q", lag, got, want)
		}
	}
	f(5, "")
	f(6, "t-0 lacks 6 records")
	f(-1, "t-0: what it lacks is unknown: its source's end wasn't seen yet")
}
