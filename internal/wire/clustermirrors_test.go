package wire

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"reflect"
	"testing"
)

// clusterMirrorsMessages are one of each message, with every field told apart.
func clusterMirrorsMessages() []kmsgMessage {
	text, id := "why", "cluster"
	return []kmsgMessage{
		&ListClusterMirrorsRequest{TopicNames: true},
		&ListClusterMirrorsResponse{ThrottleMillis: 1, ErrorCode: ErrInvalidRequest, ErrorMessage: &text, Mirrors: []ListedClusterMirror{
			{Name: "m", SourceBootstrap: "h:1", SourceClusterID: "c", TopicCount: 2, TopicNames: []string{"a", "b"}}, {Name: "n"}}},
		&DescribeClusterMirrorsRequest{Names: []string{"m"}, AuthorizedOperations: true, ClusterID: &id,
			Lookups: []MirrorLookup{{TopicID: [16]byte{1, 2}, Partitions: []int32{0, 7}}, {TopicID: [16]byte{3}}}},
		&DescribeClusterMirrorsRequest{},
		&DescribeClusterMirrorsResponse{Mirrors: []DescribedClusterMirror{{Name: "m", AuthorizedOperations: AuthorizedOperationsUnknown, Topics: []DescribedMirrorTopic{
			{Name: "t", Partitions: []DescribedMirrorPartition{{Partition: 3, State: "STOPPED", ErrorMessage: &text, Retries: 4,
				SourceOffset: 5, DestinationOffset: 6, LastMirrorEpoch: 7, LastMirrorOffset: 8}}}}}}},
	}
}

// kmsgMessage is what requests and answers have in common.
type kmsgMessage interface {
	AppendTo([]byte) []byte
	ReadFrom([]byte) error
}

func TestClusterMirrorsMessages(t *testing.T) {
	for _, m := range clusterMirrorsMessages() {
		raw := m.AppendTo(nil)
		back := reflect.New(reflect.TypeOf(m).Elem()).Interface().(kmsgMessage)
		if err := back.ReadFrom(raw); err != nil {
			t.Errorf("%T: %v", m, err)
			continue
		}
		if !bytes.Equal(back.AppendTo(nil), raw) || !reflect.DeepEqual(back, m) {
			t.Errorf("%T reads back as %+v", m, back)
		}
		for n := range raw {
			if err := back.ReadFrom(raw[:n]); err == nil {
				t.Errorf("%T: the first %d of %d bytes are taken", m, n, len(raw))
			}
		}
		if back.ReadFrom(append(raw, 0)) == nil {
			t.Errorf("%T: a byte too many is taken", m)
		}
	}
}

// TestClusterMirrorsLayout pins the bytes: Kafka's flexible form, both tags in order.
func TestClusterMirrorsLayout(t *testing.T) {
	id := "c"
	raw := (&DescribeClusterMirrorsRequest{ClusterID: &id, Lookups: []MirrorLookup{{Partitions: []int32{5}}}}).AppendTo(nil)
	const want = "00" + "00" + "02" + "00" + "02" + "0263" + "01" + "17" + "02" + "00000000000000000000000000000000" + "02" + "00000005" + "00"
	if got := hex.EncodeToString(raw); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestClusterMirrorsHostile: no message, however damaged, panics or asks for more than it holds.
func TestClusterMirrorsHostile(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, m := range clusterMirrorsMessages() {
		raw := m.AppendTo(nil)
		for range 3000 {
			damaged := bytes.Clone(raw)
			for range 1 + r.IntN(4) {
				damaged[r.IntN(len(damaged))] = byte(r.Uint32())
			}
			_ = m.ReadFrom(damaged) // an error or a message
		}
	}
	for _, huge := range []string{"00" + "00" + "01" + "01" + "05" + "ffffffff7f", "ffffffff0f", "00" + "00" + "02" + "01" + "00" + "00" + "00"} {
		raw, _ := hex.DecodeString(huge)
		if err := (&DescribeClusterMirrorsRequest{}).ReadFrom(raw); err == nil {
			t.Errorf("%s is taken", huge)
		}
	}
}
