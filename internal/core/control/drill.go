package control

import (
	"errors"
	"fmt"

	"tidemark/internal/core/meta"
)

// Refusals of drills.
var (
	ErrDrillExists = errors.New("the drill exists")
	ErrDrillLevel  = errors.New("the cluster's level holds no drills")
	ErrDrillOver   = errors.New("the drill isn't being made any more")
)

// BeginDrill reserves a drill's name: from now on its topics can be written, unseen
// (WriteForks). The name is free again once nothing is left of an earlier drill.
func BeginDrill(image *meta.Image, r meta.DrillRecord, me Me) (meta.Plan, error) {
	if err := me.registered(image); err != nil {
		return meta.Plan{}, err
	}
	levels, revision := image.FinalizedFeatures()
	if level := levels[meta.FeatureMetadata]; level < meta.LevelDrills {
		return meta.Plan{}, fmt.Errorf("%w: %s is at level %d; level %d has drills: raise it once every node runs this version (tidemark cluster upgrade)",
			ErrDrillLevel, meta.FeatureMetadata, level, meta.LevelDrills)
	}
	if _, taken := image.DrillEntry(r.Name); taken {
		return meta.Plan{}, fmt.Errorf("drill %s: %w", r.Name, ErrDrillExists)
	}
	r.State, r.Broker, r.BrokerEpoch = meta.DrillMaking, me.ID, me.Epoch
	keys := image.Keys()
	return checked(meta.Plan{
		Why:  "begin drill " + r.Name,
		If:   []meta.Compare{me.compare(image), meta.Absent(keys.Drill(r.Name)), meta.ModRevisionIs(keys.Features(), revision)},
		Then: []meta.Op{meta.Put(keys.Drill(r.Name), r.Encode())},
	}), nil
}

// beingMade gives the entry of a drill that is being made by the writer.
func beingMade(image *meta.Image, run meta.DrillMark, me Me) (*meta.Drill, error) {
	if err := me.registered(image); err != nil {
		return nil, err
	}
	d, ok := image.Drill(run.Name)
	switch {
	case !ok || !d.Record.Is(run) || d.Record.State != meta.DrillMaking:
		return nil, fmt.Errorf("drill %s: %w", run.Name, ErrDrillOver)
	case d.Record.Broker != me.ID || d.Record.BrokerEpoch != me.Epoch:
		return nil, fmt.Errorf("drill %s is made by broker %d, epoch %d: %w", run.Name, d.Record.Broker, d.Record.BrokerEpoch, ErrNotRegistered)
	}
	return d, nil
}

// unchanged holds while nobody has written the drill's record since the image (R8).
func unchanged(image *meta.Image, d *meta.Drill, me Me) []meta.Compare {
	return append(me.compares(image), meta.ModRevisionIs(image.Keys().Drill(d.ID), d.ModRevision))
}

// DropDrill takes a drill's topics from everybody's sight, at once and for good, in
// whatever state it is; one that is being made is given up by that. The controller
// deletes what is left (TidyDrills). ok is false if it is being dropped already.
func DropDrill(image *meta.Image, d *meta.Drill, me Me) (plan meta.Plan, ok bool, err error) {
	if err := me.registered(image); err != nil {
		return plan, false, err
	}
	if d.Fault != nil {
		return plan, false, fmt.Errorf("drill %s: %w: %w", d.ID, ErrUnreadable, d.Fault)
	}
	if d.Record.State == meta.DrillDropping {
		return plan, false, nil
	}
	next := *d.Record
	next.State = meta.DrillDropping
	return checked(meta.Plan{
		Why: "drop drill " + d.ID, If: unchanged(image, d, me), Then: []meta.Op{meta.Put(image.Keys().Drill(d.ID), next.Encode())},
	}), true, nil
}

// IsAbandoned reports whether nobody makes a drill any more that is being made: the
// registration in which it was begun is over.
func IsAbandoned(image *meta.Image, r *meta.DrillRecord) bool {
	epoch, ok := image.BrokerEpoch(r.Broker)
	return r.State == meta.DrillMaking && !(ok && epoch == r.BrokerEpoch)
}

// TidyDrills is the controller's part: it drops drills whose makers are gone, and
// deletes what belongs to dropped ones; their records go when nothing else is left.
// No two plans depend on each other; those that are due afterwards come from a later image.
func TidyDrills(image *meta.Image, me Me, limits Limits) []meta.Plan {
	var plans []meta.Plan
	for d := range image.Drills() {
		if d.Fault != nil {
			continue
		}
		if IsAbandoned(image, d.Record) {
			if plan, ok, err := DropDrill(image, d, me); ok && err == nil {
				plans = append(plans, plan)
			}
		}
		if d.Record.State == meta.DrillDropping {
			plans = append(plans, clearDrill(image, d, me)...)
		}
	}
	return Split(plans, limits)
}

// clearDrill deletes the topics of a dropped drill, or its record if it has none any
// more. No topic can be added to it: whoever writes one compares its record as it was
// while it was made.
func clearDrill(image *meta.Image, d *meta.Drill, me Me) []meta.Plan {
	keys := image.Keys()
	var plans []meta.Plan
	for t := range image.DrillTopics(d.Record.Mark()) {
		plans = append(plans, meta.Plan{
			Why:  fmt.Sprintf("delete topic %s of drill %s", t.Record.Name, d.ID),
			If:   unchanged(image, d, me),
			Then: []meta.Op{meta.Delete(keys.Topic(t.ID)), meta.DeletePrefix(keys.Partitions(t.ID)), meta.Delete(keys.Name(t.Record.Name))},
		})
	}
	if len(plans) == 0 {
		plans = append(plans, meta.Plan{Why: "delete drill " + d.ID, If: unchanged(image, d, me), Then: []meta.Op{meta.Delete(keys.Drill(d.ID))}})
	}
	return plans
}
