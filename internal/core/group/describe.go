package group

import (
	"maps"
	"slices"
	"strings"
)

// GroupType is the type that ListGroups names for every group of this package.
const GroupType = "classic"

// Listing is one group of ListGroups.
type Listing struct {
	Group, ProtocolType string
	State               State
}

// List gives the groups in the states and of the types that are asked for
// (letter case apart; none asked for means all), ordered by id.
func (t *Table) List(states, groupTypes []string) []Listing {
	if !matches(groupTypes, GroupType) {
		return nil
	}
	var all []Listing
	for _, id := range slices.Sorted(maps.Keys(t.groups)) {
		g := t.groups[id]
		if s := g.stateNow(); matches(states, s.String()) {
			all = append(all, Listing{Group: id, ProtocolType: g.protocolType, State: s})
		}
	}
	return all
}

func matches(wanted []string, have string) bool {
	return len(wanted) == 0 || slices.ContainsFunc(wanted, func(w string) bool { return strings.EqualFold(w, have) })
}

func (g *group) stateNow() State {
	if g.deleting {
		return Dead
	}
	return g.state
}

// Description is one group of DescribeGroups.
type Description struct {
	State                  State
	ProtocolType, Protocol string
	Members                []MemberDescription
}

// MemberDescription is one member of a Description. Metadata and Assignment
// are only there when the group is Stable.
type MemberDescription struct {
	MemberID, InstanceID, ClientID, ClientHost string
	Metadata, Assignment                       []byte
}

// Describe gives a group; a group that doesn't exist is Dead.
func (t *Table) Describe(id string) Description {
	g := t.group(id)
	if g == nil || g.deleting {
		return Description{State: Dead}
	}
	d := Description{State: g.state, ProtocolType: g.protocolType}
	if g.state == Stable {
		d.Protocol = g.protocol
	}
	for _, m := range g.inOrder() {
		md := MemberDescription{MemberID: m.id, InstanceID: m.instance, ClientID: m.clientID, ClientHost: m.clientHost}
		if g.state == Stable {
			md.Metadata, _ = m.metadata(g.protocol)
			md.Assignment = m.assignment
		}
		d.Members = append(d.Members, md)
	}
	return d
}
