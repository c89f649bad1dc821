// Package meta holds what a cluster knows about itself: the typed records that
// lie in the metadata store, their keys, and the Image, an immutable snapshot
// of all of them that one watch keeps moving forward.
//
// The package owns the JSON of every record (Encode and Decode, versioned and
// strict), the key tree below /tidemark/<cluster id>/, the plain form of a
// write (Plan: compares and operations that hold or fail together) and the
// invariants of a partition record (ValidateRecord, R22). It never talks to a
// store: internal/metastore carries plans out and feeds events in, and
// internal/core/control decides what to write.
//
// An image starts from one consistent snapshot and never goes back (R9): Apply
// ignores events at or below its revision. Images share their unchanged parts,
// so that applying one change to 10,000 partitions costs microseconds. A value
// that can't be decoded marks its own key faulty and nothing else.
//
// Tests: named tables for each record and key, a model-based property of the
// image against a plain map, fuzzing of Decode, and benchmarks with 10,000
// partitions.
package meta

// Revision counts the transactions of a metadata store, from 1. 0 means "none":
// a key that doesn't exist has modification revision 0.
type Revision int64

// LeaseID names a lease of the metadata store; a key bound to it goes when the
// lease ends. 0 means "no lease".
type LeaseID int64

// KV is one key of the store with its value at some revision.
type KV struct {
	Key   string
	Value []byte
	// CreateRevision is the revision that made the key (anew, if it was
	// deleted before); ModRevision the one that last wrote it. Both are 0 for
	// a key that doesn't exist.
	CreateRevision, ModRevision Revision
	Lease                       LeaseID
}

// EventKind says what happened to a key.
type EventKind int8

const (
	// EventPut: the key was created or overwritten; KV holds the new value.
	EventPut EventKind = iota
	// EventDelete: the key is gone; KV has its name and, as ModRevision, the
	// revision of the deletion.
	EventDelete
)

// Event is one change of one key.
type Event struct {
	Kind EventKind
	KV   KV
}

// Events is everything that one revision changed below a watched prefix. An
// empty list of events is progress: nothing changed up to that revision.
type Events struct {
	Revision Revision
	Events   []Event
}

// CompareKind is what a Compare looks at.
type CompareKind int8

const (
	// CompareModRevision: the key's modification revision is Revision (0: the key is absent).
	CompareModRevision CompareKind = iota
	// CompareCreateRevision: the key's create revision is Revision (0: the key is absent).
	CompareCreateRevision
	// CompareExists: the key exists.
	CompareExists
	// CompareValue: the key exists and its value is Value.
	CompareValue
)

// Compare is one condition of a Plan.
type Compare struct {
	Kind     CompareKind
	Key      string
	Revision Revision
	Value    []byte
}

// ModRevisionIs holds while the key was last written by revision rev.
func ModRevisionIs(key string, rev Revision) Compare {
	return Compare{Kind: CompareModRevision, Key: key, Revision: rev}
}

// CreateRevisionIs holds while the key is the one that revision rev created.
func CreateRevisionIs(key string, rev Revision) Compare {
	return Compare{Kind: CompareCreateRevision, Key: key, Revision: rev}
}

// Absent holds while the key doesn't exist.
func Absent(key string) Compare { return CreateRevisionIs(key, 0) }

// Exists holds while the key exists, whatever its value.
func Exists(key string) Compare { return Compare{Kind: CompareExists, Key: key} }

// ValueIs holds while the key exists with exactly this value.
func ValueIs(key string, value []byte) Compare {
	return Compare{Kind: CompareValue, Key: key, Value: value}
}

// OpKind is what an Op does.
type OpKind int8

const (
	// OpPut writes Key.
	OpPut OpKind = iota
	// OpDelete removes Key, if it exists.
	OpDelete
	// OpDeletePrefix removes every key that begins with Key. It counts as one operation.
	OpDeletePrefix
)

// Op is one change that a Plan makes.
type Op struct {
	Kind  OpKind
	Key   string
	Value []byte
	Lease LeaseID
}

// Put writes key = value without a lease.
func Put(key string, value []byte) Op { return Op{Kind: OpPut, Key: key, Value: value} }

// PutLeased writes key = value; the key goes when the lease ends.
func PutLeased(key string, value []byte, lease LeaseID) Op {
	return Op{Kind: OpPut, Key: key, Value: value, Lease: lease}
}

// Delete removes key.
func Delete(key string) Op { return Op{Kind: OpDelete, Key: key} }

// DeletePrefix removes every key that begins with prefix.
func DeletePrefix(prefix string) Op { return Op{Kind: OpDeletePrefix, Key: prefix} }

// Plan is one transaction: if all of If hold, all of Then happen at one
// revision; else nothing happens. A plan touches a key at most once.
//
// A plan may be tried again after an unknown outcome, so its effect must be
// recognisable: at least one compare fails once it has been applied, and what it puts is
// fresh (a new id) or names its writer.
type Plan struct {
	// Why says in a few words what the plan does, for logs and errors.
	Why  string
	If   []Compare
	Then []Op
}
