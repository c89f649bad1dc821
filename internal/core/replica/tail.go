package replica

import "tidemark/internal/core/types"

// TailDiverges judges a follower's fetch that agrees by its epochs: asked is the end of its
// log as it told it, own what the leader holds up to the same offset. Epochs tell histories
// apart only while each was given once. Where the metadata was put back and elected anew
// one epoch may stand for two, so that the last batches are compared too, as R26 has a
// mirror do. Where they differ the whole epoch does, as far as anybody knows: the answer
// is the one to an asker whose last epoch isn't in the history at all (R5).
func TailDiverges(leader *Log, from types.Offset, asked, own types.Tail) (EpochEnd, bool) {
	if !asked.Known || !own.Known {
		return EpochEnd{}, false
	}
	same := own.Base == asked.Base && own.Next == from && own.Epoch == asked.Epoch && own.Sum == asked.Sum
	if asked.EpochStart >= 0 && own.EpochStart >= 0 {
		same = same && asked.EpochStart == own.EpochStart
	}
	if same {
		return EpochEnd{}, false
	}
	entry, ok := leader.History.Entry(asked.Epoch)
	if !ok {
		return EpochEnd{}, false // the history says so itself
	}
	if before, ok := leader.History.Previous(entry.Epoch); ok {
		return EpochEnd{Epoch: before.Epoch, End: entry.Start}, true
	}
	return EpochEnd{Epoch: max(entry.Epoch-1, 0), End: entry.Start}, true
}
