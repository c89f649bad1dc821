package net

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadToken(t *testing.T) {
	for _, c := range []struct {
		name, text string
		mode       os.FileMode
		want, fail string
	}{
		{name: "one line", text: "0123456789abcdef\n", mode: 0o600, want: "0123456789abcdef"},
		{name: "for a group", text: "0123456789abcdef", mode: 0o640, want: "0123456789abcdef"},
		{name: "open to everyone", text: "0123456789abcdef", mode: 0o644, fail: "chmod 600"},
		{name: "short", text: "0123456789abcde\n", mode: 0o600, fail: "15 characters"},
		{name: "empty", mode: 0o600, fail: "0 characters"},
		{name: "long", text: strings.Repeat("x", 4097), mode: 0o600, fail: "4097 characters"},
		{name: "two lines", text: "0123456789abcdef\n0123456789abcdef\n", mode: 0o600, fail: "one line"},
		{name: "not ASCII", text: "0123456789abcdefä", mode: 0o600, fail: "printable ASCII"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(file, []byte(c.text), c.mode); err != nil {
				t.Fatal(err)
			}
			got, err := ReadToken(file)
			switch {
			case c.fail == "" && (err != nil || got != c.want):
				t.Errorf("got %q, %v", got, err)
			case c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail) || !strings.Contains(err.Error(), file)):
				t.Errorf("want an error that names the file and says %q, got %v", c.fail, err)
			}
		})
	}
	if _, err := ReadToken(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that isn't there has a token")
	}
}
