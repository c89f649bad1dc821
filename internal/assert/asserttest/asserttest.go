// Package asserttest has tests break assertions: a check that can't fail is no check.
package asserttest

import (
	"strings"
	"testing"

	"tidemark/internal/assert"
)

// Breaks runs f, which must break the assertion of this number and nothing else.
func Breaks(t *testing.T, number string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		x := recover()
		if broken, ok := x.(*assert.Error); !ok || !strings.HasPrefix(broken.Message, number+":") {
			t.Errorf("%s doesn't break: %v", number, x)
		}
	}()
	f()
}
