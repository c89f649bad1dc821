package embed

import (
	"errors"
	"strings"
	"testing"
)

// TestOpenFault names a full disk as such: nobody may be told to move good metadata away for want of room.
func TestOpenFault(t *testing.T) {
	cause := errors.New("failed to create WAL")
	f := func(free int64, say, never string) {
		t.Helper()
		err := openFault("/data/metadata", free, cause)
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), never) {
			t.Errorf("%d bytes free: %v", free, err)
		}
	}
	f(8<<20, "8 MiB left", "--from-database")
	f(0, "make room", "--from-database")
	f(1<<40, "--from-database", "make room")
}
