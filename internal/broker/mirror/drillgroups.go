package mirror

import (
	"context"
	"maps"
	"slices"

	"tidemark/internal/broker/coordinator"
	"tidemark/internal/core/types"
)

// copyGroups gives the fork's groups what the mirror's have committed here, at the
// most up to the fork's ends.
func (d *drill) copyGroups(ctx context.Context) error {
	groups := map[string]*DrillGroup{}
	for some := range slices.Chunk(d.list, askedMax) {
		offsets, err := d.committed(ctx, some, groups)
		if err != nil {
			return err
		}
		if err := d.writeOffsets(ctx, offsets, groups); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		d.report.Groups = append(d.report.Groups, *groups[name])
	}
	return nil
}

// committed gives what groups have committed of some partitions, by the fork's group.
func (d *drill) committed(ctx context.Context, some []*drilled, groups map[string]*DrillGroup) (map[string][]drillOffset, error) {
	at := make(map[types.TopicPartition]*drilled, len(some))
	p := part{Mirror: d.mirror}
	for _, one := range some {
		at[one.tp] = one
		p.Cuts = append(p.Cuts, coordinator.Cut{TopicPartition: one.tp, Offset: types.NoOffset}) // above it is everything
	}
	list, err := d.m.everywhere(ctx, partPast, p, peerPatience)
	if err != nil {
		return nil, err
	}
	offsets := map[string][]drillOffset{}
	for _, o := range list {
		one := at[o.TopicPartition]
		if one == nil || o.Past == nil || !d.groups.MatchString(o.Past.Group) {
			continue
		}
		name := d.report.Prefix + o.Past.Group
		if groups[name] == nil {
			groups[name] = &DrillGroup{Group: name, Of: o.Past.Group}
		}
		if o.Past.Offset > one.point.To {
			groups[name].Clamped++
		}
		groups[name].Offsets++
		offsets[name] = append(offsets[name], drillOffset{TopicPartition: one.name, Offset: min(o.Past.Offset, one.point.To)})
	}
	return offsets, nil
}

// writeOffsets has the coordinators write the offsets of the fork's groups.
func (d *drill) writeOffsets(ctx context.Context, offsets map[string][]drillOffset, groups map[string]*DrillGroup) error {
	if len(offsets) == 0 {
		return nil
	}
	p := d.part()
	p.Drill.Offsets = offsets
	list, err := d.m.everywhere(ctx, partDrillOffsets, p, peerPatience)
	written := map[string]string{}
	for _, o := range list {
		if o.Drill != nil {
			written[o.Drill.Group] = o.Drill.Fault
		}
	}
	for name := range offsets {
		fault, ok := written[name]
		if !ok {
			fault = "no broker coordinates it at the moment"
		}
		if fault != "" {
			groups[name].Fault = fault
		}
	}
	return err
}
