package epoch

import (
	"fmt"
	"strconv"
	"strings"

	"tidemark/internal/core/types"
)

// CheckpointFile is the name of the history's file in a partition's folder.
const CheckpointFile = "leader-epoch-checkpoint"

// ErrorKind says what is wrong with a checkpoint's content.
type ErrorKind string

// The kinds of damage that ParseCheckpoint tells apart.
const (
	BadVersionLine ErrorKind = "bad_version_line" // the first line isn't a number
	UnknownVersion ErrorKind = "unknown_version"  // a number other than 0
	BadCount       ErrorKind = "bad_count"        // the second line isn't a 32-bit number of 0 or more
	CountMismatch  ErrorKind = "count_mismatch"   // more or fewer entry lines than counted
	MalformedEntry ErrorKind = "malformed_entry"  // not two numbers that fit
	InvalidEntry   ErrorKind = "invalid_entry"    // a negative epoch or offset
)

// CheckpointError names the line (1-based) at which a checkpoint can't be read.
type CheckpointError struct {
	Kind ErrorKind
	Line int
	Text string // the line, or what is missing
}

// Error names kind, line and text; the caller adds the file's name.
func (e *CheckpointError) Error() string {
	return fmt.Sprintf("%s line %d: %s: %q", CheckpointFile, e.Line, strings.ReplaceAll(string(e.Kind), "_", " "), e.Text)
}

// FormatCheckpoint gives the exact content of the file: a version line (0), the
// number of entries, one "epoch offset" line each, every line ended by a newline.
func FormatCheckpoint(entries []Entry) []byte {
	b := make([]byte, 0, 8+24*len(entries))
	b = append(b, "0\n"...)
	b = strconv.AppendInt(b, int64(len(entries)), 10)
	b = append(b, '\n')
	for _, e := range entries {
		b = strconv.AppendInt(b, int64(e.Epoch), 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, int64(e.Start), 10)
		b = append(b, '\n')
	}
	return b
}

// ParseCheckpoint reads what FormatCheckpoint and Kafka write. The entries come
// as written, conflicts included: FromEntries removes those. An error is a
// *CheckpointError; there is never a silent empty history: an empty file and a
// version line alone are refused too.
func ParseCheckpoint(data []byte) ([]Entry, error) {
	lines := strings.Split(string(data), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	count, err := parseHead(lines)
	if err != nil {
		return nil, err
	}
	rest := lines[2:]
	entries := make([]Entry, 0, min(count, len(rest)))
	for i, line := range rest {
		e, err := parseEntry(line, i+3)
		if err != nil {
			return nil, err
		}
		if i >= count {
			return nil, &CheckpointError{Kind: CountMismatch, Line: i + 3, Text: clip(line)}
		}
		entries = append(entries, e)
	}
	if len(entries) < count {
		return nil, &CheckpointError{Kind: CountMismatch, Line: len(lines) + 1, Text: "end of file, " + strconv.Itoa(count) + " entries announced"}
	}
	return entries, nil
}

// parseHead reads the version and the count line.
func parseHead(lines []string) (count int, err error) {
	if len(lines) == 0 {
		return 0, &CheckpointError{Kind: BadVersionLine, Line: 1, Text: "end of file"}
	}
	version, ok := parseNumber(lines[0], 32)
	if !ok {
		return 0, &CheckpointError{Kind: BadVersionLine, Line: 1, Text: clip(lines[0])}
	}
	if version != 0 {
		return 0, &CheckpointError{Kind: UnknownVersion, Line: 1, Text: clip(lines[0])}
	}
	if len(lines) == 1 {
		return 0, &CheckpointError{Kind: BadCount, Line: 2, Text: "end of file"}
	}
	n, ok := parseNumber(lines[1], 32)
	if !ok || n < 0 {
		return 0, &CheckpointError{Kind: BadCount, Line: 2, Text: clip(lines[1])}
	}
	return int(n), nil
}

func parseEntry(line string, number int) (Entry, error) {
	fields := strings.Fields(line)
	if len(fields) != 2 {
		return Entry{}, &CheckpointError{Kind: MalformedEntry, Line: number, Text: clip(line)}
	}
	epoch, okEpoch := parseNumber(fields[0], 32)
	start, okStart := parseNumber(fields[1], 64)
	if !okEpoch || !okStart {
		return Entry{}, &CheckpointError{Kind: MalformedEntry, Line: number, Text: clip(line)}
	}
	if epoch < 0 || start < 0 {
		return Entry{}, &CheckpointError{Kind: InvalidEntry, Line: number, Text: clip(line)}
	}
	return Entry{Epoch: types.LeaderEpoch(epoch), Start: types.Offset(start)}, nil
}

// parseNumber reads a decimal number of at most the given bits, as Java does:
// a sign and leading zeros are fine, underscores and other bases are not.
func parseNumber(s string, bits int) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, bits)
	return n, err == nil
}

// clip bounds a damaged line in an error message.
func clip(s string) string {
	const most = 60
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
