// Package modellog is a partition's log made of numbers and tags, for tests of
// the core: what internal/log keeps in files, in a slice.
//
// One record is one batch. Its tag stands for the content: the same offset and
// epoch with another tag are other bytes. The epoch history is core/epoch's own,
// kept by the same calls that the real log makes (R1, R3, R4). It is used by
// tests and models alone and knows no I/O, no durability and no protocol.
package modellog

import (
	"fmt"
	"slices"
	"strings"

	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
)

// Record is one batch of one record.
type Record struct {
	Offset types.Offset
	Epoch  types.LeaderEpoch
	Tag    string
}

// Log is a log. The zero value is an empty one that starts at 0.
type Log struct {
	Start, End, HighWatermark types.Offset
	History                   epoch.History
	Records                   []Record
}

// Lead records an election at the log end, as a writable leader does (R3).
func (l *Log) Lead(e types.LeaderEpoch) {
	if _, err := l.History.Assign(e, l.End); err != nil {
		panic(err)
	}
}

// Write appends one record as leader.
func (l *Log) Write(e types.LeaderEpoch, tag string) {
	l.Records = append(l.Records, Record{l.End, e, tag})
	l.End++
}

// Append appends a copied record; a gap before it is kept.
func (l *Log) Append(r Record) {
	if r.Offset < l.End {
		panic(fmt.Sprintf("record %d appended at %d", r.Offset, l.End))
	}
	if _, err := l.History.AppendedBatch(r.Epoch, l.End); err != nil {
		panic(err)
	}
	l.Records = append(l.Records, r)
	l.End = r.Offset + 1
}

// Index is the place of the first record at or above o.
func (l *Log) Index(o types.Offset) int {
	i, _ := slices.BinarySearchFunc(l.Records, o, func(r Record, o types.Offset) int { return int(r.Offset - o) })
	return i
}

// At finds the record at o.
func (l *Log) At(o types.Offset) (Record, bool) {
	if i := l.Index(o); i < len(l.Records) && l.Records[i].Offset == o {
		return l.Records[i], true
	}
	return Record{}, false
}

// Cut removes records from o on and returns them (R1).
func (l *Log) Cut(o types.Offset) []Record {
	i := l.Index(o)
	gone := slices.Clone(l.Records[i:])
	l.Records = slices.Clone(l.Records[:i])
	l.End = min(l.End, o)
	l.Start, l.HighWatermark = min(l.Start, l.End), min(l.HighWatermark, l.End)
	l.History.TruncateFromEnd(o)
	return gone
}

// Restart empties the log, which begins at o then, and returns what it held.
func (l *Log) Restart(o types.Offset) []Record {
	gone := l.Records
	*l = Log{Start: o, End: o, HighWatermark: o}
	return gone
}

// RaiseStart moves the log start up to o and returns what it passed. Raised to the
// log end it leaves no history, except on a writable leader (R1).
func (l *Log) RaiseStart(o types.Offset, writable bool) []Record {
	i := l.Index(o)
	gone := slices.Clone(l.Records[:i])
	l.Records = slices.Clone(l.Records[i:])
	l.Start, l.HighWatermark = o, max(l.HighWatermark, o)
	if o >= l.End && !writable {
		l.History.Clear()
	} else {
		l.History.TruncateFromStart(o)
	}
	return gone
}

// Clone gives a copy that shares nothing.
func (l *Log) Clone() Log {
	c := *l
	c.History, c.Records = l.History.Clone(), slices.Clone(l.Records)
	return c
}

// String prints runs of records: 0-2@1a 3@2x, and the log start where it isn't 0.
func (l *Log) String() string {
	s := Print(l.Records)
	if s == "" {
		s = "empty"
	}
	if l.Start > 0 || len(l.Records) == 0 && l.End > 0 {
		s += fmt.Sprintf(" (start %d, end %d)", l.Start, l.End)
	}
	return s
}

// Print prints runs of records: 0-2@1a 3@2x.
func Print(records []Record) string {
	var runs []string
	for i := 0; i < len(records); {
		j := i
		for j+1 < len(records) && records[j+1].Offset == records[j].Offset+1 && records[j+1].Epoch == records[i].Epoch && records[j+1].Tag == records[i].Tag {
			j++
		}
		span := fmt.Sprint(records[i].Offset)
		if j > i {
			span += fmt.Sprintf("-%d", records[j].Offset)
		}
		runs = append(runs, fmt.Sprintf("%s@%d%s", span, records[i].Epoch, records[i].Tag))
		i = j + 1
	}
	return strings.Join(runs, " ")
}

// Difference compares two logs from the higher log start up to the lower end:
// empty if equal, else the first difference in words. A record that one side
// alone lacks is a difference unless compacted is set.
func Difference(a, b *Log, compacted bool) string {
	from, to := max(a.Start, b.Start), min(a.End, b.End)
	for o := from; o < to; o++ {
		x, inA := a.At(o)
		y, inB := b.At(o)
		switch {
		case inA && inB && x != y:
			return fmt.Sprintf("%s and %s", Print([]Record{x}), Print([]Record{y}))
		case inA != inB && !compacted:
			return fmt.Sprintf("offset %d is held by one side alone", o)
		}
	}
	return ""
}
