package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/compare"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// Records of the election topic, in order of their writing.
const (
	electionShared = 30 // held by every replica
	electionLost   = 10 // written to the leader only, and lost in the unclean election
	electionAfter  = 7  // written under the new leader at the same offsets
)

// ends asks a cluster for the ends of the topics' partitions.
func ends(ctx context.Context, cl *kgo.Client, topics ...string) (map[types.TopicPartition]int64, error) {
	listed, err := kadm.NewClient(cl).ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	out := map[types.TopicPartition]int64{}
	var errs []error
	listed.Each(func(o kadm.ListedOffset) {
		errs = append(errs, o.Err)
		out[types.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = o.Offset
	})
	return out, errors.Join(errs...)
}

// caughtUp waits until the standby mirrors every partition up to the source's present ends.
func (s *story) caughtUp(ctx context.Context, topics ...string) error {
	want, err := ends(ctx, s.atSource, topics...)
	if err != nil {
		return fmt.Errorf("ends of the source: %w", err)
	}
	return until(ctx, "the standby catches up", func() error {
		st, err := s.standby.Mirrors().Status(ctx, mirrorName)
		if err != nil {
			return err
		}
		have := map[types.TopicPartition]mirror.PartitionStatus{}
		for _, p := range st.Partitions {
			have[types.TopicPartition{Topic: p.Topic, Partition: p.Partition}] = p
		}
		for tp, end := range want {
			p := have[tp]
			if p.State != meta.MirrorMirroring || int64(p.End) != end {
				return fmt.Errorf("%s is %q (%s) at %d of %d", tp, p.State, p.Reason, p.End, end)
			}
		}
		return nil
	})
}

func (s *story) catchUp(ctx context.Context) error {
	if err := s.caughtUp(ctx, allTopics()...); err != nil {
		return err
	}
	s.say("The standby has caught up.")
	return nil
}

// writeElection writes n records with a tag to the election topic.
func (s *story) writeElection(ctx context.Context, tag string, n int) error {
	cl, err := connect(s.source.KafkaAddr(), kgo.DefaultProduceTopic(electionTopic))
	if err != nil {
		return err
	}
	defer cl.Close()
	for i := range n { // one batch each, so that the cut falls between batches
		err := s.writeAll(ctx, cl, 1, func(int) *kgo.Record { return &kgo.Record{Value: fmt.Appendf(nil, "%s-%d", tag, i)} })
		if err != nil {
			return err
		}
	}
	return nil
}

// electUncleanly makes the source lose acknowledged records to a replica that
// had slept: the partition's folder as it was before the last records were
// written takes the leader's place, and leads in the next epoch.
func (s *story) electUncleanly(ctx context.Context) error {
	if err := s.writeElection(ctx, "shared", electionShared); err != nil {
		return err
	}
	if err := s.caughtUp(ctx, electionTopic); err != nil {
		return err
	}
	folder := filepath.Join(s.dir, "source", electionTopic+"-0")
	slept := filepath.Join(s.dir, "slept")
	if err := os.CopyFS(slept, os.DirFS(folder)); err != nil {
		return err
	}
	if err := s.writeElection(ctx, "lost", electionLost); err != nil {
		return err
	}
	if err := s.caughtUp(ctx, electionTopic); err != nil {
		return err
	}
	if err := s.restartSource(ctx, func() error {
		return errors.Join(os.RemoveAll(folder), os.Rename(slept, folder))
	}); err != nil {
		return err
	}
	if err := s.writeElection(ctx, "after", electionAfter); err != nil {
		return err
	}
	s.say("The source lost its leader; a replica that lacked the last %d records was elected, and %d others were written in their place.", electionLost, electionAfter)
	if err := s.caughtUp(ctx, electionTopic); err != nil {
		return err
	}
	s.claim(s.cutIsKept(), "the standby followed: the %d records that the source lost are in its vault, and the event names them", electionLost)
	return nil
}

// restartSource closes the source, lets change work on its files, and starts it again at the same address.
func (s *story) restartSource(ctx context.Context, change func() error) error {
	addr := s.source.KafkaAddr()
	s.atSource.Close()
	if err := s.source.Close(ctx); err != nil {
		return err
	}
	s.source = nil
	if err := change(); err != nil {
		return err
	}
	var err error
	if s.source, err = s.openNode(ctx, "source", addr); err != nil {
		return fmt.Errorf("source again: %w", err)
	}
	s.atSource, err = connect(addr)
	return err
}

// cutIsKept looks for the lost records in the vault and in the events.
func (s *story) cutIsKept() error {
	entries, err := s.standby.Vault().List()
	if err != nil {
		return err
	}
	kept := ""
	for _, e := range entries {
		if e.Topic == electionTopic && e.From == electionShared && e.To == electionShared+electionLost && e.Records == electionLost {
			kept = e.ID
		}
	}
	if kept == "" {
		return fmt.Errorf("no entry of offsets %d to %d among %d", electionShared, electionShared+electionLost, len(entries))
	}
	for _, e := range s.standby.Mirrors().Events() {
		if e.Topic == electionTopic && e.VaultID == kept && e.From == electionShared && e.To == electionShared+electionLost && e.Records == electionLost {
			return nil
		}
	}
	return fmt.Errorf("no event for the vault's entry %s", kept)
}

func (s *story) proveEqual(ctx context.Context) error {
	if err := s.caughtUp(ctx, allTopics()...); err != nil {
		return err
	}
	a, b := s.sides()
	results, err := compare.Partitions(ctx, a, b, allTopics(), compare.Options{Compacted: func(topic string) bool { return topic == pricesTopic }})
	if err != nil {
		return err
	}
	var faults []error
	for _, r := range results {
		s.report.Batches += r.Batches
		s.report.Bytes += r.Bytes
		if r.Difference != "" {
			faults = append(faults, fmt.Errorf("%s: %s", r.TopicPartition, r.Difference))
		}
	}
	if len(results) == 0 {
		faults = append(faults, errors.New("nothing was compared"))
	}
	s.claim(errors.Join(faults...), "%d partitions are equal byte for byte: offsets, leader epochs, checksums (%d batches, %d bytes)", len(results), s.report.Batches, s.report.Bytes)
	return nil
}
