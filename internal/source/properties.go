package source

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Property is one entry of a properties file, with the line it began on.
type Property struct {
	Key, Value string
	// Line counts from 1; 0 for a value that came from elsewhere than a file.
	Line int
}

// LoadProperties reads a Java properties file (the format of Kafka's
// --command-config files). A key that appears twice keeps the last value, as in Java.
func LoadProperties(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, &Error{Kind: ErrConfig, Sentence: "can't read the source properties file", Cause: err}
	}
	props, err := ParseProperties(data)
	if err != nil {
		return nil, &Error{Kind: ErrConfig, Op: path, Sentence: "not a properties file", Cause: err}
	}
	m := make(map[string]string, len(props))
	for _, p := range props {
		m[p.Key] = p.Value
	}
	return m, nil
}

// ParseProperties reads the text of a Java properties file: comments with # or
// !, = or : or blanks between key and value, a trailing backslash joins lines,
// \t \n \r \f \uXXXX and \ before any other character. Text is UTF-8.
func ParseProperties(data []byte) ([]Property, error) {
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("the file is not UTF-8 text (is it a key store?)")
	}
	var props []Property
	sc := bufio.NewScanner(bytes.NewReader(data))
	sc.Buffer(nil, len(data)+1)
	line, begun := 0, 0
	logical, joined := "", false
	for sc.Scan() {
		line++
		text := strings.TrimLeft(sc.Text(), " \t\f")
		if !joined {
			begun = line
			if text == "" || text[0] == '#' || text[0] == '!' {
				continue
			}
		}
		logical += text
		if joined = endsInOddBackslashes(text); joined {
			logical = logical[:len(logical)-1]
			continue
		}
		p, err := parseProperty(logical)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", begun, err)
		}
		p.Line = begun
		props = append(props, p)
		logical = ""
	}
	if logical != "" {
		p, err := parseProperty(logical)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", begun, err)
		}
		p.Line = begun
		props = append(props, p)
	}
	return props, sc.Err()
}

func endsInOddBackslashes(s string) bool {
	n := 0
	for n < len(s) && s[len(s)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// parseProperty splits one logical line at the first separator that no backslash precedes.
func parseProperty(s string) (Property, error) {
	i := 0
	for i < len(s) && !strings.ContainsRune("=: \t\f", rune(s[i])) {
		if s[i] == '\\' {
			i++
		}
		i++
	}
	i = min(i, len(s))
	key := s[:i]
	rest := strings.TrimLeft(s[i:], " \t\f")
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = strings.TrimLeft(rest[1:], " \t\f")
	}
	var p Property
	var err error
	if p.Key, err = unescapeProperty(key); err != nil {
		return p, err
	}
	if p.Value, err = unescapeProperty(rest); err != nil {
		return p, err
	}
	if p.Key == "" {
		return p, fmt.Errorf("no key before the separator")
	}
	return p, nil
}

func unescapeProperty(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			if i+5 > len(s) {
				return "", fmt.Errorf(`\u needs four hexadecimal digits`)
			}
			v, err := strconv.ParseUint(s[i+1:i+5], 16, 16)
			if err != nil {
				return "", fmt.Errorf(`\u needs four hexadecimal digits, found %q`, s[i+1:i+5])
			}
			b.WriteRune(rune(v))
			i += 4
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), nil
}
