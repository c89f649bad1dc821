package mirror

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

func TestJournalKeepsWhatMatters(t *testing.T) {
	var text bytes.Buffer
	l := slog.New(slog.NewTextHandler(&text, nil)) // from INFO on
	j := newJournal(1, nil, nil, nil)
	j.add(l, Event{Kind: "CUT", Message: "cut"})
	for i := range 2 * journalMax {
		j.add(l, Event{Kind: "SOURCE_UNREACHABLE", Message: fmt.Sprint("gone ", i)})
	}
	got := j.list()
	if len(got) != journalMax || got[0].Kind != "CUT" || got[len(got)-1].Message != fmt.Sprint("gone ", 2*journalMax-1) {
		t.Errorf("%d events, the first %+v, the last %+v", len(got), got[0], got[len(got)-1])
	}
	if lines := strings.Count(text.String(), "\n"); lines != 1 || !strings.Contains(text.String(), "level=WARN msg=cut") {
		t.Errorf("logged:\n%s", text.String())
	}
	for i := range 2 * journalMax {
		j.add(l, Event{Kind: "FAILED", Message: fmt.Sprint(i)})
	}
	if got = j.list(); len(got) != journalMax || slices.ContainsFunc(got, func(e Event) bool { return e.Kind != "FAILED" }) {
		t.Errorf("%d events, not only failures", len(got))
	}
}
