package sim

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
	"standby: clean start", "standby: log dir offline", "standby: operator restarts it for a partition that didn't open", "standby: registration lapsed",
	"store: late transaction applied", "store: outcome unknown", "store: transaction refused", "store: unknown outcome had happened",
	"store: watch compacted", "store: watch lags",
}
