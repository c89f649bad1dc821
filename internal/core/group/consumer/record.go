package consumer

import (
	"cmp"
	"maps"
	"slices"

	"tidemark/internal/core/types"
)

// Record is one entry of the group's log: one of the types below. Without a value it
// is a tombstone.
type Record interface {
	// key names what the record sets; a later record of the same key takes its place.
	key() recordKey
}

type recordKey struct {
	kind int8
	name string // of a member, or a regular expression
}

func (k recordKey) compare(l recordKey) int {
	return cmp.Or(cmp.Compare(k.kind, l.kind), cmp.Compare(k.name, l.name))
}

// IsTombstone reports whether a record takes something away.
func IsTombstone(r Record) bool {
	switch r := r.(type) {
	case EpochRecord:
		return r.Gone
	case ProfileRecord:
		return r.Value == nil
	case TargetEpochRecord:
		return r.Gone
	case TargetRecord:
		return r.Gone
	case PositionRecord:
		return r.Value == nil
	case RegexRecord:
		return r.Value == nil
	}
	return false
}

// EpochRecord sets the group's epoch, and a hash of what it subscribes to (key type 3).
type EpochRecord struct {
	Gone  bool // a tombstone: there is no such group
	Epoch int32
	Hash  int64
	// Time is when it was written, by the wall clock: the record's own time stamp.
	Time types.Millis
}

// ProfileRecord sets what a member says of itself (key type 5).
type ProfileRecord struct {
	Member string
	Value  *Profile
}

// TargetEpochRecord says which epoch of the group the targets are of (key type 6).
type TargetEpochRecord struct {
	Gone  bool
	Epoch int32
}

// TargetRecord sets what a member is to have in the end (key type 7).
type TargetRecord struct {
	Member     string
	Gone       bool
	Partitions []Partition // sorted
}

// PositionRecord sets where a member stands (key type 8).
type PositionRecord struct {
	Member string
	Value  *Position
}

// RegexRecord sets the topics that an expression stood for (key type 16).
type RegexRecord struct {
	Regex string
	Value *Resolved
}

// Resolved are the topics that a regular expression stands for.
type Resolved struct {
	Topics  []string // sorted
	Version int64    // of the topics that it was matched with
	At      types.Millis
}

func (EpochRecord) key() recordKey       { return recordKey{kind: 3} }
func (r ProfileRecord) key() recordKey   { return recordKey{5, r.Member} }
func (TargetEpochRecord) key() recordKey { return recordKey{kind: 6} }
func (r TargetRecord) key() recordKey    { return recordKey{7, r.Member} }
func (r PositionRecord) key() recordKey  { return recordKey{8, r.Member} }
func (r RegexRecord) key() recordKey     { return recordKey{16, r.Regex} }

// Replay takes a record in the order of the log, or one of the group's own changes.
func (g *Group) Replay(r Record) {
	switch r := r.(type) {
	case EpochRecord:
		g.epoch, g.hash, g.exists, g.since = r.Epoch, r.Hash, !r.Gone, r.Time
	case ProfileRecord:
		g.replayProfile(r)
	case TargetEpochRecord:
		g.targetEpoch = r.Epoch
	case TargetRecord:
		delete(g.targets, r.Member)
		if !r.Gone {
			g.targets[r.Member] = r.Partitions
		}
	case PositionRecord:
		g.replayPosition(r)
	case RegexRecord:
		delete(g.regexes, r.Regex)
		if r.Value != nil {
			g.regexes[r.Regex] = r.Value
		}
	}
}

func (g *Group) replayProfile(r ProfileRecord) {
	m := g.copyOf(r.Member)
	if was := m.InstanceID; was != "" && g.static[was] == m.ID {
		delete(g.static, was)
	}
	m.Profile, m.profiled = Profile{}, r.Value != nil
	if r.Value != nil {
		m.Profile = *r.Value
		if m.InstanceID != "" {
			g.static[m.InstanceID] = m.ID
		}
	}
	g.put(m)
}

func (g *Group) replayPosition(r PositionRecord) {
	m := g.copyOf(r.Member)
	for _, set := range []Partitions{m.Assigned, m.Revoking} {
		for p := range set {
			if g.owners[p] == m.ID {
				delete(g.owners, p)
			}
		}
	}
	m.Position = Position{}
	if r.Value != nil {
		m.Position = *r.Value
		for _, set := range []Partitions{m.Assigned, m.Revoking} {
			for p := range set {
				g.owners[p] = m.ID
			}
		}
	}
	g.put(m)
}

// copyOf gives a copy of a member, a fresh one if there is none.
func (g *Group) copyOf(id string) *Member {
	if m := g.members[id]; m != nil {
		c := *m
		return &c
	}
	return &Member{ID: id}
}

// put files a member; one of whom nothing is left is taken out.
func (g *Group) put(m *Member) {
	if !m.profiled && m.State == 0 {
		delete(g.members, m.ID)
		return
	}
	g.members[m.ID] = m
}

// now gives the record that would set a key to what it is.
func (g *Group) now(k recordKey) Record {
	switch k.kind {
	case 3:
		return EpochRecord{Gone: !g.exists, Epoch: g.epoch, Hash: g.hash, Time: g.since}
	case 6:
		return TargetEpochRecord{Gone: !g.exists, Epoch: g.targetEpoch}
	case 7:
		target, ok := g.targets[k.name]
		return TargetRecord{Member: k.name, Gone: !ok, Partitions: target}
	case 16:
		return RegexRecord{Regex: k.name, Value: g.regexes[k.name]}
	}
	m := g.members[k.name]
	if k.kind == 5 {
		if m == nil || !m.profiled {
			return ProfileRecord{Member: k.name}
		}
		return ProfileRecord{Member: k.name, Value: &m.Profile}
	}
	if m == nil || m.State == 0 {
		return PositionRecord{Member: k.name}
	}
	return PositionRecord{Member: k.name, Value: &m.Position}
}

// Tombstones are the records that take the group out of the log.
func (g *Group) Tombstones() []Record {
	var records []Record
	for _, k := range slices.SortedFunc(maps.Keys(g.doubt), recordKey.compare) {
		records = append(records, g.now(k)) // also what only a failed write may have brought there
	}
	for _, m := range g.inOrder() {
		records = append(records, PositionRecord{Member: m.ID}, TargetRecord{Member: m.ID, Gone: true}, ProfileRecord{Member: m.ID})
	}
	for _, regex := range sortedKeys(g.regexes) {
		records = append(records, RegexRecord{Regex: regex})
	}
	return append(records, TargetEpochRecord{Gone: true}, EpochRecord{Gone: true})
}

// write changes the group, and has the log told of it.
func (g *Group) write(r Record) {
	before := g.now(r.key())
	if p, ok := r.(PositionRecord); ok && p.Value != nil {
		g.checkFree(p.Member, p.Value)
	}
	g.undo = append(g.undo, before)
	g.Replay(r)
	g.changes = append(g.changes, r)
}

// Changes are the records that the log is to be told next: what has changed since the
// last Keep or Drop, in order. Before them comes what a failed write may have set to something else.
func (g *Group) Changes() []Record {
	if len(g.doubt) == 0 {
		return g.changes
	}
	var all []Record
	for _, k := range slices.SortedFunc(maps.Keys(g.doubt), recordKey.compare) {
		all = append(all, g.now(k))
	}
	return append(all, g.changes...)
}

// HasChanged reports whether anything has changed since the last Keep or Drop.
func (g *Group) HasChanged() bool { return len(g.changes) > 0 }

// Keep is called once the log has the changes.
func (g *Group) Keep() { g.changes, g.undo, g.doubt = nil, nil, nil }

// Drop takes the changes back. The log may have them nonetheless, as nobody knows what
// became of the write: it is told again what was before with whatever is written next.
func (g *Group) Drop() {
	if g.doubt == nil {
		g.doubt = map[recordKey]bool{}
	}
	for _, r := range slices.Backward(g.undo) {
		g.Replay(r)
		g.doubt[r.key()] = true
	}
	g.changes, g.undo, g.seen = nil, nil, neverSeen
}

// AsKept calls f with the group as it was before the changes that aren't kept yet.
func (g *Group) AsKept(f func()) {
	for _, r := range slices.Backward(g.undo) {
		g.Replay(r)
	}
	f()
	for _, r := range g.changes {
		g.Replay(r)
	}
}
