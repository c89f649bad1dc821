// Package demo tells the product's story in one process: a source and a
// standby on free ports, a load of every kind, an unclean election at the
// source, the loss of the source, the failover, and clients that go on.
//
// Each sentence that it prints as a claim was checked right then by looking
// at both sides from the outside, as a client; Run fails if any doesn't hold.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/broker"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/compare"
	"tidemark/internal/config"
	"tidemark/internal/telemetry"
)

// mirrorName is the demo's mirror.
const mirrorName = "standby"

// stepWait bounds each wait for a condition.
const stepWait = 60 * time.Second

// Options choose how the demo runs.
type Options struct {
	// Out takes the story; nil is silent.
	Out io.Writer
	// Dir is where both nodes keep their data; empty: a temporary folder that is removed.
	Dir string
	// Stay keeps the nodes running after the story until the context ends.
	Stay bool
	// Logger takes the nodes' logs; nil is silent.
	Logger *slog.Logger
}

// Claim is one checked sentence.
type Claim struct {
	Claim string `json:"claim"`
	Holds bool   `json:"holds"`
	Fault string `json:"fault,omitempty"`
}

// Report is everything that a run found.
type Report struct {
	Claims  []Claim `json:"claims"`
	Records int64   `json:"records"`
	Batches int64   `json:"batches"`
	Bytes   int64   `json:"bytes"`
	// FailoverMillis is the time from the command to the answer.
	FailoverMillis int64 `json:"failoverMs"`
	TookMillis     int64 `json:"tookMs"`
}

// ErrClaim says that a claim didn't hold.
var ErrClaim = errors.New("a claim doesn't hold")

// story is one run.
type story struct {
	opts    Options
	out     io.Writer
	logger  *slog.Logger
	dir     string
	report  Report
	source  *broker.Broker
	standby *broker.Broker
	// clients of both sides; the source's is made anew after its restart.
	atSource, atStandby *kgo.Client
}

// Run tells the story and gives what it found. The error is ErrClaim if a
// claim didn't hold, or says what kept the story from being told.
func Run(ctx context.Context, o Options) (report Report, err error) {
	s := &story{opts: o, out: o.Out, logger: o.Logger, dir: o.Dir}
	if s.out == nil {
		s.out = io.Discard
	}
	if s.logger == nil {
		s.logger = telemetry.Discard()
	}
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "tidemark-demo-"); err != nil {
			return report, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	}
	begin := time.Now()
	defer func() { err = errors.Join(err, s.close()) }()
	for _, chapter := range []func(context.Context) error{
		s.startBoth, s.load, s.readInGroup, s.catchUp, s.electUncleanly, s.proveEqual, s.loseSource, s.failOver, s.goOn,
	} {
		if err := chapter(ctx); err != nil {
			return s.report, err
		}
	}
	s.report.TookMillis = time.Since(begin).Milliseconds()
	s.say("%d claims checked in %s.", len(s.report.Claims), time.Since(begin).Round(time.Millisecond))
	if o.Stay {
		s.stay(ctx)
	}
	return s.report, s.verdict()
}

func (s *story) verdict() error {
	for _, c := range s.report.Claims {
		if !c.Holds {
			return fmt.Errorf("%w: %s: %s", ErrClaim, c.Claim, c.Fault)
		}
	}
	return nil
}

// say prints a line of the story.
func (s *story) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// claim prints and records a sentence that fault, if not nil, refutes.
func (s *story) claim(fault error, format string, args ...any) {
	c := Claim{Claim: fmt.Sprintf(format, args...), Holds: fault == nil}
	mark := "ok "
	if fault != nil {
		c.Fault = fault.Error()
		mark = "NOT"
	}
	s.report.Claims = append(s.report.Claims, c)
	s.say("  %s %s", mark, c.Claim)
	if fault != nil {
		s.say("      %s", c.Fault)
	}
}

// openNode starts a node with data below the demo's folder.
func (s *story) openNode(ctx context.Context, name, listen string) (*broker.Broker, error) {
	settings := []config.Setting{
		config.Flag("demo", "log.dirs", filepath.Join(s.dir, name)),
		config.Flag("demo", "listeners", "PLAINTEXT://"+listen),
		config.Flag("demo", "http.listener", ""),
		config.Flag("demo", "group.initial.rebalance.delay.ms", "0"),
		config.Flag("demo", "offsets.topic.num.partitions", "4"),
		config.Flag("demo", "mirror.metadata.refresh.ms", "500"),
		config.Flag("demo", "mirror.group.sync.ms", "200"),
	}
	cfg, _, err := config.Resolve(settings)
	if err != nil {
		return nil, err
	}
	return broker.Open(ctx, cfg, broker.Options{Logger: s.logger.With("node", name), Version: "demo"})
}

func connect(addr string, opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
}

func (s *story) startBoth(ctx context.Context) error {
	var err error
	if s.source, err = s.openNode(ctx, "source", "127.0.0.1:0"); err != nil {
		return fmt.Errorf("source: %w", err)
	}
	if s.standby, err = s.openNode(ctx, "standby", "127.0.0.1:0"); err != nil {
		return fmt.Errorf("standby: %w", err)
	}
	if s.atSource, err = connect(s.source.KafkaAddr()); err != nil {
		return err
	}
	if s.atStandby, err = connect(s.standby.KafkaAddr()); err != nil {
		return err
	}
	spec := mirror.Spec{Name: mirrorName, Bootstrap: []string{s.source.KafkaAddr()}}
	if err := s.standby.Mirrors().Create(ctx, spec); err != nil {
		return err
	}
	if err := s.standby.Mirrors().Start(ctx, mirrorName); err != nil {
		return err
	}
	s.say("A source at %s and a standby at %s, in one process.", s.source.KafkaAddr(), s.standby.KafkaAddr())
	return nil
}

// sides are both clusters for the comparison.
func (s *story) sides() (source, standby compare.Side) {
	return compare.Side{Name: "source", Client: s.atSource}, compare.Side{Name: "standby", Client: s.atStandby}
}

// stay keeps both nodes up for the curious.
func (s *story) stay(ctx context.Context) {
	s.say("\nThe standby stays up at %s. Interrupt to end.", s.standby.KafkaAddr())
	<-ctx.Done()
}

func (s *story) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stepWait)
	defer cancel()
	for _, cl := range []*kgo.Client{s.atSource, s.atStandby} {
		if cl != nil {
			cl.Close()
		}
	}
	var err error
	for _, b := range []*broker.Broker{s.source, s.standby} {
		if b != nil {
			err = errors.Join(err, b.Close(ctx))
		}
	}
	return err
}

// until calls f until it gives nil; its last error is told when the wait is over.
func until(ctx context.Context, what string, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, stepWait)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not after %s: %w", what, stepWait, err)
		case <-tick.C:
		}
	}
}
