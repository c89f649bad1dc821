package cli

import (
	"slices"
	"testing"

	"tidemark/internal/broker/mirror"
)

// TestStatusNamesTheWayOut: each reason that needs somebody is explained once, with the names to type.
func TestStatusNamesTheWayOut(t *testing.T) {
	st := mirror.Status{Mirror: "dr", Partitions: []mirror.PartitionStatus{
		{Topic: "a", Reason: ""}, {Topic: "b", Reason: "SOURCE_GAP: 3-5"}, {Topic: "c", Reason: "SOURCE_GAP: 0-9"}, {Topic: "d", Reason: "SOURCE_LEADER_MOVED"},
		{Topic: "e", Reason: "TOPIC_ID_MISMATCH: made again"},
	}}
	want := []string{
		"SOURCE_GAP: the source has dropped records that are missing here: `mirror accept-gap dr --topic=b` goes on behind them",
		"TOPIC_ID_MISMATCH: `mirror failover dr --topic=e` keeps this copy, writable; `topic delete e` then makes room, and the source's new topic is mirrored",
	}
	if got := waysOut(st); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
