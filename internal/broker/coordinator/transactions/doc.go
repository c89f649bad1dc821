// Package transactions drives the transaction coordinator: it carries out what
// internal/core/transaction decides, one goroutine for each partition of
// __transaction_state that this node leads (KIP-98, KIP-890).
//
// It owns that topic (its creation, its record format, which is Kafka's own), the
// loading of a partition's ids when this node becomes its leader, the requests that
// wait, and the markers on their way to the leaders of a transaction's partitions
// (markers.go): one request at a time to a broker, repeated until every partition
// has its marker or is gone. For the leaders of partitions it asks a transaction's
// coordinator, wherever it is (enlist.go).
//
// It never decides anything about a transaction. A write of unknown outcome ends a
// loop's table: its ids are loaded anew, and what the log says is what was decided.
//
// Tested here by goldens of the record bytes against kmsg and of the couriers' markers.
// Whole lives, restarts and failed writes are the simulator's (profile cluster-txn), on
// the production node, and test/e2e's (TestTransactions...) with real clients.
package transactions
