package meta

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Features are the levels that a program supports, by feature name.
type Features map[string]LevelRange

// LevelRange is an inclusive range of feature levels. In JSON it is [min, max].
type LevelRange struct{ Min, Max int16 }

// MarshalJSON writes [min, max].
func (r LevelRange) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "[%d,%d]", r.Min, r.Max), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *LevelRange) UnmarshalJSON(b []byte) error {
	var pair []int16
	if err := json.Unmarshal(b, &pair); err != nil {
		return err
	}
	if len(pair) != 2 || pair[0] < 0 || pair[0] > pair[1] {
		return fmt.Errorf("feature levels %s: want [min, max]", b)
	}
	*r = LevelRange{Min: pair[0], Max: pair[1]}
	return nil
}

// Feature is one that this program knows.
type Feature struct {
	Name string
	// Levels are those that this program supports.
	Levels LevelRange
	// Absent is the level of a cluster that has none written: what was there
	// before there were levels. 0 stands for "not finalized".
	Absent int16
	// Fresh is the level that a new cluster begins with.
	Fresh int16
	// Tells says what a level brings, for people, from level 1 on.
	Tells []string
}

// FeatureMetadata is the level of the metadata's own form, as Kafka's
// metadata.version: a record in a form that older programs can't read is only
// written from its level on. Kafka's own name isn't used, because its levels
// stand for Kafka's record forms.
const FeatureMetadata = "tidemark.version"

// FeatureTransactions is Kafka's level of the transactions' protocol (KIP-890): with 2
// producers leave it to the brokers to add partitions, and get a new epoch with every end.
const FeatureTransactions = "transaction.version"

// FeatureGroups is Kafka's level of the groups' protocols: with 1 there are groups of the
// new one (KIP-848).
const FeatureGroups = "group.version"

// KnownFeatures lists the features that this program knows, by name.
func KnownFeatures() []Feature {
	return []Feature{
		{Name: FeatureGroups, Levels: LevelRange{Min: 0, Max: 1}, Absent: 0, Fresh: 1,
			Tells: []string{"groups of the consumer protocol (KIP-848)"}},
		{Name: FeatureMetadata, Levels: LevelRange{Min: 1, Max: LevelAttempts}, Absent: 1, Fresh: LevelAttempts,
			Tells: []string{"topics, partitions, mirrors, nodes", "ACLs, SCRAM credentials, the cuts of consistent failovers", "drills of any size",
				"switchovers whose source opens again after their node has died"}},
		{Name: FeatureTransactions, Levels: LevelRange{Min: 0, Max: 2}, Absent: 0, Fresh: 2,
			Tells: []string{"flexible fields in the state of transactions", "an epoch for each transaction, partitions added by the brokers (KIP-890)"}},
	}
}

// SupportedFeatures are the levels that this program supports.
func SupportedFeatures() Features {
	f := make(Features)
	for _, k := range KnownFeatures() {
		f[k.Name] = k.Levels
	}
	return f
}

// FreshFeatures is what a new cluster begins with, on a program that supports
// the given levels: the highest where this program knows of nothing lower.
func FreshFeatures(supported Features) FeaturesRecord {
	r := FeaturesRecord{Levels: make(map[string]int16)}
	for _, k := range KnownFeatures() {
		if s, ok := supported[k.Name]; ok {
			level := k.Fresh
			if level == k.Levels.Max {
				level = s.Max
			}
			if level > 0 {
				r.Levels[k.Name] = max(level, s.Min)
			}
		}
	}
	return r
}

// FeatureLevel gives the finalized level of a feature; 0 if it has none.
func (i *Image) FeatureLevel(name string) int16 {
	if f, ok := i.Features(); ok {
		if level, finalized := f.Record.Levels[name]; finalized {
			return level
		}
	}
	for _, k := range KnownFeatures() {
		if k.Name == name {
			return k.Absent
		}
	}
	return 0
}

// FinalizedFeatures gives the levels of all features that have one, and the
// revision that wrote them (0: none was written yet).
func (i *Image) FinalizedFeatures() (map[string]int16, Revision) {
	levels := make(map[string]int16)
	for _, k := range KnownFeatures() {
		if k.Absent > 0 {
			levels[k.Name] = k.Absent
		}
	}
	f, ok := i.Features()
	if !ok {
		return levels, 0
	}
	maps.Copy(levels, f.Record.Levels)
	return levels, f.ModRevision
}

// Refuses names the first finalized feature that a program with these levels
// can't work with, in a sentence; empty if there is none.
func (s Features) Refuses(finalized map[string]int16) string {
	for _, name := range slices.Sorted(maps.Keys(finalized)) {
		level := finalized[name]
		r, known := s[name]
		switch {
		case level == 0:
		case !known:
			return fmt.Sprintf("the cluster uses %s at level %d, which this program doesn't know: it is too old for the cluster, start a newer tidemark", name, level)
		case level > r.Max:
			return fmt.Sprintf("the cluster's %s is at level %d and this program supports %d to %d: it is too old for the cluster, start a newer tidemark", name, level, r.Min, r.Max)
		case level < r.Min:
			return fmt.Sprintf("the cluster's %s is at level %d and this program supports %d to %d: it is too new for the cluster; "+
				"start the version before, raise the level (tidemark cluster upgrade), and come back", name, level, r.Min, r.Max)
		}
	}
	return ""
}
