//go:build linux

package switchboard

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ledger is written line by line: what happened, its argument, the file's name.
// Each line is one write to a file opened for appending, so that a killed
// process leaves whole lines, and none that it had written is missing.
type ledger struct{ f *os.File }

func openLedger(dir string) (*ledger, error) {
	name := filepath.Join(dir, ledgerFile)
	if err := shorten(name); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &ledger{f: f}, nil
}

// ledgerBytesMax is from what size on a ledger is written anew, with one line for
// each file, when a process opens it: in a run of hours it would grow without bound.
const ledgerBytesMax = 1 << 20

func shorten(name string) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.Size() <= ledgerBytesMax {
		return err
	}
	sizes, err := syncedSizes(f)
	if err != nil {
		return err
	}
	var all []byte
	for _, n := range slices.Sorted(maps.Keys(sizes)) {
		all = fmt.Appendf(all, "synced\t%d\t%s\n", sizes[n], n)
	}
	if err := os.WriteFile(name+".new", all, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

func (l *ledger) write(what, arg, name string) {
	if _, err := l.f.WriteString(what + "\t" + arg + "\t" + name + "\n"); err != nil {
		panic(fmt.Sprintf("the ledger of a test build can't be written: %v", err)) // a test that goes on would judge wrongly
	}
}

func (l *ledger) writeSize(what string, size int64, name string) {
	l.write(what, strconv.FormatInt(size, 10), name)
}

// syncedSizes replays a ledger: how far each file is durable. A file without an entry is, as a whole.
func syncedSizes(r io.Reader) (map[string]int64, error) {
	sizes := map[string]*int64{} // two names of one file share theirs: a sync by one makes the other durable
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		parts := strings.SplitN(lines.Text(), "\t", 3)
		if len(parts) != 3 {
			return nil, fmt.Errorf("ledger: %q", lines.Text())
		}
		arg, name := parts[1], parts[2]
		switch parts[0] {
		case "removed":
			maps.DeleteFunc(sizes, func(n string, _ *int64) bool { return within(n, name) })
			continue
		case "renamed":
			maps.DeleteFunc(sizes, func(n string, _ *int64) bool { return within(n, name) })
			for n, size := range maps.Clone(sizes) {
				if within(n, arg) {
					delete(sizes, n)
					sizes[name+strings.TrimPrefix(n, arg)] = size
				}
			}
			continue
		case "linked":
			if size, ok := sizes[arg]; ok {
				sizes[name] = size
			}
			continue
		}
		size, err := strconv.ParseInt(arg, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("ledger: %q: %w", lines.Text(), err)
		}
		before, ok := sizes[name]
		switch {
		case parts[0] == "truncated" && ok:
			*before = min(size, *before)
		case parts[0] == "truncated": // durable as a whole
		case parts[0] == "synced" && ok:
			*before = size
		default:
			sizes[name] = &size
		}
	}
	out := make(map[string]int64, len(sizes))
	for name, size := range sizes {
		out[name] = *size
	}
	return out, lines.Err()
}

// within reports whether a name is that of a file or folder, or lies in it.
func within(name, of string) bool {
	rest, ok := strings.CutPrefix(name, of)
	return ok && (rest == "" || rest[0] == '/')
}

// Loss is what a power loss took from one file.
type Loss struct {
	Name     string
	Size     int64 // before
	KeptUpTo int64 // bytes that are what was written; from there the file ends, or holds zeros
}

// PowerLoss takes from the files of a node that has ended what was never synced.
// Of each file's unsynced end r chooses how much is lost, and whether the file is
// shorter then or holds zeros there: a file system may leave either. What is left
// counts as synced. The node's files must be where they were, or below Root.
func (b *Board) PowerLoss(r *rand.Rand) ([]Loss, error) {
	name := filepath.Join(b.dir, ledgerFile)
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	sizes, err := syncedSizes(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	var losses []Loss
	for _, n := range slices.Sorted(maps.Keys(sizes)) {
		loss, err := lose(b.Root+n, sizes[n], r)
		if err != nil {
			return losses, err
		}
		if loss.Size > loss.KeptUpTo {
			losses = append(losses, loss)
		}
	}
	return losses, os.Truncate(name, 0)
}

// lose takes away what a file holds above its synced size, or a part of that.
func lose(name string, synced int64, r *rand.Rand) (Loss, error) {
	st, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Loss{}, nil
	}
	if err != nil || st.IsDir() || st.Size() <= synced {
		return Loss{}, err
	}
	loss := Loss{Name: name, Size: st.Size(), KeptUpTo: synced}
	how := r.IntN(3)
	if how > 0 {
		loss.KeptUpTo += r.Int64N(st.Size() - synced) // some blocks had been written out by themselves
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return loss, err
	}
	if how == 2 {
		_, err = f.WriteAt(make([]byte, loss.Size-loss.KeptUpTo), loss.KeptUpTo)
	} else {
		err = f.Truncate(loss.KeptUpTo)
	}
	return loss, errors.Join(err, f.Close())
}
