package meta

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestLevelRangeJSON(t *testing.T) {
	var r LevelRange
	if err := json.Unmarshal([]byte(`[1,3]`), &r); err != nil || r != (LevelRange{1, 3}) {
		t.Errorf("%v, %v", r, err)
	}
	for _, bad := range []string{`[1]`, `[3,1]`, `[-1,1]`, `1`, `[1,99999]`} {
		if err := json.Unmarshal([]byte(bad), &r); err == nil {
			t.Errorf("%s is read as %v", bad, r)
		}
	}
}

// TestRefuses: a program that is too old, too new, or doesn't know a feature says which way to go.
func TestRefuses(t *testing.T) {
	f := func(supported Features, level int16, words string) {
		t.Helper()
		got := supported.Refuses(map[string]int16{FeatureMetadata: level})
		if words == "" && got != "" || !strings.Contains(got, words) {
			t.Errorf("%v at level %d: %q, want %q", supported, level, got, words)
		}
	}
	is := func(low, high int16) Features { return Features{FeatureMetadata: {low, high}} }
	f(is(1, 2), 1, "")
	f(is(1, 2), 2, "")
	f(is(1, 2), 0, "")
	f(is(1, 2), 3, "start a newer tidemark")
	f(is(2, 3), 1, "tidemark cluster upgrade")
	f(Features{}, 1, "doesn't know")
}

// TestFeatureLevels: what is absent has the level from before there were levels.
func TestFeatureLevels(t *testing.T) {
	image := Empty("c1")
	if got := image.FeatureLevel(FeatureMetadata); got != 1 {
		t.Errorf("absent: level %d", got)
	}
	if levels, revision := image.FinalizedFeatures(); levels[FeatureMetadata] != 1 || revision != 0 {
		t.Errorf("absent: %v at %d", levels, revision)
	}
	kv := KV{Key: image.Keys().Features(), Value: FeaturesRecord{Levels: map[string]int16{FeatureMetadata: 7, "other": 2}}.Encode(), CreateRevision: 3, ModRevision: 4}
	image, _ = Load("c1", []KV{kv}, 4)
	levels, revision := image.FinalizedFeatures()
	if image.FeatureLevel(FeatureMetadata) != 7 || levels["other"] != 2 || revision != 4 {
		t.Errorf("%v at %d", levels, revision)
	}
	if got := FreshFeatures(Features{FeatureMetadata: {1, 5}}); got.Levels[FeatureMetadata] != 5 {
		t.Errorf("a new cluster begins with %v", got)
	}
	names := make([]string, 0, 4)
	for _, k := range KnownFeatures() {
		names = append(names, k.Name)
		if k.Fresh > k.Levels.Max || k.Absent > k.Fresh {
			t.Errorf("%s: absent %d, fresh %d of %v", k.Name, k.Absent, k.Fresh, k.Levels)
		}
	}
	if !slices.IsSorted(names) {
		t.Errorf("features aren't in order: %v", names)
	}
}
