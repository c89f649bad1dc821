package mirror

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// VerifyReport is what a comparison leaves for whoever audits: a file of its own, as JSON and as text.
type VerifyReport struct {
	// Format is the version of this form, 1.
	Format    int    `json:"format"`
	Software  string `json:"software"`
	ClusterID string `json:"clusterId"`
	// Node is the broker that compared.
	Node            types.BrokerID `json:"node"`
	SourceClusterID string         `json:"sourceClusterId"`
	Source          []string       `json:"source"` // addresses
	// Began and Ended are milliseconds since 1970, by the node's clock.
	Began types.Millis `json:"began"`
	Ended types.Millis `json:"ended"`
	// Background: made by itself (mirror.verify.interval.ms), not by a command.
	Background bool   `json:"background"`
	Result     Verify `json:"result"`
	// File is where the report was kept on the node; it isn't in the file.
	File string `json:"file,omitempty"`
}

// VerifySummary is the last comparison in a few numbers.
type VerifySummary struct {
	Ended      types.Millis `json:"ended"`
	Equal      bool         `json:"equal"`
	Partitions int          `json:"partitions"`
	Different  int          `json:"different"` // partitions with a difference
	Unproved   int          `json:"unproved"`  // partitions that could not be compared to their end
	Bytes      int64        `json:"bytes"`
	File       string       `json:"file,omitempty"`
}

func (r *VerifyReport) summary() *VerifySummary {
	s := &VerifySummary{Ended: r.Ended, Equal: r.Result.Equal, Partitions: len(r.Result.Partitions), Bytes: r.Result.Bytes, File: r.File}
	for _, p := range r.Result.Partitions {
		if p.Difference != "" {
			s.Different++
		}
		if p.Error != "" {
			s.Unproved++
		}
	}
	return s
}

// reportsKept is how many reports of a mirror stay on the node.
const reportsKept = 30

// reportBook keeps the reports of verifications.
type reportBook struct {
	fs  vfs.FS
	dir string
	log *slog.Logger

	mu   sync.Mutex
	last map[string]*VerifyReport // guarded by mu; nil: looked for and not found
}

func newReportBook(fsys vfs.FS, dir string, l *slog.Logger) *reportBook {
	if dir == "" {
		fsys = nil
	}
	return &reportBook{fs: fsys, dir: dir, log: l, last: map[string]*VerifyReport{}}
}

// folder is a mirror's; its name is made harmless as a file's.
func (b *reportBook) folder(mirror string) string { return path.Join(b.dir, url.PathEscape(mirror)) }

// keep writes a report, as JSON and as text, and forgets the oldest ones.
func (b *reportBook) keep(r *VerifyReport) {
	if b.fs != nil {
		if err := b.write(r); err != nil {
			b.log.Warn("the report of a verification can't be kept", "mirror", r.Result.Mirror, "err", err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last[r.Result.Mirror] = r
}

func (b *reportBook) write(r *VerifyReport) error {
	dir := b.folder(r.Result.Mirror)
	if err := b.fs.MkdirAll(dir); err != nil {
		return err
	}
	if err := errors.Join(b.fs.SyncDir(path.Dir(b.dir)), b.fs.SyncDir(b.dir)); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	base := path.Join(dir, time.UnixMilli(int64(r.Began)).UTC().Format("20060102T150405.000Z"))
	if err := vfs.WriteAtomic(b.fs, base+".json", append(data, '\n')); err != nil {
		return err
	}
	if err := vfs.WriteAtomic(b.fs, base+".txt", []byte(r.Text())); err != nil {
		return err
	}
	r.File = base + ".json"
	return b.forget(dir)
}

// forget removes the oldest files beyond reportsKept.
func (b *reportBook) forget(dir string) error {
	names, err := b.fs.List(dir) // sorted: by time
	if err != nil {
		return err
	}
	var faults []error
	for _, suffix := range []string{".json", ".txt"} {
		mine := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasSuffix(n, suffix) })
		for _, n := range mine[:max(0, len(mine)-reportsKept)] {
			faults = append(faults, b.fs.Remove(path.Join(dir, n)))
		}
	}
	return errors.Join(faults...)
}

// latest gives the last report of a mirror, also from before the last start; nil if there is none.
func (b *reportBook) latest(mirror string) *VerifyReport {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r, looked := b.last[mirror]; looked || b.fs == nil {
		return r
	}
	r, err := b.read(mirror)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.log.Warn("the last report of a verification can't be read", "mirror", mirror, "err", err)
	}
	b.last[mirror] = r
	return r
}

// reportBytesMax bounds what is read of a report.
const reportBytesMax = 256 << 20

func (b *reportBook) read(mirror string) (*VerifyReport, error) {
	dir := b.folder(mirror)
	names, err := b.fs.List(dir)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, ".json") })
	if len(names) == 0 {
		return nil, nil
	}
	name := path.Join(dir, names[len(names)-1])
	data, err := vfs.ReadFile(b.fs, name, reportBytesMax)
	if err != nil {
		return nil, err
	}
	var r VerifyReport
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	r.File = name
	return &r, nil
}

func (b *reportBook) summary(mirror string) *VerifySummary {
	if b == nil {
		return nil
	}
	if r := b.latest(mirror); r != nil {
		return r.summary()
	}
	return nil
}

// LastVerify gives the report of the last comparison that this node made.
func (m *Mirrors) LastVerify(name string) (VerifyReport, error) {
	if _, ok := m.o.Node.Image().Mirror(name); !ok {
		return VerifyReport{}, fmt.Errorf("%w: %s", ErrUnknownMirror, name)
	}
	r := m.reports.latest(name)
	if r == nil {
		return VerifyReport{}, fmt.Errorf("mirror %s was not compared with its source by this node yet: %w; run mirror verify, or set mirror.verify.interval.ms", name, ErrNone)
	}
	return *r, nil
}

// Text is the report for people.
func (r *VerifyReport) Text() string {
	var b strings.Builder
	at := func(ms types.Millis) string { return time.UnixMilli(int64(ms)).UTC().Format(time.RFC3339Nano) }
	verdict := "EQUAL: every batch that was compared is the same on both sides."
	s := r.summary()
	switch {
	case s.Different > 0:
		verdict = fmt.Sprintf("DIFFERENT: %d of %d partitions differ.", s.Different, s.Partitions)
	case s.Unproved > 0:
		verdict = fmt.Sprintf("INCOMPLETE: %d of %d partitions could not be compared to their end; no difference was found.", s.Unproved, s.Partitions)
	}
	fmt.Fprintf(&b, "Comparison of mirror %s with its source\n\n%s\n\n", r.Result.Mirror, verdict)
	tw := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for _, l := range [][2]string{
		{"cluster", r.ClusterID}, {"compared by", fmt.Sprintf("node %d, Tidemark %s", r.Node, cmp.Or(r.Software, "unknown"))},
		{"source cluster", r.SourceClusterID}, {"source addresses", strings.Join(r.Source, ", ")},
		{"began", at(r.Began)}, {"ended", at(r.Ended)}, {"bytes compared", fmt.Sprint(r.Result.Bytes)},
		{"partitions not on this node", fmt.Sprint(r.Result.NotHere)},
	} {
		fmt.Fprintf(tw, "%s:\t%s\n", l[0], l[1])
	}
	fmt.Fprint(tw, "\nTOPIC\tPARTITION\tFROM\tPROVED-TO\tBATCHES\tBYTES\tSHA-256\tFINDING\n")
	for _, p := range r.Result.Partitions {
		finding := "equal"
		switch {
		case p.Difference != "":
			finding = "DIFFERENT: " + p.Difference
		case p.Error != "":
			finding = "NOT PROVED: " + p.Error
		}
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", p.Topic, p.Partition, p.From, p.VerifiedTo, p.Batches, p.Bytes, cmp.Or(p.SHA256, "-"), finding)
	}
	_ = tw.Flush() // into memory
	b.WriteString("\nEach partition is proved from FROM to PROVED-TO (exclusive): base offset, leader epoch, size, checksum and every byte of each batch;\n" +
		"on a compacted topic record by record, where a record that one side lacks says nothing.\n")
	return b.String()
}
