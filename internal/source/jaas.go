package source

import (
	"fmt"
	"strings"
)

// jaasLogin is what a sasl.jaas.config says.
type jaasLogin struct {
	module  string // class name of the login module
	options map[string]string
}

// parseJAAS reads the value of sasl.jaas.config (JAAS login configuration of
// one module): `module flag name="value" ...;`.
func parseJAAS(s string) (jaasLogin, error) {
	l := jaasLogin{options: map[string]string{}}
	words, err := jaasWords(s)
	if err != nil {
		return l, err
	}
	if len(words) < 2 {
		return l, fmt.Errorf(`want: org.apache.kafka.common.security.plain.PlainLoginModule required username="…" password="…";`)
	}
	l.module = words[0]
	switch strings.ToLower(words[1]) {
	case "required", "requisite", "sufficient", "optional":
	default:
		return l, fmt.Errorf("want a control flag (required) after the login module, found %q", words[1])
	}
	rest := words[2:]
	for len(rest) > 0 {
		if len(rest) < 3 || rest[1] != "=" {
			return l, fmt.Errorf("option %q wants a value: name=\"value\"", rest[0])
		}
		l.options[rest[0]] = rest[2]
		rest = rest[3:]
	}
	return l, nil
}

// jaasWords splits into names, quoted strings and "=", and wants the closing semicolon.
func jaasWords(s string) ([]string, error) {
	var words []string
	closed := false
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case strings.IndexByte(" \t\r\n", c) >= 0:
			i++
		case closed:
			return nil, fmt.Errorf("text after the closing semicolon; one login module is supported")
		case c == ';':
			closed = true
			i++
		case c == '=':
			words = append(words, "=")
			i++
		case c == '"' || c == '\'':
			word, n, err := jaasQuoted(s[i:])
			if err != nil {
				return nil, err
			}
			words = append(words, word)
			i += n
		default:
			j := i
			for j < len(s) && !strings.ContainsRune(" \t\r\n;=\"'", rune(s[j])) {
				j++
			}
			words = append(words, s[i:j])
			i = j
		}
	}
	if !closed {
		return nil, fmt.Errorf("the closing semicolon is missing")
	}
	return words, nil
}

func jaasQuoted(s string) (word string, n int, err error) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case s[i] == s[0]:
			return b.String(), i + 1, nil
		default:
			b.WriteByte(s[i])
		}
	}
	return "", 0, fmt.Errorf("a quote is not closed")
}
