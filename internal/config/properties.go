package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A Property is one entry of a Java properties text.
type Property struct {
	Key, Value string
	Line       int // line where the entry begins, from 1
}

// A PropertiesError is a text that java.util.Properties would refuse too.
type PropertiesError struct {
	File    string
	Line    int
	Problem string
}

// Error gives file:line and the problem.
func (e *PropertiesError) Error() string {
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Problem)
}

// propertiesMaxBytes bounds what ReadProperties takes: a settings file, not a data file.
const propertiesMaxBytes = 4 << 20

// ReadProperties reads a properties file from disk.
func ReadProperties(file string) ([]Property, error) {
	st, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: no such file", file)
	case err != nil:
		return nil, err
	case st.IsDir():
		return nil, fmt.Errorf("%s: is a folder, not a properties file", file)
	case st.Size() > propertiesMaxBytes:
		return nil, fmt.Errorf("%s: %d bytes, more than a properties file may have (%d)", file, st.Size(), propertiesMaxBytes)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return ParseProperties(file, string(data))
}

// ParseProperties reads a text in the form of java.util.Properties.load:
// comments with # or !, `=`, `:` or white space between key and value, lines
// continued by a trailing backslash, \t \n \r \f and \uXXXX escapes (surrogate
// pairs included). Bytes above 127 are taken as UTF-8. Entries come in the
// order of the text; a key given twice appears twice. Unlike Java, an entry
// without a key is an error, and so is text that isn't UTF-8.
func ParseProperties(file, text string) ([]Property, error) {
	if i := firstInvalid(text); i >= 0 {
		return nil, &PropertiesError{File: file, Line: 1 + strings.Count(text[:i], "\n"), Problem: "not UTF-8 text; is it a key store?"}
	}
	var out []Property
	for l := (lineReader{text: text}); ; {
		line, number, ok := l.next()
		if !ok {
			return out, nil
		}
		k, v := splitEntry(line)
		p := Property{Line: number}
		var err error
		if p.Key, err = unescape(k); err == nil {
			p.Value, err = unescape(v)
		}
		if err == nil && p.Key == "" {
			err = errNoKey
		}
		if err != nil {
			return nil, &PropertiesError{File: file, Line: number, Problem: err.Error()}
		}
		out = append(out, p)
	}
}

// lineReader yields logical lines: continuations joined, comments and blanks dropped.
type lineReader struct {
	text string
	line int // natural lines consumed
}

func (l *lineReader) natural() (string, bool) {
	if l.text == "" {
		return "", false
	}
	l.line++
	i := strings.IndexAny(l.text, "\r\n")
	if i < 0 {
		s := l.text
		l.text = ""
		return s, true
	}
	s, rest := l.text[:i], l.text[i+1:]
	if l.text[i] == '\r' && strings.HasPrefix(rest, "\n") {
		rest = rest[1:]
	}
	l.text = rest
	return s, true
}

func (l *lineReader) next() (logical string, number int, ok bool) {
	for {
		s, ok := l.natural()
		if !ok {
			return "", 0, false
		}
		s = strings.TrimLeft(s, " \t\f")
		if s == "" || s[0] == '#' || s[0] == '!' {
			continue
		}
		number = l.line
		var b strings.Builder
		for isContinued(s) {
			b.WriteString(s[:len(s)-1])
			if s, ok = l.natural(); !ok {
				return b.String(), number, true
			}
			s = strings.TrimLeft(s, " \t\f")
		}
		b.WriteString(s)
		return b.String(), number, true
	}
}

// isContinued reports whether a line ends with an odd number of backslashes.
func isContinued(s string) bool {
	n := 0
	for n < len(s) && s[len(s)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// splitEntry finds the end of the key: the first separator that no backslash precedes.
func splitEntry(s string) (k, v string) {
	i := 0
	for i < len(s) && !strings.ContainsRune("=: \t\f", rune(s[i])) {
		if s[i] == '\\' {
			i++
		}
		i++
	}
	i = min(i, len(s))
	k, v = s[:i], strings.TrimLeft(s[i:], " \t\f")
	if v != "" && (v[0] == '=' || v[0] == ':') {
		v = strings.TrimLeft(v[1:], " \t\f")
	}
	return k, v
}

var (
	errUnicodeEscape = errors.New(`malformed \uXXXX escape`)
	errNoKey         = errors.New("no key before the separator")
)

// firstInvalid is the position of the first byte that isn't UTF-8, or -1.
func firstInvalid(text string) int {
	if utf8.ValidString(text) {
		return -1
	}
	for i, r := range text {
		if r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD") {
			return i
		}
	}
	return -1
}

func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	var units []uint16 // \u escapes in a row, decoded together for surrogate pairs
	flush := func() {
		for _, r := range utf16.Decode(units) {
			b.WriteRune(r)
		}
		units = units[:0]
	}
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			flush()
			if s[i] != '\\' {
				b.WriteByte(s[i])
			}
			continue
		}
		i++
		if s[i] == 'u' {
			if i+5 > len(s) {
				return "", errUnicodeEscape
			}
			n, err := strconv.ParseUint(s[i+1:i+5], 16, 16)
			if err != nil {
				return "", errUnicodeEscape
			}
			units = append(units, uint16(n))
			i += 4
			continue
		}
		flush()
		b.WriteByte(escapedByte(s[i]))
	}
	flush()
	return b.String(), nil
}

func escapedByte(c byte) byte {
	switch c {
	case 't':
		return '\t'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 'f':
		return '\f'
	default:
		return c
	}
}
