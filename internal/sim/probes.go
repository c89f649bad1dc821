package sim

import (
	"slices"
	"strings"

	"tidemark/internal/probe"
)

// KnownProbesOf are the rare branches that a long search of these profiles must
// reach: of the simulator's own, and of the product's (package probe).
func KnownProbesOf(names ...string) []string {
	var out []string
	add := func(known []string, ofMirrors bool) {
		out = append(out, known...)
		for _, name := range probe.Names() {
			if strings.HasPrefix(name, "mirror: ") == ofMirrors {
				out = append(out, codeProbe+name)
			}
		}
	}
	for _, p := range names {
		switch p {
		case "cluster-txn":
			out = append(out, knownTxnProbes...)
		case "cluster-txn-deletes":
			out = append(append(out, knownTxnProbes...), "transaction: a late batch is answered TRANSACTION_ABORTABLE", "transaction: a reader's position was deleted")
		case "cluster-txn-compacted":
			out = append(append(out, knownTxnProbes...), "compaction: transactions are judged for their keys")
		case "cluster-txn-offsets", "cluster-txn-unclean":
			out = append(append(out, knownTxnProbes...), knownTxnOffsetProbes...)
		case "mirrors-drills":
			out = append(out, knownDrillProbes...)
		case "mirrors-txn":
			out = append(out, knownCutProbes...)
		case "mirrors-switch-txn":
			out = append(out, knownCrossingProbes...)
		}
		if _, isCluster := clusterProfiles[p]; isCluster {
			add(knownClusterProbes, false)
		} else if _, isMirror := profiles[p]; isMirror {
			add(KnownProbes, true)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Never gives the known probes that were not reached.
func Never(reached map[string]int, known []string) []string {
	return slices.DeleteFunc(slices.Clone(known), func(name string) bool { return reached[name] > 0 })
}

// knownClusterProbes are those of the system of brokers. What a broker says is a
// line of its log: the branch that writes it was reached.
var knownClusterProbes = []string{
	"broker: log dir offline", "broker: slow shard", "broker: starved task",
	"broker says: ISR change proposed", "broker says: an ISR change may have happened or not; waiting for the record",
	"broker says: fetch from a leader failed", "broker says: fetching from a leader again", "broker says: leaders could not be moved before the shutdown",
	"broker says: leaders moved", "broker says: log cut to the leader's", "broker says: log dir goes offline", "broker says: log recovered",
	"broker says: partition can't be served", "broker says: partition can't follow its leader; trying again",
	"broker says: the registration can't be renewed", "broker says: the registration has lapsed; registering anew", "broker says: this broker is the controller",
	"broker says: unclean election: records may be lost", "broker says: folder of a partition that isn't this node's any more was set aside",
	"consumer: truncated",
	"disk: crash before a create", "disk: crash before a mkdir", "disk: crash before a remove", "disk: crash before a rename", "disk: crash before a sync",
	"disk: crash before a sync folder", "disk: crash before a truncate", "disk: crash before a write", "disk: full", "disk: power lost", "disk: process killed",
	"election: after a restore", "follower: log begins anew above its end", "follower: log start follows the leader's",
	"member: coordinator loads", "member: illegal generation", "member: out of range", "member: timed out",
	"operator: metadata recovered in place", "operator: metadata restored from a file", "operator: records deleted on every in-sync replica",
	"restore: a node starts that knew nothing newer", "restore: a node starts again on metadata that it found when it knew nothing newer", "vault: full, uncommitted records dropped",
	"election: unclean", "end: replicas are equal", "follower: divergence", "network: message lost", "network: request timed out",
	"operator: topic made again", "operator: unclean election after the faults", "producer: begins anew", "producer: timed out",
	"producer: NOT_ENOUGH_REPLICAS", "producer: KAFKA_STORAGE_ERROR",
	"store: late transaction applied", "store: outcome unknown", "store: watch compacted", "store: watch lags",
}

// knownTxnProbes are those of clients' transactions.
var knownTxnProbes = []string{
	"broker says: a transaction's marker is older than its producer's batches", "broker says: transaction coordinator loaded its ids",
	"broker says: transaction was open for too long and is aborted",
	"end: a transaction is aborted", "end: a transaction is committed", "end: a transaction is open",
	"transaction: a batch of unknown fate", "transaction: coordinator loads", "transaction: request timed out",
	"transaction: the stable offset stands below the mark", "transaction: waits for the one before",
	"transaction: to be aborted: INVALID_TXN_STATE",
}

// knownTxnOffsetProbes are those of offsets in transactions.
var knownTxnOffsetProbes = []string{"transaction: an offset isn't stable yet", "transaction: an offset of unknown fate"}

// knownDrillProbes are those of drills.
var knownDrillProbes = []string{
	"action: drill", "action: drill-delete", "action: drill-write", "broker says: fork of a drill that came to nothing is removed",
	"drill: a fork is there", "verb: drill done", "verb: drill-delete done",
}

// knownCutProbes are those of failovers at a consistent cut.
var knownCutProbes = []string{
	"action: failover-consistent", "promotion: at a consistent cut below the log end", "promotion: judged for its transactions",
}

// knownCrossingProbes are those of transactions that go through switchovers.
var knownCrossingProbes = []string{
	"action: txn-dies", "broker says: transaction is aborted: partitions of it are closed for a switchover",
	"end: a transaction is aborted", "end: a transaction is committed", "end: a transaction is open",
	"switchover: a marker passes the fence", "switchover: judged for its transactions", "switchover: ordered", "switchover: taken back",
}

// KnownProbes are the rare branches that a long search must reach. One that it
// never reaches is a finding: either the simulator can't get there, or nobody can.
var KnownProbes = []string{
	"client: write taken by the promoted standby",
	"disk: crash before a create", "disk: crash before a link", "disk: crash before a mkdir", "disk: crash before a remove",
	"disk: crash before a rename", "disk: crash before a sync", "disk: crash before a sync folder", "disk: crash before a truncate",
	"disk: crash before a write", "disk: full", "disk: power lost", "disk: process killed",
	"end: mirror equals its source", "end: mirror stays FAILED, SOURCE_GAP", "end: mirror stays FAILED, SOURCE_REWRITTEN",
	"end: mirror stays FAILED, TOPIC_ID_MISMATCH",
	"failover: late retry", "failover: promoted", "failover: tried again",
	"mirror: DISK_FULL", "mirror: LOG_OFFLINE", "mirror: SOURCE_CORRUPT", "mirror: SOURCE_EPOCH_REGRESSED", "mirror: SOURCE_GAP", "mirror: SOURCE_INCONSISTENT",
	"mirror: SOURCE_LEADER_MOVED", "mirror: SOURCE_REWRITTEN", "mirror: SOURCE_UNREACHABLE", "mirror: TOPIC_ID_MISMATCH", "mirror: VAULT_FULL",
	"mirror: asks to vouch", "mirror: divergence", "mirror: fenced", "mirror: unknown epoch", "mirror: late answer",
	"mirror: proposes adoption", "mirror: proposes failure", "mirror: proposes mirroring", "mirror: proposes raise", "mirror: proposes realign",
	"mirror: proposes seen",
	"mirror: tells ADOPTED", "mirror: tells EPOCH_FENCING", "mirror: tells FAILED", "mirror: tells GAP_ACCEPTED", "mirror: tells LOG_RESET",
	"mirror: tells REALIGNED", "mirror: tells RECOVERED", "mirror: tells SOURCE_UNREACHABLE", "mirror: tells COMPACTION_GAP",
	"network: message lost", "network: message twice", "network: request timed out",
	"source: contradicts its batches", "source: look at a deposed leader", "source: rewritten", "source: topic made again", "source: unclean election", "source: unsynced tail lost",
	"standby: clean start", "standby: log dir offline", "standby: registration lapsed",
	"store: late transaction applied", "store: outcome unknown", "store: transaction refused", "store: unknown outcome had happened",
	"store: watch compacted", "store: watch lags",
}
