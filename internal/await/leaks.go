package await

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// NoLeaks is a package's TestMain: it runs the tests, and fails those that have passed if
// goroutines of theirs are left.
func NoLeaks(m interface{ Run() int }, ignored ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := Leaks(ignored...); err != nil {
			fmt.Fprintf(os.Stderr, "all tests have passed: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Leaks waits until no goroutine is left but this one, and says which are if that takes too
// long. What has been closed may end a moment later; goleak alone looks for half a second,
// in which a busy machine doesn't get round to it.
func Leaks(ignored ...goleak.Option) error {
	return leaks(patience, func() error { return goleak.Find(ignored...) })
}

func leaks(limit time.Duration, find func() error) error {
	for end := time.Now().Add(limit); ; {
		if err := find(); err == nil || time.Now().After(end) {
			return err
		}
	}
}
