//go:build kafka

package kafka_test

import (
	big "encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/metastore/embed"
	"tidemark/internal/metastore/member"
	"tidemark/test/kafka/cluster"
)

// contender is one of the two clusters that are asked the same: brokers 1, 2 and 3, each a process,
// and metadata that outlives all of them (Kafka's controller apart, an etcd of the test).
type contender struct {
	name  string
	addr  map[int32]string
	kill  func(id int32)
	stop  func(id int32)
	start func(id int32)
	// folder gives the folder of a broker that holds the partitions' folders.
	folder func(id int32) string

	conns map[int32]net.Conn
	up    map[int32]bool

	// What the present telling of the story has made.
	topic   string
	topicID [16]byte
	// stages are the leader epochs of each partition at the end of each stage: what the story's names of epochs stand for here.
	stages [storyPartitions][]int32
}

// answerLimit bounds one answer; asked for ever so little, a broker gives it in milliseconds.
const answerLimit = 30 * time.Second

// sessionMillis is how long a killed broker stays registered. Longer ones make the story long, shorter ones elections that nobody asked for.
const sessionMillis = "5000"

func newKafkaContender(t *testing.T) *contender {
	kafka := cluster.Start(t, cluster.Options{Brokers: 3, Props: map[string]string{
		"broker.session.timeout.ms": sessionMillis, "auto.leader.rebalance.enable": "false", "controlled.shutdown.enable": "true"}})
	c := &contender{name: "Kafka", addr: map[int32]string{}, conns: map[int32]net.Conn{}, up: map[int32]bool{}}
	for id := int32(1); id <= 3; id++ {
		c.addr[id], c.up[id] = fmt.Sprintf("127.0.0.1:%d", kafka.Node(int(id)).Port), true
	}
	c.kill = func(id int32) { kafka.Kill(int(id)) }
	c.stop = func(id int32) { kafka.Stop(int(id)) }
	c.start = func(id int32) { kafka.Restart(int(id)) }
	c.folder = func(id int32) string { return kafka.Node(int(id)).DataDir() }
	return c
}

func newTidemarkContender(t *testing.T) *contender {
	ctx := testContext(t, time.Minute)
	etcd, err := embed.Start(ctx, embed.Options{Dir: t.TempDir(), Name: "etcd", UnsafeNoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Close() })
	open, err := etcd.Admit(ctx, member.JoinRequest{NodeID: 99}) // opens its ports
	if err != nil {
		t.Fatal(err)
	}
	store := "metadata=etcd://" + strings.TrimPrefix(open.Endpoints[0], "http://")
	c := &contender{name: "Tidemark", addr: map[int32]string{}, conns: map[int32]net.Conn{}, up: map[int32]bool{}}
	nodes := map[int32]*node{}
	for id := int32(1); id <= 3; id++ {
		nodes[id] = newNode(t, "serve", "--node-id", fmt.Sprint(id), "--set", store, "--set", "broker.session.timeout.ms="+sessionMillis,
			"--set", "auto.leader.rebalance.enable=false")
		c.addr[id], c.up[id] = nodes[id].kafka, true
		nodes[id].start()
		nodes[id].waitReady()
	}
	c.kill = func(id int32) { nodes[id].kill() }
	c.stop = func(id int32) { nodes[id].stop() }
	c.start = func(id int32) { nodes[id].start(); nodes[id].waitReady() }
	c.folder = func(id int32) string { return nodes[id].dir }
	return c
}

// frames lays out requests as any client would, with a name of its own.
var frames = kmsg.NewRequestFormatter(kmsg.FormatterClientID("differential"))

// ask sends one frame made by hand to a broker and reads the answer; the version is the request's.
func (c *contender) ask(id int32, req kmsg.Request) (kmsg.Response, error) {
	const correlation = 7
	conn := c.conns[id]
	if conn == nil {
		var err error
		if conn, err = net.DialTimeout("tcp", c.addr[id], answerLimit); err != nil {
			return nil, err
		}
		c.conns[id] = conn
	}
	resp, err := exchange(conn, frames.AppendRequest(nil, req, correlation), req, correlation)
	if err != nil {
		_ = conn.Close()
		delete(c.conns, id)
		return nil, fmt.Errorf("%s %d, %s v%d: %w", c.name, id, kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp, nil
}

func exchange(conn net.Conn, frame []byte, req kmsg.Request, correlation uint32) (kmsg.Response, error) {
	if err := conn.SetDeadline(time.Now().Add(answerLimit)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(frame); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	body := make([]byte, big.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(conn, body); err != nil {
		return nil, err
	}
	if len(body) < 5 || big.BigEndian.Uint32(body) != correlation {
		return nil, fmt.Errorf("the answer begins with %x", body[:min(len(body), 8)])
	}
	body = body[4:]
	if req.IsFlexible() {
		if body[0] != 0 {
			return nil, fmt.Errorf("tags in the answer's header: %x", body[:min(len(body), 8)])
		}
		body = body[1:]
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	return resp, resp.ReadFrom(body)
}

// hangUp ends a connection, so that a restarted broker is dialled anew.
func (c *contender) hangUp(id int32) {
	if conn := c.conns[id]; conn != nil {
		_ = conn.Close()
		delete(c.conns, id)
	}
}

// anyUp is a broker to ask what any may be asked.
func (c *contender) anyUp() int32 {
	for id := int32(1); id <= 3; id++ {
		if c.up[id] {
			return id
		}
	}
	return 0
}

// partitionLook is what a broker's metadata says of one partition.
type partitionLook struct {
	leader, epoch int32
	isr           []int32
}

// look asks a broker for its picture of the story's topic.
func (c *contender) look(id int32) ([storyPartitions]partitionLook, error) {
	var out [storyPartitions]partitionLook
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(12)
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(c.topic)
	req.Topics = append(req.Topics, rt)
	raw, err := c.ask(id, req)
	if err != nil {
		return out, err
	}
	for _, t := range raw.(*kmsg.MetadataResponse).Topics {
		if t.ErrorCode != 0 || len(t.Partitions) != storyPartitions {
			return out, fmt.Errorf("%d partitions of %s: %w", len(t.Partitions), c.topic, kerr.ErrorForCode(t.ErrorCode))
		}
		c.topicID = t.TopicID
		for _, p := range t.Partitions {
			out[p.Partition] = partitionLook{p.Leader, p.LeaderEpoch, slices.Sorted(slices.Values(p.ISR))}
		}
		return out, nil
	}
	return out, errors.New("no topic in the answer")
}

// sizes gives the bytes of each partition of the topic that a broker holds.
func (c *contender) sizes(id int32) ([storyPartitions]int64, error) {
	var out [storyPartitions]int64
	req := kmsg.NewPtrDescribeLogDirsRequest()
	req.SetVersion(4)
	rt := kmsg.NewDescribeLogDirsRequestTopic()
	rt.Topic = c.topic
	for p := range int32(storyPartitions) {
		rt.Partitions = append(rt.Partitions, p)
	}
	req.Topics = append(req.Topics, rt)
	raw, err := c.ask(id, req)
	if err != nil {
		return out, err
	}
	for _, d := range raw.(*kmsg.DescribeLogDirsResponse).Dirs {
		for _, t := range d.Topics {
			for _, p := range t.Partitions {
				out[p.Partition] = p.Size
			}
		}
	}
	return out, nil
}

// errDisturbed says that leaders changed while the story stood still: a machine so slow that a registration ran out.
var errDisturbed = errors.New("an election that the story didn't ask for")

// within calls f until it gives nil or errDisturbed, and gives its last error when the limit has passed.
func within(limit time.Duration, what string, f func() error) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil || errors.Is(err, errDisturbed) {
			return err
		}
		select {
		case <-deadline.C:
			return fmt.Errorf("not after %s: %s: %w", limit, what, err)
		case <-tick.C:
		}
	}
}
