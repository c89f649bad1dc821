// Package e2e tests whole nodes with real clients over loopback.
package e2e

import (
	"testing"

	"go.uber.org/goleak"

	"tidemark/internal/await"
	"tidemark/test/e2e/harness"
)

// TestMain runs the tests, or is a node that one of them has started.
func TestMain(m *testing.M) {
	harness.RunProgram()
	await.NoLeaks(m,
		// sarama's metrics have one ticker for the process, which nothing ends.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
		// Members of the metadata quorum keep idle HTTP connections to each other for a while after their end.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"), goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"))
}
