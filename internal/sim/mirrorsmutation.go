package sim

import (
	"tidemark/internal/broker"
	"tidemark/internal/log"
	"tidemark/internal/metastore"
)

// mirrorsMutation is what a mutation switches off in the system of several clusters.
type mirrorsMutation struct {
	rules broker.MirrorRules
	log   log.Rules
	// change, if not nil, changes a transaction on its way to a cluster's store.
	change func(s *storeLink, txn metastore.Txn) metastore.Txn
	adjust func(*MirrorsOptions)
	// mute are invariants that aren't judged: they notice at once, and the harm is to be seen.
	mute []string
}
