package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
)

var lineageTopic = types.TopicID{0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0x0f}

const lineageTopicHex = "a00102030405060708090a0b0c0d0e0f"

// The bytes are those of docs/format/lineage-api.md.
func TestLineageGoldens(t *testing.T) {
	f := func(m interface {
		AppendTo([]byte) []byte
		ReadFrom([]byte) error
	}, again interface{ ReadFrom([]byte) error }, want string) {
		t.Helper()
		got := m.AppendTo(nil)
		if h := hex.EncodeToString(got); h != want {
			t.Errorf("%T is written as\n%s, want\n%s", m, h, want)
		}
		if err := again.ReadFrom(unhex(t, want)); err != nil {
			t.Errorf("%T: %v", m, err)
		}
		if diff := cmp.Diff(m, again, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	}
	f(&LineageRequest{}, &LineageRequest{}, "0100")
	f(&LineageRequest{Topics: []LineageRequestTopic{{ID: lineageTopic, Partitions: []int32{0, 7}}}}, &LineageRequest{},
		"02"+lineageTopicHex+"03"+"0000000000"+"0000000700"+"00"+"00")
	f(&LineageResponse{ErrorCode: ErrInvalidRequest}, &LineageResponse{}, "002a"+"01"+"00")
	f(&LineageResponse{Topics: []LineageResponseTopic{{ID: lineageTopic, Partitions: []LineagePartition{
		{Partition: 7, LeaderEpoch: 65540, Timelines: []Timeline{{ID: "r"}, {ID: "pq", FirstEpoch: 65539, FirstOffset: 258}}, IsMirror: true, LastEpoch: 3, Path: []string{"B", "A"}},
		{Partition: 8, ErrorCode: ErrNotLeaderOrFollower, LeaderEpoch: -1, LastEpoch: -1},
	}}}}, &LineageResponse{}, "0000"+"02"+lineageTopicHex+"03"+
		"00000007"+"0000"+"00010004"+"03"+"0272"+"00000000"+"0000000000000000"+"00"+"037071"+"00010003"+"0000000000000102"+"00"+"00"+"01"+"00000003"+"03"+"0242"+"0241"+"00"+
		"00000008"+"0006"+"ffffffff"+"01"+"00"+"00"+"ffffffff"+"01"+"00"+
		"00"+"00")
}

// What a later version adds comes as tagged fields, and is passed over.
func TestLineageSkipsTags(t *testing.T) {
	tag := "01" + "05" + "02" + "beef"
	var in LineageRequest
	if err := in.ReadFrom(unhex(t, "02"+lineageTopicHex+"02"+"00000003"+tag+tag+tag)); err != nil || in.Topics[0].Partitions[0] != 3 {
		t.Errorf("request: %+v, %v", in, err)
	}
	var out LineageResponse
	err := out.ReadFrom(unhex(t, "0000"+"02"+lineageTopicHex+"02"+"00000003"+"0000"+"00000001"+"02"+"0272"+"00000000"+"0000000000000000"+tag+"01"+"00"+"00000001"+"01"+tag+tag+tag))
	if err != nil || out.Topics[0].Partitions[0].Timelines[0].ID != "r" || !out.Topics[0].Partitions[0].Writable {
		t.Errorf("answer: %+v, %v", out, err)
	}
}

func TestLineageMalformed(t *testing.T) {
	request := func(name, body string) {
		t.Helper()
		var in LineageRequest
		if err := in.ReadFrom(unhex(t, body)); !errors.Is(err, ErrMalformed) {
			t.Errorf("request, %s: error %v, read as %+v", name, err, in)
		}
	}
	request("empty", "")
	request("null topics", "0000")
	request("more topics than bytes", "ff0100")
	request("topic cut short", "02"+lineageTopicHex[:20])
	request("null partitions", "02"+lineageTopicHex+"000000")
	request("more partitions than bytes", "02"+lineageTopicHex+"0500000000000000")
	request("an endless count", "ffffffffffffffffffffffff")
	request("bytes left over", "0100"+"00")
	request("no tags", "01")
	request("tags cut short", "01"+"010005aa")
	many := &LineageRequest{Topics: []LineageRequestTopic{{Partitions: make([]int32, LineagePartitionsMax)}, {Partitions: make([]int32, 1)}}}
	request("too many partitions in all", hex.EncodeToString(many.AppendTo(nil)))

	answer := func(name, partition string) {
		t.Helper()
		var out LineageResponse
		if err := out.ReadFrom(unhex(t, "0000"+"02"+lineageTopicHex+"02"+partition+"00"+"00")); !errors.Is(err, ErrMalformed) {
			t.Errorf("answer, %s: error %v, read as %+v", name, err, out)
		}
	}
	head := "00000007" + "0000" + "00000001"
	answer("a boolean of 2", head+"01"+"02"+"00"+"00000003"+"01"+"00")
	answer("an id of 65 bytes", head+"02"+"42"+strings.Repeat("61", 65)+"00000000"+"0000000000000000"+"00"+"00"+"01"+"00000003"+"01"+"00")
	answer("more timelines than bytes", head+"8080"+"01"+"00"+"01"+"00000003"+"01"+"00")
	answer("a path of 65 clusters", head+"01"+"00"+"01"+"00000003"+"42"+strings.Repeat("0241", 65)+"00")
	answer("a null cluster id", head+"01"+"00"+"01"+"00000003"+"02"+"00"+"00")
}

// The largest messages that the bounds allow are read back, and Size never says too little.
func TestLineageBounds(t *testing.T) {
	p := LineagePartition{Partition: 1<<31 - 1, LeaderEpoch: 1<<31 - 1, LastEpoch: 1<<31 - 1}
	for range LineageTimelinesMax {
		p.Timelines = append(p.Timelines, Timeline{strings.Repeat("x", LineageIDBytesMax), 1<<31 - 1, 1<<63 - 1})
	}
	for range LineagePathMax {
		p.Path = append(p.Path, strings.Repeat("c", ClusterIDBytesMax))
	}
	for _, p := range []LineagePartition{{}, {Path: []string{"", "a"}, Timelines: []Timeline{{}}}, p} {
		if n := len(p.appendTo(nil)); n > p.Size() || p.Size() > n+n/50+32 {
			t.Errorf("%d bytes, Size says %d", n, p.Size())
		}
	}
	var back LineageResponse
	if err := back.ReadFrom((&LineageResponse{Topics: []LineageResponseTopic{{Partitions: []LineagePartition{p}}}}).AppendTo(nil)); err != nil {
		t.Error(err)
	}
	full := &LineageRequest{Topics: []LineageRequestTopic{{Partitions: make([]int32, LineagePartitionsMax)}}}
	if err := new(LineageRequest).ReadFrom(full.AppendTo(nil)); err != nil {
		t.Error(err)
	}
}

// A request and its answer go through the frame's header as Kafka's flexible ones do.
func TestLineageFrame(t *testing.T) {
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("kc")).AppendRequest(nil, &LineageRequest{Topics: []LineageRequestTopic{{ID: lineageTopic, Partitions: []int32{1}}}}, 9)
	req, err := ParseRequest(frame[4:])
	if err != nil || req.Key != KeyDescribeLineage || req.Key.String() != "DescribeLineage" || req.ClientID != "kc" {
		t.Fatalf("request %+v, %v", req, err)
	}
	msg, err := req.Decode()
	if in, ok := msg.(*LineageRequest); err != nil || !ok || in.Topics[0].ID != lineageTopic {
		t.Errorf("decoded %+v, %v", msg, err)
	}
	answer := Encode(req, &LineageResponse{}).Pieces()[0].Mem
	if h := hex.EncodeToString(answer); h != "00000009"+"00000009"+"00"+"0000"+"01"+"00" {
		t.Errorf("answer %s", h)
	}
	if slices.ContainsFunc(APIs(), func(a API) bool { return a.Key >= 32000 }) || len(OwnAPIs()) != 4 {
		t.Errorf("own APIs %+v stand among Kafka's", OwnAPIs())
	}
}

// FuzzLineage: both messages survive any bytes; what is read is written as it was, tags aside.
func FuzzLineage(f *testing.F) {
	f.Add((&LineageRequest{Topics: []LineageRequestTopic{{ID: lineageTopic, Partitions: []int32{0, 7}}}}).AppendTo(nil))
	f.Add((&LineageResponse{Topics: []LineageResponseTopic{{ID: lineageTopic, Partitions: []LineagePartition{
		{Partition: 7, LeaderEpoch: 5, Timelines: []Timeline{{ID: "r"}, {ID: "p", FirstEpoch: 3, FirstOffset: 9}}, IsMirror: true, Path: []string{"B"}},
	}}}}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var in LineageRequest
		if in.ReadFrom(b) == nil {
			again := in.AppendTo(nil)
			var back LineageRequest
			if len(again) > len(b) || back.ReadFrom(again) != nil || !bytes.Equal(back.AppendTo(nil), again) {
				t.Errorf("%x is written as %x", b, again)
			}
		}
		var out LineageResponse
		if out.ReadFrom(b) == nil {
			again := out.AppendTo(nil)
			var back LineageResponse
			if len(again) > len(b) || back.ReadFrom(again) != nil || !bytes.Equal(back.AppendTo(nil), again) {
				t.Errorf("%x is written as %x", b, again)
			}
		}
	})
}

func TestWakeFetchMessages(t *testing.T) {
	in := &WakeFetchRequest{SessionID: 7, SessionEpoch: 1 << 30}
	var got WakeFetchRequest
	if err := got.ReadFrom(in.AppendTo(nil)); err != nil || got != *in {
		t.Errorf("%+v, %v", got, err)
	}
	if err := got.ReadFrom([]byte{0, 0, 0, 7, 0}); err == nil {
		t.Error("half a message is read")
	}
	out := &WakeFetchResponse{ErrorCode: ErrNotController}
	var back WakeFetchResponse
	if err := back.ReadFrom(out.AppendTo(nil)); err != nil || back != *out {
		t.Errorf("%+v, %v", back, err)
	}
}
