package vault

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"unicode/utf8"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// Format is how Export writes an entry.
type Format string

// The formats.
const (
	Segments  Format = "segments" // the raw batches of all files, one after the other
	JSONLines Format = "json"     // one record a line
)

// ExportedRecord is one line of JSONLines. Key and value are text where they are
// valid UTF-8, else base64 in the other field; null is null in both.
type ExportedRecord struct {
	Offset        types.Offset      `json:"offset"`
	Epoch         types.LeaderEpoch `json:"epoch"`
	Timestamp     types.Millis      `json:"timestamp"`
	Key           *string           `json:"key"`
	KeyBase64     []byte            `json:"keyBase64,omitempty"`
	Value         *string           `json:"value"`
	ValueBase64   []byte            `json:"valueBase64,omitempty"`
	Headers       []ExportedHeader  `json:"headers,omitempty"`
	ProducerID    *types.ProducerID `json:"producerId,omitempty"`
	ProducerEpoch *int16            `json:"producerEpoch,omitempty"`
	Transactional bool              `json:"transactional,omitempty"`
	Control       string            `json:"control,omitempty"` // COMMIT, ABORT, …
}

// ExportedHeader is one header of a record; values as in ExportedRecord.
type ExportedHeader struct {
	Key         string  `json:"key"`
	Value       *string `json:"value"`
	ValueBase64 []byte  `json:"valueBase64,omitempty"`
}

// Export writes what an entry keeps. Bytes that are no batches are in Segments
// only; JSONLines ends with an error at them.
func (v *Vault) Export(id string, format Format, w io.Writer) error {
	e, err := v.Show(id)
	if err != nil {
		return err
	}
	if e.Damaged != "" {
		return fmt.Errorf("%s: %s", id, e.Damaged)
	}
	out := bufio.NewWriterSize(w, 1<<20)
	switch format {
	case Segments:
		err = v.eachFile(&e, func(_ *FileEntry, f vfs.File, size int64) error {
			_, err := io.Copy(out, io.NewSectionReader(f, 0, size))
			return err
		})
	case JSONLines:
		err = v.exportRecords(&e, out)
	default:
		return fmt.Errorf("unknown export format %q: segments or json", format)
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

// Batches visits the raw batches of an entry in offset order. raw holds until
// the next one.
func (v *Vault) Batches(id string, visit func(h *batch.Header, raw []byte) error) error {
	e, err := v.Show(id)
	if err != nil {
		return err
	}
	return v.eachBatch(&e, visit)
}

func (v *Vault) eachBatch(e *Entry, visit func(h *batch.Header, raw []byte) error) error {
	var raw []byte
	return v.eachFile(e, func(file *FileEntry, f vfs.File, size int64) error {
		for pos := int64(0); pos < size; pos += int64(len(raw)) {
			var head [batch.HeaderSize]byte
			if _, err := io.ReadFull(io.NewSectionReader(f, pos, size-pos), head[:]); err != nil {
				return fmt.Errorf("%s at byte %d: %w", file.Name, pos, err)
			}
			h, err := batch.ParseHeader(head[:])
			if err != nil || int64(h.Size()) > size-pos {
				return fmt.Errorf("%s at byte %d: %d bytes that are no whole batch: %w", file.Name, pos, size-pos, orShort(err))
			}
			if cap(raw) < h.Size() {
				raw = make([]byte, h.Size())
			}
			raw = raw[:h.Size()]
			if _, err := io.ReadFull(io.NewSectionReader(f, pos, int64(len(raw))), raw); err != nil {
				return fmt.Errorf("%s at byte %d: %w", file.Name, pos, err)
			}
			if err := visit(&h, raw); err != nil {
				return fmt.Errorf("%s at byte %d: %w", file.Name, pos, err)
			}
		}
		return nil
	})
}

func orShort(err error) error {
	if err == nil {
		return batch.ErrShort
	}
	return err
}

func (v *Vault) exportRecords(e *Entry, w io.Writer) error {
	scratch := &batch.Scratch{}
	lines := json.NewEncoder(w)
	lines.SetEscapeHTML(false)
	return v.eachBatch(e, func(h *batch.Header, raw []byte) error {
		it := batch.Records(raw, scratch)
		for it.Next() {
			if err := lines.Encode(exported(h, raw, &it.Record)); err != nil {
				return err
			}
		}
		return it.Err()
	})
}

func exported(h *batch.Header, raw []byte, r *batch.Record) *ExportedRecord {
	x := &ExportedRecord{Offset: r.Offset, Epoch: h.PartitionLeaderEpoch, Timestamp: r.Timestamp, Transactional: h.IsTransactional()}
	x.Key, x.KeyBase64 = textOrBytes(r.Key)
	x.Value, x.ValueBase64 = textOrBytes(r.Value)
	for _, header := range r.Headers() {
		out := ExportedHeader{Key: header.Key}
		out.Value, out.ValueBase64 = textOrBytes(header.Value)
		x.Headers = append(x.Headers, out)
	}
	if h.HasProducer() {
		x.ProducerID, x.ProducerEpoch = &h.ProducerID, &h.ProducerEpoch
	}
	if h.IsControl() {
		x.Control = "CONTROL"
		if m, err := batch.ParseMarker(raw); err == nil {
			x.Control = m.Kind.String()
		}
	}
	return x
}

func textOrBytes(b []byte) (*string, []byte) {
	if b == nil {
		return nil, nil
	}
	if !utf8.Valid(b) {
		return nil, b
	}
	s := string(b)
	return &s, nil
}

// eachFile opens the files of an entry in offset order. size is what the entry
// counts, which a file may exceed but not fall short of.
func (v *Vault) eachFile(e *Entry, visit func(file *FileEntry, f vfs.File, size int64) error) error {
	for i := range e.Files {
		if err := v.withFile(e, &e.Files[i], visit); err != nil {
			return err
		}
	}
	return nil
}

func (v *Vault) withFile(e *Entry, file *FileEntry, visit func(*FileEntry, vfs.File, int64) error) error {
	f, err := v.opts.FS.Open(path.Join(e.dir, file.Name))
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	if size < file.Bytes {
		return fmt.Errorf("%s: %d of %d bytes", f.Name(), size, file.Bytes)
	}
	return visit(file, f, file.Bytes)
}
