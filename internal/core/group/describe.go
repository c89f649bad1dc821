package group

import (
	"maps"
	"slices"
	"strings"
)

// The types of groups that ListGroups names.
const (
	TypeClassic  = "classic"
	TypeConsumer = "consumer"
)

// Listing is one group of ListGroups.
type Listing struct {
	Group, ProtocolType, Type string
	State                     State
}

// List gives the groups in the states and of the types that are asked for
// (letter case apart; none asked for means all), ordered by id.
func (t *Table) List(states, groupTypes []string) []Listing {
	var all []Listing
	for _, id := range slices.Sorted(maps.Keys(t.groups)) {
		g := t.groups[id]
		l := Listing{Group: id, ProtocolType: g.protocolType, Type: TypeClassic, State: g.stateNow()}
		if g.consumer != nil {
			l.ProtocolType, l.Type = consumerProtocolType, TypeConsumer
		}
		if matches(states, l.State.String()) && matches(groupTypes, l.Type) {
			all = append(all, l)
		}
	}
	return all
}

// Kind is a type of groups and a state that they may be in.
type Kind struct {
	Type  string
	State State
}

// Kinds lists all that there can be of groups that exist.
func Kinds() []Kind {
	return []Kind{
		{TypeClassic, Empty}, {TypeClassic, PreparingRebalance}, {TypeClassic, CompletingRebalance}, {TypeClassic, Stable}, {TypeClassic, Dead},
		{TypeConsumer, Empty}, {TypeConsumer, Assigning}, {TypeConsumer, Reconciling}, {TypeConsumer, Stable}, {TypeConsumer, Dead},
	}
}

// Count says how many groups there are of each kind.
func (t *Table) Count() map[Kind]int {
	n := make(map[Kind]int)
	for _, g := range t.groups {
		k := Kind{TypeClassic, g.stateNow()}
		if g.consumer != nil {
			k.Type = TypeConsumer
		}
		n[k]++
	}
	return n
}

func matches(wanted []string, have string) bool {
	return len(wanted) == 0 || slices.ContainsFunc(wanted, func(w string) bool { return strings.EqualFold(w, have) })
}

func (g *group) stateNow() State {
	if g.deleting {
		return Dead
	}
	if g.consumer != nil {
		return g.consumer.stateNow()
	}
	return g.state
}

// Description is one group of DescribeGroups.
type Description struct {
	State State
	// OtherType: the group exists, but isn't a classic one. It is Dead then.
	OtherType              bool
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
	if g.consumer != nil {
		return Description{State: Dead, OtherType: true}
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
