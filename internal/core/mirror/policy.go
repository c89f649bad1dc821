package mirror

import (
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// Policy is what a mirrored partition is told by its mirror's settings and its topic.
type Policy struct {
	// ClusterID and TopicID are ours; the topic id is the source's, kept (R26).
	ClusterID string
	TopicID   types.TopicID
	// Me is this broker; it is the whole ISR after a realign (R20).
	Me          types.BrokerID
	BrokerEpoch types.BrokerEpoch
	// EpochHeadroom is mirror.epoch.headroom (R21), 0 or more.
	EpochHeadroom int32
	// ContinueOverGaps is gap.policy=continue (R28).
	ContinueOverGaps bool
	// Compacted and DeleteRetention are the topic's cleanup.policy and
	// delete.retention.ms: a mirror away for longer says COMPACTION_GAP (R28).
	Compacted       bool
	DeleteRetention types.Millis
	// SeenEvery is how often changed source facts are written to the record, at
	// least; 0 never.
	SeenEvery types.Millis
	// Consented is the start id for which an operator's plan covers what the
	// adoption takes (R24); empty for none.
	Consented string
	// Rules switches rules off in tests.
	Rules Rules
}

// DefaultEpochHeadroom is mirror.epoch.headroom's default (R21).
const DefaultEpochHeadroom = 8

// DefaultPromotionStep is mirror.promotion.step's default (R23).
const DefaultPromotionStep = 65_536

// Rules names rules that a test switches off to see that its checks find it. The
// zero value has every rule on; nothing but tests sets it.
type Rules struct {
	NoRaise       bool // R21: batches above the local epoch are appended as they come
	NoProbe       bool // R26: the last batch is not compared
	NoRealign     bool // R20: the leader cuts without the transaction
	NoFirstCut    bool // R19
	FirstCut      timeline.Rules
	NoIdentity    bool // R26: ids are not compared
	NoEpochMemory bool // R26: a lower source epoch is believed
	NoGapCheck    bool // R28
	NoConsent     bool // R24: no plan is asked for
	NoRootConsent bool // R24: no plan is asked for a source without a common root
	NoPath        bool // R25: the source's mirror path is not looked at
	NoMirrorAhead bool // R27: a source that is a mirror and shorter counts as diverged
	NoGivenUp     bool // R28: what the adoption gave up counts as a gap
	NoRounds      bool // R20: a source that contradicts itself is followed for ever
	NoTakenOver   bool // R16: what a KIP-1279 source says makes no entry of the list
	// KeepsCompacted: a cut below what the own compaction has reached goes no further down (docs/adr/0027).
	KeepsCompacted bool
}
