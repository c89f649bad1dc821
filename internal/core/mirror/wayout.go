package mirror

// WayOut is what an operator can do about a reason, a sentence with NAME for the
// mirror and T for the topic; "" where nothing is to be done, since it passes by itself.
func (r Reason) WayOut() string {
	switch r {
	case SourceTopicGone:
		return "the topic was deleted at the source: `mirror failover NAME --topic T` keeps this copy, writable; `topic delete T` then removes it"
	case TopicIDMismatch:
		return "`mirror failover NAME --topic T` keeps this copy, writable; `topic delete T` then makes room, and the source's new topic is mirrored"
	case OtherCluster:
		return "`mirror alter NAME --source` points at the cluster that was copied, `mirror failover NAME` ends the mirror; a mirror of the other cluster has another name"
	case SourceRewritten, SourceEpochRegressed:
		return "the source is older than what was copied, or not what it was: put the source right and `mirror resume NAME`; or `mirror failover NAME --topic T` keeps this copy, writable, and `topic delete T` then has the source's copied anew"
	case SourceInconsistent:
		return "nothing is cut while the source contradicts itself; when its leader has changed, or `mirror resume NAME` says so, it is asked again; `mirror failover NAME --topic T` keeps this copy"
	case SourceGap:
		return "the source has dropped records that are missing here: `mirror accept-gap NAME --topic T` goes on behind them"
	case UnrelatedLogs, PlanRequired:
		return "`mirror preview NAME --topic T` shows what would be cut here and gives a plan, `mirror failback NAME --plan PLAN` does it; the vault keeps what is cut"
	case AheadOfSource:
		return "this cluster was promoted and the source wasn't told: make the source a mirror of this cluster, or `mirror preview NAME --topic T --rollback` shows how to give the promotion up"
	case MirrorLoop:
		return "`mirror alter NAME --exclude` leaves the topic out here; or fail it over at the source"
	case VaultFull:
		return "`vault purge` makes room, or raise vault.max.bytes"
	case TimelineUnknown:
		return "the partition's file timeline-checkpoint is missing or can't be read: put it back from a copy of the folder; or stop the node and move the folder away, and the partition is copied anew"
	case MetadataWentBack:
		return "the metadata is older than the log: put the newer back; or stop all nodes and run `cluster restore --in-place`"
	case SourceTooOld:
		return "sources are Apache Kafka 2.1 and later"
	case SourceAuth:
		return "`mirror alter NAME --source-config FILE` replaces the source's properties"
	case DiskFull:
		return "make room on the disk: it goes on by itself"
	}
	return ""
}
