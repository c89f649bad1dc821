// Package auth finds out who a client is: the server's side of SASL log-ins, and
// the principal that a TLS certificate stands for.
//
// It owns the order of a log-in (handshake, messages, done or failed for ever), the
// mechanisms SCRAM-SHA-256, SCRAM-SHA-512 (RFC 5802, RFC 7677) and PLAIN (RFC 4616), which is
// taken over TLS alone, and how long a log-in lasts (KIP-368). It keeps no
// credentials: whoever makes a Verifier says where they are. What somebody may do
// is internal/core/acl's business, frames and connections internal/net's.
//
// An attacker learns nothing from a refusal: an unknown user goes through the same
// steps as a wrong password and gets the same answer.
//
// Tested by conversations with a client's side, whole and broken ones, and over real
// connections in test/e2e.
package auth
