// Package api answers Kafka requests: one file per API key, named by it.
//
// It owns the meaning of each request (which checks in which order, which
// error code, which field in which version), fetch sessions, and the table of
// what is advertised. It decides nothing about partitions, topics or groups:
// it calls the interfaces of deps.go, which the broker implements, and turns
// what they say into answers. A handler takes one metadata image per request
// (R9) and keeps nothing between requests but fetch sessions.
//
// Where there is an authorizer, a rule for each API (rules_*.go) takes out of a
// request what the client may not ask for, before its handler sees it.
//
// Each file opens with the behaviour and the versions; skipped.md lists what
// is left out, per key. The table of handlers (table.go, and table_groups.go
// for the group APIs) is explicit: an API that isn't in it isn't advertised,
// and a request for it closes the connection, as in Kafka.
//
// Tested by tables per key against fakes of deps.go, by hex goldens, by a
// round trip through kmsg, and with real clients in test/e2e.
package api
