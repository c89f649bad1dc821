package log

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// CheckpointLine is one partition's line in an offset checkpoint file.
type CheckpointLine struct {
	TopicPartition types.TopicPartition
	Offset         types.Offset
}

// ErrCheckpoint is the kind of every error of ParseOffsets.
var ErrCheckpoint = errors.New("not an offset checkpoint")

// FormatOffsets gives the content of an offset checkpoint file, as Kafka writes
// it: a version line (0), the number of entries, one "topic partition offset"
// line each (docs/format/checkpoints.md). Lines are sorted, so that equal
// contents are equal bytes.
func FormatOffsets(lines []CheckpointLine) []byte {
	lines = slices.Clone(lines)
	slices.SortFunc(lines, func(a, b CheckpointLine) int {
		if c := strings.Compare(a.TopicPartition.Topic, b.TopicPartition.Topic); c != 0 {
			return c
		}
		return cmpInt(int64(a.TopicPartition.Partition), int64(b.TopicPartition.Partition))
	})
	b := append([]byte("0\n"), strconv.Itoa(len(lines))...)
	b = append(b, '\n')
	for _, l := range lines {
		b = append(b, l.TopicPartition.Topic...)
		b = append(b, ' ')
		b = strconv.AppendInt(b, int64(l.TopicPartition.Partition), 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, int64(l.Offset), 10)
		b = append(b, '\n')
	}
	return b
}

// ParseOffsets reads what FormatOffsets and Kafka write. The error names the line.
func ParseOffsets(data []byte) ([]CheckpointLine, error) {
	text := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if text[0] != "0" {
		return nil, fmt.Errorf("%w: line 1: version %.20q, known is 0", ErrCheckpoint, text[0])
	}
	if len(text) < 2 {
		return nil, fmt.Errorf("%w: line 2: the count is missing", ErrCheckpoint)
	}
	n, err := strconv.Atoi(text[1])
	if err != nil || n != len(text)-2 {
		return nil, fmt.Errorf("%w: line 2: count %.20q, %d lines follow", ErrCheckpoint, text[1], len(text)-2)
	}
	lines := make([]CheckpointLine, 0, n)
	for i, line := range text[2:] {
		l, err := parseOffsetLine(line)
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrCheckpoint, i+3, err)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

func parseOffsetLine(line string) (CheckpointLine, error) {
	words := strings.Fields(line)
	if len(words) != 3 {
		return CheckpointLine{}, fmt.Errorf("%.60q is not: topic partition offset", line)
	}
	partition, err := strconv.ParseInt(words[1], 10, 32)
	if err != nil || partition < 0 {
		return CheckpointLine{}, fmt.Errorf("partition %.20q", words[1])
	}
	offset, err := strconv.ParseInt(words[2], 10, 64)
	if err != nil || offset < 0 {
		return CheckpointLine{}, fmt.Errorf("offset %.20q", words[2])
	}
	return CheckpointLine{types.TopicPartition{Topic: words[0], Partition: int32(partition)}, types.Offset(offset)}, nil
}

// FormatPartitionMetadata gives the content of partition.metadata, byte for
// byte Kafka's: no newline at the end.
func FormatPartitionMetadata(id types.TopicID) []byte {
	return []byte("version: 0\ntopic_id: " + id.String())
}

// ParsePartitionMetadata reads a partition.metadata file.
func ParsePartitionMetadata(data []byte) (types.TopicID, error) {
	var id types.TopicID
	version, found := "", false
	for line := range strings.SplitSeq(string(data), "\n") {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch {
		case line == "":
		case !ok:
			return id, fmt.Errorf("partition.metadata: line %.60q has no colon", line)
		case key == "version":
			version = value
		case key == "topic_id":
			var err error
			if id, err = types.ParseTopicID(value); err != nil {
				return id, fmt.Errorf("partition.metadata: %w", err)
			}
			found = true
		}
	}
	if version != "0" || !found || id.IsZero() {
		return id, fmt.Errorf("partition.metadata: version %.20q, topic id present: %t", version, found && !id.IsZero())
	}
	return id, nil
}

// ReadTopicID reads the partition.metadata of a partition's folder; an absent one is fs.ErrNotExist.
func ReadTopicID(fsys vfs.FS, dir string) (types.TopicID, error) {
	b, err := vfs.ReadFile(fsys, join(dir, PartitionMetadataFile), 1<<16)
	if err != nil {
		return types.TopicID{}, err
	}
	return ParsePartitionMetadata(b)
}
