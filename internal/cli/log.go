package cli

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// logCmd is `tidemark log …`.
type logCmd struct {
	Dump   logDumpCmd   `cmd:"" help:"Print the batches of a segment file, or of a partition's folder."`
	Verify logVerifyCmd `cmd:"" help:"Read a partition's folder, every byte of it, and say what is wrong."`
	Epochs logEpochsCmd `cmd:"" help:"Print a partition's leader epochs and where each begins."`
}

// pathFlags choose a folder or file and how to print.
type pathFlags struct {
	Path   string `arg:"" help:"A partition's folder, such as DIR/orders-0, written by Tidemark or by Apache Kafka." type:"existingpath"`
	Output string `short:"o" help:"How to print: table, wide, json or yaml." enum:"table,wide,json,yaml" default:"table"`
}

func (p pathFlags) target() Target { return Target{Output: p.Output} }

// batchRow is one batch as `log dump` prints it.
type batchRow struct {
	File          string      `json:"file"`
	Position      int64       `json:"position"`
	BaseOffset    int64       `json:"baseOffset"`
	LastOffset    int64       `json:"lastOffset"`
	Epoch         int32       `json:"leaderEpoch"`
	Records       int32       `json:"records"`
	Size          int         `json:"size"`
	Codec         string      `json:"codec"`
	CRC           uint32      `json:"crc"`
	CRCHolds      bool        `json:"crcHolds"`
	ProducerID    int64       `json:"producerId"`
	ProducerEpoch int16       `json:"producerEpoch"`
	BaseSequence  int32       `json:"baseSequence"`
	Transactional bool        `json:"transactional"`
	Control       string      `json:"control,omitempty"`
	MaxTimestamp  int64       `json:"maxTimestamp"`
	Contents      []recordRow `json:"contents,omitempty"`
	Fault         string      `json:"fault,omitempty"`
}

// recordRow is one record; bytes that are no text are base64 with a mark before them.
type recordRow struct {
	Offset    int64   `json:"offset"`
	Timestamp int64   `json:"timestamp"`
	Key       *string `json:"key"`
	Value     *string `json:"value"`
}

type logDumpCmd struct {
	pathFlags
	Records bool  `help:"Print the records too."`
	From    int64 `help:"Begin at the batch that holds this offset." default:"0"`
	Limit   int   `help:"End after so many batches; 0: all." default:"0"`
}

func (c *logDumpCmd) Run(s Streams) error {
	files, err := segmentFiles(c.Path)
	if err != nil {
		return err
	}
	rows := []batchRow{}
	var damage error
	for _, file := range files {
		err := log.DumpSegment(vfs.OS(), file, log.DumpOptions{Records: c.Records, From: types.Offset(c.From), Limit: c.left(len(rows))}, func(b *log.DumpedBatch) error {
			rows = append(rows, rowOf(filepath.Base(file), b))
			return nil
		})
		var corrupt *log.CorruptError
		if err != nil && !errors.As(err, &corrupt) {
			return err
		}
		damage = errors.Join(damage, err)
		if c.Limit > 0 && len(rows) >= c.Limit {
			break
		}
	}
	if err := c.target().print(s.Out, rows, func() table { return dumpTable(rows, c.Records) }); err != nil {
		return err
	}
	return damage
}

// left is how many batches may still be printed; 0 means no limit.
func (c *logDumpCmd) left(printed int) int {
	if c.Limit == 0 {
		return 0
	}
	return c.Limit - printed
}

// segmentFiles lists a folder's segments in order, or the one file that is named.
func segmentFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		if !strings.HasSuffix(path, ".log") {
			return nil, fmt.Errorf("%w: %s is no segment file (.log)", errUsage, path)
		}
		return []string{path}, nil
	}
	files, err := filepath.Glob(filepath.Join(path, "*.log"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s holds no segment files (.log): name a partition's folder", path)
	}
	slices.Sort(files)
	return files, nil
}

func rowOf(file string, b *log.DumpedBatch) batchRow {
	h := &b.Header
	row := batchRow{File: file, Position: int64(b.Pos), BaseOffset: int64(h.BaseOffset), LastOffset: int64(h.LastOffset()), Epoch: int32(h.PartitionLeaderEpoch),
		Records: h.RecordsCount, Size: h.Size(), Codec: h.Compression().String(), CRC: h.CRC, CRCHolds: b.CRCError == nil, ProducerID: int64(h.ProducerID),
		ProducerEpoch: h.ProducerEpoch, BaseSequence: h.BaseSequence, Transactional: h.IsTransactional(), MaxTimestamp: int64(h.MaxTimestamp)}
	if b.Marker != nil {
		row.Control = b.Marker.Kind.String()
	}
	if err := errors.Join(b.CRCError, b.RecordsError); err != nil {
		row.Fault = err.Error()
	}
	for _, r := range b.Records {
		row.Contents = append(row.Contents, recordRow{Offset: int64(r.Offset), Timestamp: int64(r.Timestamp), Key: text(r.Key), Value: text(r.Value)})
	}
	return row
}

// text shows bytes as text if they are, as base64 else; nil is null.
func text(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' && r != '\n' }) {
		s = "base64:" + base64.StdEncoding.EncodeToString(b)
	}
	return &s
}

func orNull(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

func dumpTable(rows []batchRow, records bool) table {
	out := table{columns: []string{"FILE", "POSITION", "BASE", "LAST", "EPOCH", "RECORDS", "SIZE", "CODEC", "CRC", "PRODUCER", "KIND", "FAULT"}}
	if records {
		out.columns = []string{"OFFSET", "EPOCH", "TIMESTAMP", "KEY", "VALUE"}
	}
	for _, r := range rows {
		if records {
			for _, c := range r.Contents {
				out.rows = append(out.rows, []string{fmt.Sprint(c.Offset), fmt.Sprint(r.Epoch), fmt.Sprint(c.Timestamp), orNull(c.Key), orNull(c.Value)})
			}
			continue
		}
		producer, kind := "-", "data"
		if r.ProducerID >= 0 {
			producer = fmt.Sprintf("%d/%d/%d", r.ProducerID, r.ProducerEpoch, r.BaseSequence)
		}
		if r.Transactional {
			kind = "transactional"
		}
		if r.Control != "" {
			kind = r.Control
		}
		out.rows = append(out.rows, []string{r.File, fmt.Sprint(r.Position), fmt.Sprint(r.BaseOffset), fmt.Sprint(r.LastOffset), fmt.Sprint(r.Epoch), fmt.Sprint(r.Records),
			fmt.Sprint(r.Size), r.Codec, fmt.Sprintf("%08x", r.CRC), producer, kind, orDash(r.Fault)})
	}
	return out
}

type logVerifyCmd struct{ pathFlags }

// verifyRow is what `log verify` prints.
type verifyRow struct {
	Path     string   `json:"path"`
	Segments int      `json:"segments"`
	Batches  int64    `json:"batches"`
	Records  int64    `json:"records"`
	Bytes    int64    `json:"bytes"`
	Problems []string `json:"problems"`
}

func (c *logVerifyCmd) Run(s Streams) error {
	r, err := log.VerifyDir(vfs.OS(), c.Path)
	if err != nil {
		return err
	}
	row := verifyRow{Path: c.Path, Segments: len(r.Segments), Problems: []string{}}
	for _, seg := range r.Segments {
		row.Batches += int64(seg.Batches)
		row.Records += seg.Records
		row.Bytes += int64(seg.Bytes)
	}
	for _, p := range r.Problems {
		row.Problems = append(row.Problems, p.Error())
	}
	err = c.target().print(s.Out, row, func() table {
		out := table{columns: []string{fmt.Sprintf("%d segments, %d batches, %d records, %s: %d problems", row.Segments, row.Batches, row.Records, bytesText(row.Bytes), len(row.Problems))}}
		for _, p := range row.Problems {
			out.rows = append(out.rows, []string{p})
		}
		return out
	})
	if err == nil && len(row.Problems) > 0 {
		err = fmt.Errorf("%s: %d problems", c.Path, len(row.Problems))
	}
	return err
}

type logEpochsCmd struct{ pathFlags }

// epochRow is one entry of the history.
type epochRow struct {
	Epoch int32 `json:"epoch"`
	Start int64 `json:"start"`
}

func (c *logEpochsCmd) Run(s Streams) error {
	file := c.Path
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		file = filepath.Join(file, epoch.CheckpointFile)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	entries, err := epoch.ParseCheckpoint(data)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	rows := []epochRow{}
	for _, e := range entries {
		rows = append(rows, epochRow{Epoch: int32(e.Epoch), Start: int64(e.Start)})
	}
	return c.target().print(s.Out, rows, func() table {
		out := table{columns: []string{"EPOCH", "START"}}
		for _, r := range rows {
			out.rows = append(out.rows, []string{fmt.Sprint(r.Epoch), fmt.Sprint(r.Start)})
		}
		return out
	})
}
