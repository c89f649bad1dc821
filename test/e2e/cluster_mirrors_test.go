package e2e

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/wire"
	"tidemark/test/e2e/harness"
)

// askFrame sends one request by a frame made by hand, for keys that no client library knows.
func askFrame(t *testing.T, addr string, req kmsg.Request, resp kmsg.Response) error {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(harness.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("by hand")).AppendRequest(nil, req, 1)); err != nil {
		t.Fatal(err)
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(conn, body); err != nil {
		return err
	}
	return resp.ReadFrom(body[5:]) // correlation id, no tags
}

// TestLastMirroredEpochIsTold: with the switch on, a standby that was promoted
// tells its old source, as KIP-1279 asks, what it mirrored last; without it the key is unknown.
func TestLastMirroredEpochIsTold(t *testing.T) {
	source := harness.StartBroker(t)
	standby := startStandby(t, harness.WithSetting("mirror.kip1279.enable", "true"))
	source.CreateTopic(t, "orders", 1, nil)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}})
	source.Produce(t, "orders", 0, harness.Values("v", 20)...)
	awaitEnd(t, standby, "orders", 0, 20)
	failover(t, standby)

	topic, _ := source.Image().TopicByName("orders")
	id := source.ClusterID()
	ask := &wire.DescribeClusterMirrorsRequest{ClusterID: &id, Lookups: []wire.MirrorLookup{{TopicID: topic.Record.ID, Partitions: []int32{0}}}}
	var told wire.DescribeClusterMirrorsResponse
	if err := askFrame(t, standby.Addr, ask, &told); err != nil {
		t.Fatal(err)
	}
	if len(told.Mirrors) != 1 || told.Mirrors[0].Name != "m" || len(told.Mirrors[0].Topics) != 1 || len(told.Mirrors[0].Topics[0].Partitions) != 1 {
		t.Fatalf("answer %+v", told)
	}
	made := statusOf(t, standby, "orders", 0).Promotion
	if p := told.Mirrors[0].Topics[0].Partitions[0]; p.LastMirrorOffset != 20 || p.LastMirrorEpoch != made.LastMirroredEpoch || p.State != "STOPPED" {
		t.Errorf("told %+v, promoted %+v", p, made)
	}
	var list wire.ListClusterMirrorsResponse
	if err := askFrame(t, standby.Addr, &wire.ListClusterMirrorsRequest{TopicNames: true}, &list); err != nil || len(list.Mirrors) != 1 || list.Mirrors[0].SourceClusterID != id {
		t.Errorf("list %+v, %v", list, err)
	}
	if err := askFrame(t, source.Addr, ask, &told); err == nil {
		t.Errorf("a broker without the switch answers %+v", told)
	}
}
