package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/core/types"
)

func (s *story) loseSource(ctx context.Context) error {
	adm := kadm.NewClient(s.atStandby)
	want, err := kadm.NewClient(s.atSource).FetchOffsets(ctx, groupName)
	if err != nil {
		return err
	}
	err = until(ctx, "the group's offsets arrive", func() error {
		have, err := adm.FetchOffsets(ctx, groupName)
		if err != nil {
			return err
		}
		return sameOffsets(want, have)
	})
	s.claim(err, "the group %q has the same committed offsets on both sides", groupName)
	s.atSource.Close()
	s.atSource = nil
	err = s.source.Close(ctx)
	s.source = nil
	if err != nil {
		return err
	}
	s.say("The source is gone.")
	return nil
}

func sameOffsets(want, have kadm.OffsetResponses) error {
	var faults []error
	want.Each(func(o kadm.OffsetResponse) {
		if h, ok := have.Lookup(o.Topic, o.Partition); !ok || h.At != o.At {
			faults = append(faults, fmt.Errorf("%s-%d: committed %d at the source, %d here", o.Topic, o.Partition, o.At, h.At))
		}
	})
	return errors.Join(faults...)
}

func (s *story) failOver(ctx context.Context) error {
	before, err := ends(ctx, s.atStandby, allTopics()...)
	if err != nil {
		return err
	}
	refused := s.atStandby.ProduceSync(ctx, &kgo.Record{Topic: electionTopic, Value: []byte("too early")}).FirstErr()
	if refused == nil {
		s.claim(errors.New("the write was accepted"), "before the failover, the standby refuses writes")
	} else {
		s.claim(nil, "before the failover, the standby refuses writes")
	}
	begin := time.Now()
	st, err := s.standby.Mirrors().Failover(ctx, mirrorName, nil)
	if err != nil {
		return fmt.Errorf("failover: %w", err)
	}
	s.report.FailoverMillis = time.Since(begin).Milliseconds()
	var faults []error
	for _, p := range st.Partitions {
		tp := types.TopicPartition{Topic: p.Topic, Partition: p.Partition}
		switch {
		case p.Promotion == nil:
			faults = append(faults, fmt.Errorf("%s is %s: %s", tp, p.State, p.Reason))
		case int64(p.Promotion.LastMirroredOffset) != before[tp] || int64(p.Promotion.SrcEndLastSeen) != before[tp]:
			faults = append(faults, fmt.Errorf("%s: %+v, our end was %d", tp, *p.Promotion, before[tp]))
		}
	}
	if len(st.Partitions) != len(before) {
		faults = append(faults, fmt.Errorf("%d partitions in the answer, %d mirrored", len(st.Partitions), len(before)))
	}
	s.claim(errors.Join(faults...), "one command promoted %d partitions in %d ms and says that nothing is missing", len(st.Partitions), s.report.FailoverMillis)
	return nil
}

// goOn lets the group read the rest from exactly where it was, and a producer write on.
func (s *story) goOn(ctx context.Context) error {
	next, err := kadm.NewClient(s.atStandby).FetchOffsets(ctx, groupName)
	if err != nil {
		return err
	}
	_, records, err := readSome(ctx, s.standby.KafkaAddr(), codecRecords-groupRecords)
	if err != nil {
		return fmt.Errorf("group on the standby: %w", err)
	}
	expected := map[int32]int64{}
	next.Each(func(o kadm.OffsetResponse) { expected[o.Partition] = o.At })
	var fault error
	for _, r := range records {
		if r.Offset != expected[r.Partition] && fault == nil {
			fault = fmt.Errorf("partition %d: read offset %d, expected %d", r.Partition, r.Offset, expected[r.Partition])
		}
		expected[r.Partition] = r.Offset + 1
	}
	s.claim(fault, "the group went on at its committed offsets and read the other %d records, none twice", len(records))

	end, err := ends(ctx, s.atStandby, electionTopic)
	if err != nil {
		return err
	}
	r, err := s.atStandby.ProduceSync(ctx, &kgo.Record{Topic: electionTopic, Value: []byte("life goes on")}).First()
	if err == nil && r.Offset != end[types.TopicPartition{Topic: electionTopic}] {
		err = fmt.Errorf("written at %d, the log ended at %d", r.Offset, end[types.TopicPartition{Topic: electionTopic}])
	}
	s.claim(err, "a producer writes on, at the very next offset")
	return nil
}
