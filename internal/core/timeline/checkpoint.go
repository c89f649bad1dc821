package timeline

import (
	"fmt"
	"strconv"
	"strings"

	"tidemark/internal/core/types"
)

// CheckpointFile is the name of a replica's checkpoint in its partition's folder.
const CheckpointFile = "timeline-checkpoint"

// checkpointVersion is the only version of the file so far.
const checkpointVersion = 0

// Checkpoint is what a replica has applied (R19): the list, and the leader epoch
// of the partition record that it came from.
type Checkpoint struct {
	List        List
	LeaderEpoch types.LeaderEpoch
}

// CheckpointError names the line (1-based) and the field at which a checkpoint can't be read.
type CheckpointError struct {
	Line  int
	Field string // version, leader epoch, count, id, first epoch, first offset, list, end
	Text  string // what stands there
}

// Error names the file, the line, the field and the text.
func (e *CheckpointError) Error() string {
	return fmt.Sprintf("%s line %d: %s: %q", CheckpointFile, e.Line, e.Field, e.Text)
}

// Format gives the content of the file: a version line (0), the leader epoch,
// the number of entries, one "id first-epoch first-offset" line each; every line ended by a newline
// (docs/format/timeline-checkpoint.md).
func (c Checkpoint) Format() []byte {
	b := fmt.Appendf(nil, "%d\n%d\n%d\n", checkpointVersion, c.LeaderEpoch, len(c.List))
	for _, e := range c.List {
		b = fmt.Appendf(b, "%s %d %d\n", e.ID, e.FirstEpoch, e.FirstOffset)
	}
	return b
}

// ParseCheckpoint reads what Format writes and nothing else: a missing newline at
// the end, a longer file or a number in another form is an error, a *CheckpointError. A
// replica whose checkpoint can't be read has none (R19), so a guess would be worse.
func ParseCheckpoint(data []byte) (Checkpoint, error) {
	p := lines{rest: string(data)}
	if v := p.number("version", 32); p.err == nil && v != checkpointVersion {
		p.fail("version", strconv.FormatInt(v, 10))
	}
	c := Checkpoint{LeaderEpoch: types.LeaderEpoch(p.number("leader epoch", 32))}
	count := p.number("count", 32)
	for range count {
		e := p.entry()
		if p.err != nil {
			return Checkpoint{}, p.err
		}
		c.List = append(c.List, e)
	}
	if p.err == nil && p.rest != "" {
		p.line++
		p.fail("end", clip(p.rest))
	}
	if p.err == nil {
		if err := c.List.Validate(); err != nil {
			p.fail("list", err.Error())
		}
	}
	if p.err != nil {
		return Checkpoint{}, p.err
	}
	return c, nil
}

// lines reads a text line by line and keeps the first error.
type lines struct {
	rest string
	line int
	err  error
}

func (p *lines) fail(field, text string) {
	if p.err == nil {
		p.err = &CheckpointError{Line: p.line, Field: field, Text: text}
	}
}

func (p *lines) next(field string) string {
	if p.err != nil {
		return ""
	}
	p.line++
	line, rest, ok := strings.Cut(p.rest, "\n")
	if !ok {
		p.fail(field, "end of file")
		return ""
	}
	p.rest = rest
	return line
}

func (p *lines) number(field string, bits int) int64 {
	return p.parse(field, p.next(field), bits)
}

// parse takes only the canonical decimal form of a number from 0 up.
func (p *lines) parse(field, s string, bits int) int64 {
	n, err := strconv.ParseInt(s, 10, bits)
	if p.err == nil && (err != nil || n < 0 || strconv.FormatInt(n, 10) != s) {
		p.fail(field, clip(s))
	}
	if p.err != nil {
		return 0
	}
	return n
}

func (p *lines) entry() Entry {
	line := p.next("entry")
	fields := strings.Split(line, " ")
	if p.err == nil && len(fields) != 3 {
		p.fail("entry", clip(line))
	}
	if p.err != nil {
		return Entry{}
	}
	e := Entry{
		ID:          fields[0],
		FirstEpoch:  types.LeaderEpoch(p.parse("first epoch", fields[1], 32)),
		FirstOffset: types.Offset(p.parse("first offset", fields[2], 64)),
	}
	if err := e.validate(); p.err == nil && err != nil {
		p.fail("id", clip(fields[0]))
	}
	return e
}

// clip bounds a damaged text in an error message.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
