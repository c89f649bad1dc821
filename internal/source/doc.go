// Package source is the client to a source cluster: it speaks Kafka's protocol
// to the brokers that a mirror copies from.
//
// It owns the client properties file (Kafka's own names), connections, TLS,
// SASL, the choice of API versions, Kafka's fetch sessions (KIP-227) and the
// sentences in which a refusal is told to the operator. Record bytes are handed
// out as parts of the response they came in, never decoded and never copied; the
// memory that answers take is counted against a Budget.
//
// It never writes to the source, never decides what a difference between two
// logs means (core/mirror does) and never retries by itself beyond choosing
// another bootstrap address: back-off is the caller's, who knows what waits.
// A source is not trusted: a lying length, count, correlation id or offset is an
// ErrProtocol and closes the connection.
//
// Tests run against kfake, against hand-made servers that lie, and with
// certificates made in the test; decoding is fuzzed.
package source
