package config

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestParseProperties(t *testing.T) {
	f := func(name, text string, want ...Property) {
		t.Helper()
		got, err := ParseProperties("f", text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %+v, %v; want %+v", name, got, err, want)
		}
	}
	f("empty", "")
	f("separators", "a=1\nb:2\nc 3\nd\t=\t4\ne = : 5\nf", Property{"a", "1", 1}, Property{"b", "2", 2}, Property{"c", "3", 3}, Property{"d", "4", 4}, Property{"e", ": 5", 5}, Property{"f", "", 6})
	f("comments and blanks", " # x\n!y=1\n\n  \t\na=#1", Property{"a", "#1", 5})
	f("line ends", "a=1\r\nb=2\rc=3", Property{"a", "1", 1}, Property{"b", "2", 2}, Property{"c", "3", 3})
	f("continuation", "a=1\\\n   2\\\r\n\t3\nb=4", Property{"a", "123", 1}, Property{"b", "4", 4})
	f("even backslashes end the line", "a=1\\\\\nb=2", Property{"a", `1\`, 1}, Property{"b", "2", 2})
	f("comment sign in a continuation is text", "a=1\\\n#2", Property{"a", "1#2", 1})
	f("continuation at the end of the file", "a=1\\", Property{"a", "1", 1})
	f("escapes", `a\=b\:c\ d=\t\n\r\f\q`, Property{"a=b:c d", "\t\n\r\fq", 1})
	f("unicode", "a=\\u00e9\\u20AC\\uD83D\\uDE00é", Property{"a", "é€😀é", 1})
	f("value keeps its trailing blanks", "a=1  ", Property{"a", "1  ", 1})
	f("key twice", "a=1\na=2", Property{"a", "1", 1}, Property{"a", "2", 2})
}

func TestParsePropertiesFailure(t *testing.T) {
	f := func(text string, line int) {
		t.Helper()
		_, err := ParseProperties("f.properties", text)
		var e *PropertiesError
		if !errors.As(err, &e) || e.Line != line || !strings.Contains(err.Error(), "f.properties:") {
			t.Errorf("%q: %v, want a fault in line %d", text, err, line)
		}
	}
	f("a=\\u12", 1)
	f("\nb=\\uzzzz", 2)
	f("c\\u+123=1", 1)
	f("a=1\n=1", 2)
	f("a=1\n\nb=\xfe\xed", 3)
}

func FuzzParseProperties(f *testing.F) {
	f.Add("a=1\nb:2\\\n  3\n#c\n")
	f.Add("\\u0041\\uD83D=\\")
	f.Fuzz(func(t *testing.T, text string) {
		props, err := ParseProperties("f", text)
		if err != nil {
			return
		}
		lines := 1 + strings.Count(text, "\n") + strings.Count(text, "\r")
		last := 0
		for _, p := range props {
			if p.Line <= last || p.Line > lines {
				t.Errorf("line %d after %d of %d", p.Line, last, lines)
			}
			last = p.Line
		}
	})
}

func TestNearest(t *testing.T) {
	names := []string{"num.partitions", "log.dirs", "log.dir", "node.id"}
	f := func(s, want string) {
		t.Helper()
		if got := Nearest(s, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", s, got, want)
		}
	}
	f("num.partition", "num.partitions")
	f("nmu.partitions", "num.partitions")
	f("log.dirss", "log.dirs")
	f("node_id", "node.id")
	f("completely.different.thing", "")
	f("", "")
}
