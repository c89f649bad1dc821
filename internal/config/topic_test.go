package config

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestTopicLayersConfigsOverTheBroker(t *testing.T) {
	b, _, err := Resolve([]Setting{Flag("--set", "log.segment.bytes", "1000"), Flag("--set", "log.cleanup.policy", "compact")})
	if err != nil {
		t.Fatal(err)
	}
	base := b.Topic(nil)
	if base.SegmentBytes != 1000 || !base.Compact || base.Delete {
		t.Errorf("the broker's defaults: %+v", base)
	}
	own := b.Topic(map[string]string{"segment.bytes": "2000", "cleanup.policy": "delete,compact", "message.timestamp.type": "LogAppendTime", "retention.ms": "nonsense"})
	if own.SegmentBytes != 2000 || !own.Compact || !own.Delete || !own.LogAppendTime || own.RetentionMs != base.RetentionMs {
		t.Errorf("the topic's own: %+v", own)
	}
}

func TestValidateTopic(t *testing.T) {
	f := func(configs map[string]string, want string) {
		t.Helper()
		err := ValidateTopic(configs)
		switch {
		case want == "" && err != nil:
			t.Errorf("%v: %v", configs, err)
		case want != "" && (!errors.Is(err, ErrTopicConfig) || !strings.Contains(err.Error(), want)):
			t.Errorf("%v: %v, want %q", configs, err, want)
		}
	}
	f(nil, "")
	f(map[string]string{"retention.ms": "-1", "cleanup.policy": "compact", "compression.type": "zstd", "leader.replication.throttled.replicas": "*"}, "")
	f(map[string]string{"follower.replication.throttled.replicas": "0:1, 12:3"}, "")
	f(map[string]string{"follower.replication.throttled.replicas": "0-1"}, "partition:broker")
	f(map[string]string{"retentoin.ms": "1"}, "did you mean retention.ms?")
	f(map[string]string{"retention.ms": "-2"}, "at least -1")
	f(map[string]string{"cleanup.policy": "shred"}, "cleanup.policy")
	f(map[string]string{"remote.storage.enable": "true"}, "tiered")
	f(map[string]string{"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, "at most max.compaction.lag.ms")
	f(map[string]string{"segment.bytes": "1", "preallocate": "maybe"}, "preallocate")
}

func TestDescribeTopicSourcesAndSynonyms(t *testing.T) {
	b, _, err := Resolve([]Setting{Flag("--set", "log.retention.hours", "2")})
	if err != nil {
		t.Fatal(err)
	}
	entry := func(configs map[string]string, name string) Entry {
		t.Helper()
		list := b.DescribeTopic(configs)
		if !slices.IsSortedFunc(list, byName) {
			t.Error("entries aren't sorted")
		}
		i := slices.IndexFunc(list, func(e Entry) bool { return e.Name == name })
		if i < 0 {
			t.Fatalf("no entry %s", name)
		}
		return list[i]
	}
	if e := entry(nil, "segment.bytes"); e.Source != EntryDefault || e.Value != "1073741824" || len(e.Synonyms) != 1 || e.Synonyms[0].Name != "log.segment.bytes" {
		t.Errorf("segment.bytes: %+v", e)
	}
	if e := entry(nil, "retention.ms"); e.Source != EntryStaticBroker || e.Value != "7200000" || e.Synonyms[0].Name != "log.retention.hours" || len(e.Synonyms) != 2 {
		t.Errorf("retention.ms: %+v", e)
	}
	if e := entry(map[string]string{"retention.ms": "9"}, "retention.ms"); e.Source != EntryTopic || e.Value != "9" || len(e.Synonyms) != 3 || e.Kind != KindLong {
		t.Errorf("retention.ms of the topic: %+v", e)
	}
}

func TestDescribeBroker(t *testing.T) {
	b, _, err := Resolve([]Setting{Flag("--set", "num.partitions", "3")})
	if err != nil {
		t.Fatal(err)
	}
	list := b.DescribeBroker()
	for _, e := range list {
		if e.Name == "num.partitions" && (e.Source != EntryStaticBroker || e.Value != "3" || !e.ReadOnly || len(e.Synonyms) != 2) {
			t.Errorf("%+v", e)
		}
		if e.Name == "log.retention.hours" {
			t.Error("an alias that isn't set is shown")
		}
	}
	if len(list) < 80 {
		t.Errorf("only %d entries", len(list))
	}
}

func TestEditList(t *testing.T) {
	f := func(list, members string, add bool, want string) {
		t.Helper()
		if got := EditList(list, members, add); got != want {
			t.Errorf("EditList(%q, %q, %v) = %q, want %q", list, members, add, got, want)
		}
	}
	f("delete", "compact", true, "delete,compact")
	f("delete", "delete", true, "delete")
	f("delete,compact", "delete", false, "compact")
	f("", "a, b", true, "a,b")
	f("a", "b", false, "a")
}

func TestTopicKeysAreKafkas(t *testing.T) {
	// Names that operators set most; a typo in the table would make them unknown.
	want := []string{"cleanup.policy", "compression.type", "delete.retention.ms", "max.message.bytes", "min.insync.replicas", "retention.bytes", "retention.ms", "segment.bytes", "segment.ms"}
	have := make(map[string]bool)
	for _, k := range topicKeys() {
		have[k.name] = true
	}
	for _, w := range want {
		if !have[w] {
			t.Errorf("%s is missing", w)
		}
	}
	if n := len(slices.Collect(maps.Keys(have))); n < 30 {
		t.Errorf("only %d topic configs", n)
	}
}
