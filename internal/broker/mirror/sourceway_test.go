package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/source"
)

var errGone = &source.Error{Kind: source.ErrUnreachable, Broker: "h:1", Op: "connect", Sentence: "can't be reached"}

// TestVerbsThatNeedTheSource say what is to be looked at when it is gone, and with which command.
func TestVerbsThatNeedTheSource(t *testing.T) {
	n := newPaperNode(t, 1)
	n.put(t, meta.KeysOf(paperCluster).Mirror("m"), meta.MirrorRecord{Name: "m", Want: meta.WantRunning, StartID: "s", Bootstrap: []string{"h:1", "h:2"}}.Encode())
	m := &Mirrors{o: Options{Node: n}}
	f := func(err error, words ...string) {
		t.Helper()
		got := m.needsSource("m", "a preview", fmt.Errorf("broker 1: %w", err))
		for _, w := range append(words, "mirror m: a preview needs the source", err.Error(), "Nothing was changed") {
			if !strings.Contains(got.Error(), w) || !errors.Is(got, err) {
				t.Errorf("%q lacks %q", got, w)
			}
		}
	}
	f(errGone, "are h:1,h:2 its addresses?", "`mirror alter m --source HOST:PORT`")
	f(&source.Error{Kind: source.ErrTimeout}, "`mirror alter m --source HOST:PORT`")
	f(&source.Error{Kind: source.ErrAuth}, "`mirror alter m --source-config FILE`")
	f(&source.Error{Kind: source.ErrTLS}, "`mirror alter m --source-config FILE`")
	f(&source.Error{Kind: source.ErrOtherCluster}, "`mirror alter m --source` points at the cluster that was copied")
	other := errors.New("broker 2 can't be asked")
	if got := m.needsSource("m", "a preview", other); got != other {
		t.Errorf("of another error it makes %q", got)
	}
}

// TestASourceThatStaysAway is told of at once, then ever more rarely, with how long it has been
// away; a status says that too, and a log that it is back.
func TestASourceThatStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := newPaperNode(t, 1)
		m := &Mirrors{o: Options{Node: n}, log: slog.New(slog.NewTextHandler(&text, nil)), ctx: ctx}
		r := &run{m: m, name: "m", ctx: ctx, health: newHealthBook(ctx)}
		rec := &meta.MirrorRecord{Name: "m", Want: meta.WantRunning, Bootstrap: []string{"h:1"}}
		r.record.Store(rec)
		m.runs = map[string]*run{"m": r}
		for i := range 24 * 60 * 6 { // a day, every ten seconds
			// Brokers are asked in turns: the texts differ.
			r.sourceFailed(&source.Error{Kind: source.ErrUnreachable, Broker: fmt.Sprint("h:", i%3), Sentence: "can't be reached"})
			time.Sleep(10 * time.Second) // the bubble's clock
		}
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		if len(lines) < 27 || len(lines) > 35 { // three texts, 1+2+4+…+32 minutes, and then hours
			t.Errorf("a day is told in %d lines:\n%s", len(lines), text.String())
		}
		if last := lines[len(lines)-1]; !strings.Contains(last, "for=23h") || !strings.Contains(last, "mirror alter m --source") || !strings.Contains(last, "level=WARN") {
			t.Errorf("the last line: %s", last)
		}
		var st Status
		m.summarize(&st, rec)
		if st.FailingMs != 24*60*60*1000 || !strings.Contains(st.WayOut, "mirror alter m --source") {
			t.Errorf("its status: %+v", st)
		}
		text.Reset()
		r.refreshed(&source.Metadata{})
		if !strings.Contains(text.String(), "can be looked at again") || !strings.Contains(text.String(), "after=24h0m0s") {
			t.Errorf("it comes back: %s", text.String())
		}
		r.topicFaults.Store(&[]topicFault{})
		st = Status{}
		if m.summarize(&st, rec); st.FailingMs != 0 || st.WayOut != "" {
			t.Errorf("its status then: %+v", st)
		}
		text.Reset()
		r.sourceFailed(errGone)
		if !strings.Contains(text.String(), "the source can't be looked at") || strings.Contains(text.String(), "for=") {
			t.Errorf("the next trouble: %s", text.String())
		}
	})
}
