package control

import (
	"fmt"
	"maps"

	"tidemark/internal/core/meta"
)

// FeatureChange is a request to finalize one feature at a level (KIP-584).
type FeatureChange struct {
	Name string
	// Level 0 ends the feature's use.
	Level int16
	// Down allows a level below the present one. Unsafe allows it also where records
	// may be written in a form that the lower level doesn't have.
	Down, Unsafe bool
}

// UpdateFeatures finalizes feature levels, all or none. Every registered broker
// must support them; one that registers later is refused (RegisterBroker). ok is false if all
// features have these levels already. supported are the writer's own.
func UpdateFeatures(image *meta.Image, changes []FeatureChange, supported meta.Features, me Me) (plan meta.Plan, ok bool, err error) {
	if err := me.registered(image); err != nil {
		return plan, false, err
	}
	if f := image.FeatureEntry(); f != nil && f.Record == nil {
		return plan, false, fmt.Errorf("features: %w: %w", ErrUnreadable, f.Fault)
	}
	levels, revision := image.FinalizedFeatures()
	next := maps.Clone(levels)
	for _, c := range changes {
		if err := checkFeature(image, levels[c.Name], c, supported); err != nil {
			return plan, false, err
		}
		if next[c.Name] = c.Level; c.Level == 0 {
			delete(next, c.Name)
		}
	}
	if maps.Equal(next, levels) {
		return plan, false, nil
	}
	key := image.Keys().Features()
	plan = meta.Plan{
		Why:  fmt.Sprintf("finalize features %v", next),
		If:   append(me.compares(image), meta.ModRevisionIs(key, revision)),
		Then: []meta.Op{meta.Put(key, meta.FeaturesRecord{Levels: next}.Encode())},
	}
	for b := range image.Brokers() {
		if b.ID != me.ID {
			plan.If = append(plan.If, meta.CreateRevisionIs(image.Keys().Broker(b.ID), b.CreateRevision))
		}
	}
	return checked(plan), true, nil
}

func checkFeature(image *meta.Image, present int16, c FeatureChange, supported meta.Features) error {
	own, known := supported[c.Name]
	switch {
	case !known:
		return fmt.Errorf("%w: %s: this cluster knows no such feature", ErrFeatureLevel, c.Name)
	case c.Level == 0 && own.Min > 0:
		return fmt.Errorf("%w: %s can't be turned off", ErrFeatureLevel, c.Name)
	case c.Level < own.Min || c.Level > own.Max:
		return fmt.Errorf("%w: %s %d: the broker that was asked supports %d to %d", ErrFeatureLevel, c.Name, c.Level, own.Min, own.Max)
	case c.Level < present && !c.Down:
		return fmt.Errorf("%w: %s is at level %d: to go down to %d say so (downgrade)", ErrFeatureLevel, c.Name, present, c.Level)
	case c.Level > present && c.Down:
		return fmt.Errorf("%w: %s is at level %d: %d is no downgrade", ErrFeatureLevel, c.Name, present, c.Level)
	case c.Level < present && c.Name == meta.FeatureMetadata && !c.Unsafe:
		return fmt.Errorf("%w: %s: records may have been written in the form of level %d, which programs at level %d can't read; only an unsafe downgrade does it",
			ErrFeatureLevel, c.Name, present, c.Level)
	}
	for b := range image.Brokers() {
		r, says := b.Record.Features[c.Name]
		if !says {
			r = absentRange(c.Name)
		}
		if c.Level != 0 && (c.Level < r.Min || c.Level > r.Max) {
			return fmt.Errorf("%w: %s %d: broker %d (%s) supports %d to %d; upgrade it first", ErrFeatureLevel, c.Name, c.Level, b.ID, b.Record.Software, r.Min, r.Max)
		}
	}
	return nil
}

// absentRange is what a broker supports that says nothing of a feature.
func absentRange(name string) meta.LevelRange {
	for _, k := range meta.KnownFeatures() {
		if k.Name == name {
			return meta.LevelRange{Min: 0, Max: k.Absent}
		}
	}
	return meta.LevelRange{}
}
