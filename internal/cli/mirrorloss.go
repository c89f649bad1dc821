package cli

import (
	"fmt"
	"slices"

	"tidemark/internal/broker/mirror"
)

// lossLinesMax bounds what is said of single partitions before and after a failover.
const lossLinesMax = 20

// tellLoss says, before a failover, what it would lack: the sum, and the
// partitions that are behind or of which nothing is known.
func tellLoss(s Streams, st mirror.Status, topics []string) {
	var said int
	var left int
	for _, p := range st.Partitions {
		line := lossText(p)
		if line == "" || (len(topics) > 0 && !slices.Contains(topics, p.Topic)) {
			continue
		}
		if said++; said > lossLinesMax {
			left++
			continue
		}
		fmt.Fprintln(s.Err, "  "+line)
	}
	if left > 0 {
		fmt.Fprintf(s.Err, "  … and %d more partitions: -o wide shows all\n", left)
	}
	if st.Loss != nil {
		fmt.Fprintln(s.Err, st.Loss.Statement)
	}
}

// lossText is what a failover of one partition would lack; empty if nothing that is known of.
func lossText(p mirror.PartitionStatus) string {
	name := fmt.Sprintf("%s-%d", p.Topic, p.Partition)
	switch l := p.Loss; {
	case l == nil || p.Promotion != nil:
		return ""
	case l.MadeAgain:
		return name + ": the source has deleted the topic and made it again: what was written to the new one isn't here"
	case !l.Known:
		return name + ": what the source has is not known: nothing was fetched since the mirror started"
	case l.Records > 0:
		return fmt.Sprintf("%s: here up to offset %d, the source up to %d (epoch %d) when last seen at %s: at most %d records, %d ms",
			name, p.End-1, l.SrcEnd-1, l.SrcEpoch, millisText(int64(l.SeenAt)), l.Records, l.Ms)
	}
	return ""
}

// lossColumns are a partition's loss in a table: records, ms, when the source was seen.
func lossColumns(p mirror.PartitionStatus) []string {
	if p.Loss == nil || !p.Loss.Known {
		return []string{"?", "?", "-"}
	}
	return []string{fmt.Sprint(p.Loss.Records), fmt.Sprint(p.Loss.Ms), millisText(int64(p.Loss.SeenAt))}
}

// lossTable is what a failover would lack, for --dry-run.
func lossTable(st mirror.Status, topics []string) table {
	out := table{columns: []string{"TOPIC", "PARTITION", "STATE", "END", "SRC-END", "SRC-EPOCH", "AT-MOST-RECORDS", "AT-MOST-MS", "SEEN-AT", "REASON"}}
	for _, p := range st.Partitions {
		if len(topics) > 0 && !slices.Contains(topics, p.Topic) {
			continue
		}
		row := []string{p.Topic, fmt.Sprint(p.Partition), p.State, fmt.Sprint(p.End), fmt.Sprint(p.SrcEnd), fmt.Sprint(p.SrcEpoch)}
		out.rows = append(out.rows, append(append(row, lossColumns(p)...), orDash(p.Reason)))
	}
	return out
}
