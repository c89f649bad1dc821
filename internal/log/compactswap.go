package log

import (
	"slices"
	"strings"

	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// finishSwaps brings the folder out of a compaction that a crash interrupted,
// and gives the names that are left:
//
//   - .cleaned files: the compaction had not begun to swap, or was renaming its
//     files to .swap from the last group down. They go, and with them the .swap
//     files at or above the lowest of them. The old segments are all there.
//   - .swap files alone: the new segments are complete. Old segments within them
//     go, then .swap goes from the names.
func (p *opening) finishSwaps(names []string) ([]string, error) {
	l := p.l
	lowest, any := lowestWith(names, cleanedSuffix)
	swaps := map[types.Offset]bool{}
	changed := false
	for _, name := range names {
		bare, isSwap := strings.CutSuffix(name, swapSuffix)
		base, suffix, ok := parseFileName(bare)
		switch {
		case strings.HasSuffix(name, cleanedSuffix), isSwap && any && base >= lowest:
			changed = true
			if err := l.fs.Remove(join(l.dir, name)); err != nil {
				return nil, err
			}
		case isSwap && ok && suffix == logSuffix:
			swaps[base] = true
		}
	}
	for base := range swaps {
		changed = true
		if err := p.finishSwap(names, base); err != nil {
			return nil, err
		}
		p.r.SwapsCompleted++
	}
	if !changed {
		return names, nil
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return nil, err
	}
	return l.fs.List(l.dir)
}

func lowestWith(names []string, suffix string) (lowest types.Offset, any bool) {
	for _, name := range names {
		bare, ok := strings.CutSuffix(name, suffix)
		base, _, isSegment := parseFileName(bare)
		if ok && isSegment && (!any || base < lowest) {
			lowest, any = base, true
		}
	}
	return lowest, any
}

// finishSwap completes one swap: the old segments that begin within the new
// one's offsets go, its own name's index files among them.
func (p *opening) finishSwap(names []string, base types.Offset) error {
	l := p.l
	name := join(l.dir, FileName(base, logSuffix)+swapSuffix)
	end, err := swapEnd(l.fs, name, base)
	if err != nil {
		return err
	}
	for _, old := range slices.Backward(names) {
		o, suffix, ok := parseFileName(old)
		if ok && suffix == logSuffix && o >= base && (o < end || o == base) {
			if err := removeFiles(l.fs, l.dir, o); err != nil {
				return err
			}
		}
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return err
	}
	return l.renameFiles(base, swapSuffix, "")
}

// swapEnd is the offset after the last batch of a .swap file, which was synced
// before it got that name.
func swapEnd(fsys vfs.FS, name string, base types.Offset) (types.Offset, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	end := base
	w := walk(f, 0, size)
	defer w.done()
	for w.next() {
		end = w.h.NextOffset()
	}
	if w.err != nil && !isReadError(w.err) {
		return 0, &CorruptError{File: name, Pos: types.Position(w.pos), Reason: "no batch in a compacted segment", Err: w.err}
	}
	return end, w.err
}
