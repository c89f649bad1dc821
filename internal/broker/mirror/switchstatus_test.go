package mirror

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// switchStatusOf is what `mirror status` tells of the switchover.
func (s *sides) switchStatusOf(t *testing.T) SwitchoverStatus {
	t.Helper()
	s.m.runs = map[string]*run{"m": s.r}
	st := s.m.switchStatus(s.m.o.Node.Image(), s.r.presentRecord())
	if st == nil {
		return SwitchoverStatus{}
	}
	return *st
}

// TestStatusShowsASwitchover: from its begin to the end of its way back, who works at it, since
// when, what is in the way, and what can be done.
func TestStatusShowsASwitchover(t *testing.T) {
	src, n, s := newAttempt(t, meta.LevelAttempts)
	says := func(st SwitchoverStatus, state, words string, atWork bool) {
		t.Helper()
		if st.Attempt != 1 || st.State != state || st.Broker != 1 || st.AtWork != atWork || st.Since != 1 || !strings.Contains(st.Message, words) {
			t.Errorf("it says %+v, not %q", st, words)
		}
	}
	says(s.switchStatusOf(t), meta.SwitchWorking, "broker 1 is at work at it; the source is closed to writes", true)

	// The source isn't there: it stays closed, and goes on by itself.
	s.end()
	src.answers[askTakeBack] = []any{errors.New("a:1: can't be reached"), []fenced{{TopicPartition: s.list[0].tp, Opened: true}}}
	s.r.settings.Store(&config.Mirror{})
	if given, err := s.m.giveUp(t.Context(), "m", meta.Attempt{}, registeredIn(n.Image())); err != nil {
		t.Fatal(err)
	} else if err = s.r.takeBack(t.Context(), given, 1); err == nil {
		t.Fatal("a source that is away was opened")
	} else {
		s.r.health.failed(syncSwitch, err)
	}
	if got := firstLines("a\nb\nc\nd\ne"); got != "a; b; c; and 2 more" || firstLines("a\nb") != "a; b" || firstLines("") != "" {
		t.Errorf("of many partitions: %q", got)
	}
	st := s.switchStatusOf(t)
	says(st, meta.SwitchReturning, "can't yet: a:1: can't be reached", true)
	if !strings.Contains(st.Message, "`tidemark mirror reopen` at the source") || st.Error == "" {
		t.Errorf("no way out in %+v", st)
	}
	if list := s.m.statusHere(part{Mirror: "m"}); len(list) == 0 || list[len(list)-1].Switchover == nil || list[len(list)-1].Switchover.Error == "" {
		t.Errorf("other nodes are told %+v", list)
	}
	s.r.finishReturn(t.Context())
	says(s.switchStatusOf(t), meta.SwitchOver, "was given up", true)
	if text, err := json.Marshal(Status{}); err != nil || strings.Contains(string(text), "switchover") {
		t.Errorf("a mirror without any: %s", text)
	}
}

// TestStatusOfASwitchoverThatNobodyTakesBack names the command at the source.
func TestStatusOfASwitchoverThatNobodyTakesBack(t *testing.T) {
	_, n, s := newAttempt(t, meta.LevelAttempts)
	rec := *s.r.presentRecord()
	lost := *rec.Switch
	lost.Broker, lost.BrokerEpoch = 9, 99
	rec.Switch = &lost
	put := func() SwitchoverStatus {
		t.Helper()
		if _, err := n.commit(meta.Plan{Why: "test", If: []meta.Compare{}, Then: []meta.Op{meta.Put(meta.KeysOf(paperCluster).Mirror("m"), rec.Encode())}}); err != nil {
			t.Fatal(err)
		}
		return s.switchStatusOf(t)
	}
	if st := put(); st.AtWork || !strings.Contains(st.Message, "broker 9 was at work at it and is lost; another one gives it up") {
		t.Errorf("of a lost broker: %+v", st)
	}
	rec.Want = meta.WantStopped
	if st := put(); !strings.Contains(st.Message, "failed over since") || !strings.Contains(st.Message, "`tidemark mirror reopen` opens it") {
		t.Errorf("of a mirror that was failed over: %+v", st)
	}
	rec.Want, lost.Attempt.Restore = meta.WantRunning, "another"
	if st := put(); !strings.Contains(st.Message, "came from a backup") {
		t.Errorf("of metadata from a backup: %+v", st)
	}
	rec.StartID = "later"
	if st := put(); st != (SwitchoverStatus{}) {
		t.Errorf("of an earlier start: %+v", st)
	}
}

// Partition: the node holds none.
func (timedScript) Partition(types.TopicID, int32) (Partition, bool) { return nil, false }
