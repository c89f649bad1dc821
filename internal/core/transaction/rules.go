package transaction

// Rules are rules that the simulator switches off, to see that its checks find it.
type Rules struct {
	// MarkersFirst: markers are sent before their decision is in the log.
	MarkersFirst bool
	// InitKeepsEpoch: whoever begins anew goes on in the epoch of the one before (KIP-98).
	InitKeepsEpoch bool
	// ForgetDecided: a load leaves decisions alone that it finds not carried out.
	ForgetDecided bool
	// NoTimeouts: a transaction may be open for ever.
	NoTimeouts bool
}
