// Package config holds every setting of a node in one struct, and where each
// came from.
//
// It owns the names (Kafka's server.properties names wherever Kafka has one),
// defaults, allowed ranges and the text forms; the topic configs with their
// broker-level synonyms; and the reader of Java properties files. Sources in
// rising order of precedence: default, file, `--set`/flag. A key that nobody
// knows is an error that names the nearest known one; a key that Kafka knows
// and that means nothing here is a warning, or an error where ignoring it
// would change what the operator asked for.
//
// It never opens anything but the files it is told to read, keeps no global
// state, and knows nothing of the log or the protocol: the broker converts
// Topic to what the log needs.
//
// Tests: f-tests for values and topic configs, a table of named properties
// files, a fuzz target for the properties reader, and a check that each key's
// default parses and lies in its own range.
package config
