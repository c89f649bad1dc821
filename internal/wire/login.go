package wire

import (
	"context"
	"time"
)

// Login is the log-in of a connection by SASL (KIP-43, KIP-152): SaslHandshake and
// SaslAuthenticate drive it, the connection looks whether it is done.
type Login interface {
	// Mechanisms are those that the connection takes.
	Mechanisms() []string
	// Begin chooses one. Its error, an *Error, ends the log-in.
	Begin(mechanism string) error
	// Step takes the client's message and gives the server's. Its error, an *Error,
	// ends the log-in, perhaps after a while.
	Step(ctx context.Context, message []byte) ([]byte, error)
	// Principal is whose the connection is; false until the log-in is done, and once it has failed.
	Principal() (string, bool)
	// Attempt is what the client said in the log-in under way, or ended last: a mechanism
	// that is taken here, or "", and its user, or "" before it was named. It proves
	// nothing. For the goroutine that steps the log-in alone.
	Attempt() (mechanism, user string)
	// Failed: nothing more is to be had; the connection ends.
	Failed() bool
	// Lifetime is how long a log-in lasts; 0: as long as the connection (KIP-368).
	Lifetime() time.Duration
	// Expired reports whether it has lasted that long without being renewed.
	Expired() bool
}
