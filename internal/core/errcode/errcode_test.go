package errcode

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// TestNames compares numbers and names with a client library's.
func TestNames(t *testing.T) {
	for c := UnknownServerError; c <= ControllerIDNotRegistered; c++ {
		want := "NONE"
		switch known := kerr.TypedErrorForCode(int16(c)); {
		case c == NotLeaderOrFollower:
			want = "NOT_LEADER_OR_FOLLOWER" // the library keeps the name that it had until Kafka 2.6
		case known != nil && known.Code == int16(c):
			want = known.Message
		case c != None:
			t.Errorf("the library knows no code %d", int16(c))
			continue
		}
		if c.String() != want {
			t.Errorf("code %d is called %s, want %s", int16(c), c, want)
		}
	}
	if want := int(ControllerIDNotRegistered-UnknownServerError) + 1; len(names) != want {
		t.Errorf("%d names of %d codes", len(names), want)
	}
	if got := Code(999).Error(); got != "error 999" {
		t.Errorf("a code that isn't Kafka's is called %q", got)
	}
}
