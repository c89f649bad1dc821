package types

// Tail is the end of a log, by which two logs are compared that both end an epoch at the
// same offset: its last batch, and where the epoch of that one begins.
type Tail struct {
	// Base and Next are the batch's first offset and the one after its last, Epoch its leader epoch.
	Base, Next Offset
	Epoch      LeaderEpoch
	// Sum is the checksum that the batch carries: of all but its base offset and its leader epoch.
	Sum uint32
	// EpochStart is where the history has the epoch begin, NoOffset: not told.
	EpochStart Offset
	// Known: there is such a batch, and its bytes are those that were written.
	Known bool
}
