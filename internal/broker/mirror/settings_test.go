package mirror

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/source"
)

func TestSettingsOf(t *testing.T) {
	node := config.Default().Mirror
	s, err := settingsOf(node, map[string]string{"gap.policy": "continue", "mirror.epoch.headroom": "3"})
	if err != nil || s.GapPolicy != "continue" || s.EpochHeadroom != 3 || s.PromotionStep != node.PromotionStep {
		t.Errorf("got %+v, %v", s, err)
	}
	for name, own := range map[string]map[string]string{
		"unknown":     {"mirror.gap": "x"},
		"the node's":  {"num.partitions": "3"},
		"wrong value": {"mirror.promotion.step": "0"},
	} {
		if s, err := settingsOf(node, own); !errors.Is(err, ErrSpec) || s.GapPolicy != node.GapPolicy {
			t.Errorf("%s: got %+v, %v", name, s, err)
		}
	}
	for key := range settingFields {
		if _, err := settingsOf(node, map[string]string{key: "\x00"}); err == nil && key != "mirror.config.exclude" {
			t.Errorf("%s takes any value: is it a key at all?", key)
		}
	}
}

func TestFilter(t *testing.T) {
	f := func(rec meta.MirrorRecord, topic string, want bool) {
		t.Helper()
		filter, err := newFilter(&rec)
		if err != nil {
			t.Fatal(err)
		}
		if got := filter.topic(topic); got != want {
			t.Errorf("%+v: topic %q: got %v, want %v", rec, topic, got, want)
		}
	}
	f(meta.MirrorRecord{}, "any", true)
	f(meta.MirrorRecord{}, "__consumer_offsets", false)
	f(meta.MirrorRecord{Topics: "__.*"}, "__consumer_offsets", false)
	f(meta.MirrorRecord{Topics: "a|b"}, "a", true)
	f(meta.MirrorRecord{Topics: "a|b"}, "ab", false)
	f(meta.MirrorRecord{Topics: "a.*", Exclude: "ab"}, "ab", false)
	f(meta.MirrorRecord{Topics: "a.*", Exclude: "ab"}, "abc", true)
	for _, rec := range []meta.MirrorRecord{{Topics: "("}, {Exclude: "["}, {Groups: "(?=x)"}} {
		if _, err := newFilter(&rec); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), "RE2") {
			t.Errorf("%+v: got %v", rec, err)
		}
	}
	forks := func(topics, name string, tidemark, want bool) {
		t.Helper()
		filter, err := newFilter(&meta.MirrorRecord{Topics: topics})
		if err != nil {
			t.Fatal(err)
		}
		if got := filter.leavesOut(&source.Metadata{Tidemark: tidemark}, name); got != want {
			t.Errorf("topics %q leave %q out: got %v, want %v", topics, name, got, want)
		}
	}
	forks("", "drill.friday.orders", true, true)
	forks(".*", "drill.friday.orders.eu", true, true)
	forks("", "drill.friday.orders", false, false)
	forks("", "drill.orders", true, false)
	forks("", "drill.a_b.orders", true, false)
	forks("", "drills.friday.orders", true, false)
	forks(`orders|drill\.friday\..*`, "drill.friday.orders", true, false)
	forks("drill.friday.orders", "drill.friday.orders", true, false)
	all, _ := newFilter(&meta.MirrorRecord{Groups: "g.*"})
	if !all.group("g1") || all.group("h") {
		t.Errorf("group filter")
	}
}

func TestThrottle(t *testing.T) {
	th := newThrottle(t.Context(), 1000)
	now := th.filledAt
	if d := th.due(now); d != 0 {
		t.Errorf("a full bucket waits %v", d)
	}
	th.take(3000) // one second's worth is there, two are owed
	if d := th.due(now); d < 1900*time.Millisecond || d > 2100*time.Millisecond {
		t.Errorf("two seconds' worth are owed, waits %v", d)
	}
	if d := th.due(now.Add(time.Second)); d < 900*time.Millisecond || d > 1100*time.Millisecond {
		t.Errorf("one second later it waits %v", d)
	}
	if d := th.due(now.Add(time.Hour)); d != 0 {
		t.Errorf("an hour later it waits %v", d)
	}
	th.take(1500) // no more than one second's worth was saved up
	if d := th.due(now.Add(time.Hour)); d < 400*time.Millisecond {
		t.Errorf("the bucket held more than a second's worth: waits %v", d)
	}
	th.set(-1)
	th.take(1 << 40)
	if d := th.due(now.Add(time.Hour)); d != 0 {
		t.Errorf("without a bound it waits %v", d)
	}
}
