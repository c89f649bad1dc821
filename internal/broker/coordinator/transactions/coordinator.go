package transactions

import (
	"context"
	"strconv"
	"time"

	"tidemark/internal/broker/api"
	"tidemark/internal/broker/coordinator/statelog"
	"tidemark/internal/config"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/transaction"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// StateTopic is where transactional ids are kept.
const StateTopic = "__transaction_state"

// Config is what the coordinator needs of the broker's configuration.
type Config struct {
	Table transaction.Config

	TopicPartitions   int32 // transaction.state.log.num.partitions, at creation
	TopicReplication  int16 // transaction.state.log.replication.factor, at creation
	TopicMinISR       int32 // transaction.state.log.min.isr, at creation
	TopicSegmentBytes int32 // transaction.state.log.segment.bytes, at creation
	LoadBufferBytes   int   // transaction.state.log.load.buffer.size
	WriteTimeout      time.Duration
	// SweepInterval is how often transactions that are open for too long are looked for
	// (transaction.abort.timed.out.transaction.cleanup.interval.ms).
	SweepInterval      time.Duration
	QueueLength        int           // requests that may wait for one partition's loop; 0 means 1024
	ReloadAfterFailure time.Duration // 0 means a second
}

// ConfigOf takes the coordinator's configuration out of the broker's.
func ConfigOf(b *config.Broker) Config {
	t := &b.Transactions
	return Config{
		Table:           transaction.Config{MaxTimeout: t.MaxTimeoutMs, IDExpiration: t.IDExpirationMs},
		TopicPartitions: t.TopicPartitions, TopicReplication: t.TopicReplicationFactor, TopicMinISR: t.TopicMinISR,
		TopicSegmentBytes: t.TopicSegmentBytes, LoadBufferBytes: int(t.LoadBufferBytes),
		WriteTimeout:  time.Duration(b.Offsets.CommitTimeoutMs) * time.Millisecond,
		SweepInterval: time.Duration(t.SweepIntervalMs) * time.Millisecond,
	}
}

// Peers reaches other brokers of the cluster. An error says that nobody knows what became of it.
type Peers interface {
	// WriteTxnMarkers has a broker write markers into partitions that it leads. The
	// answer has a code for each partition of each marker, in their order.
	WriteTxnMarkers(ctx context.Context, broker types.BrokerID, markers []Marker) ([][]wire.ErrCode, error)
	// AddPartitionsToTxn asks a coordinator for all of the partitions.
	AddPartitionsToTxn(ctx context.Context, broker types.BrokerID, add transaction.Add) (errcode.Code, error)
}

// MarkerPatience is how long a broker waits for a marker's replication.
const MarkerPatience = api.MarkerTimeout

// Marker is one decision, and partitions that are to hold it.
type Marker = api.TxnMarker

// Options are what a coordinator works with. Fields are required unless they say otherwise.
type Options struct {
	statelog.Node
	Config      Config
	ProducerIDs api.ProducerIDs
	Peers       Peers
	// WriteMarker writes a marker into one partition that this node leads.
	WriteMarker func(ctx context.Context, m Marker, tp types.TopicPartition) wire.ErrCode
	// Rules are switched off by the simulator alone.
	Rules Rules
}

// Rules are rules that the simulator switches off, to see that its checks find it.
type Rules struct {
	Table transaction.Rules
	// NoFence: who led a partition goes on coordinating its transactions (R10).
	NoFence bool
	// AckUnreplicated: a decision is taken for durable once it is in the leader's log (R14).
	AckUnreplicated bool
}

// Coordinator is the transaction coordinator of one node. Its methods may be
// called from any goroutine.
type Coordinator struct {
	o      Options
	topic  *statelog.Topic
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	couriers
	// Loops are those of the state topic.
	*statelog.Loops[*loop]
}

var _ api.Transactions = (*Coordinator)(nil)

// New makes a coordinator that leads nothing yet.
func New(o Options) *Coordinator {
	o.Node = o.WithContext()
	c := &Coordinator{o: o}
	c.Loops = statelog.NewLoops(o.Context, func(partition int32, epoch types.LeaderEpoch) *loop { return newLoop(c, partition, epoch) })
	c.ctx, c.cancel = context.WithCancel(o.Context)
	c.couriers = newCouriers(c)
	c.topic = statelog.NewTopic(statelog.TopicOptions{
		Node: o.Node, Name: StateTopic, Partitions: o.Config.TopicPartitions, Replication: o.Config.TopicReplication, Configs: topicConfigs(o),
	})
	return c
}

// TopicAsMade is the request by which __transaction_state is made at its first use.
func (c *Coordinator) TopicAsMade() api.CreateTopic { return c.topic.AsMade() }

// topicConfigs are what Kafka sets on the topic itself.
func topicConfigs(o Options) map[string]*string {
	policy, compression, unclean := "compact", "uncompressed", "false"
	segment, minISR := strconv.Itoa(int(o.Config.TopicSegmentBytes)), strconv.Itoa(int(o.Config.TopicMinISR))
	return map[string]*string{"cleanup.policy": &policy, "compression.type": &compression, "segment.bytes": &segment,
		"min.insync.replicas": &minISR, "unclean.leader.election.enable": &unclean}
}

func (c *Coordinator) logOptions() statelog.LogOptions {
	return statelog.LogOptions{
		Node: c.o.Node, Topic: StateTopic, BufferBytes: c.o.Config.LoadBufferBytes, ReloadAfterFailure: c.o.Config.ReloadAfterFailure, Unfenced: c.o.Rules.NoFence,
	}
}

// Close is the loops', and ends the couriers.
func (c *Coordinator) Close() {
	c.cancel()
	c.Loops.Close()
	c.couriers.join()
}

// home gives the loop that a transactional id belongs to, if this node has it.
func (c *Coordinator) home(id string) *loop {
	p, ok := c.topic.Partition(id)
	if !ok {
		return nil
	}
	return c.Of(p)
}
