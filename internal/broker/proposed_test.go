package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
	"tidemark/internal/telemetry"
)

// hurried is a clock whose waits are over at once, and whose work is done where it is begun.
type hurried struct{ clock.Clock }

func (hurried) Go(_ *sync.WaitGroup, f func()) { f() }

func (hurried) Wait(context.Context, time.Duration, <-chan struct{}) (bool, error) {
	return false, nil
}

// TestAProposalThatMayHappenYet: an ISR change of unknown outcome stays pending, whatever
// keeps its repetition from being made: it may be in force before anybody here sees it (R8),
// and whoever joined by it would be electable without the records that nobody waited for.
func TestAProposalThatMayHappenYet(t *testing.T) {
	unknown := fmt.Errorf("time-out: %w", metastore.ErrUnknownOutcome)
	f := func(why string, attempts []error, want ...bool) {
		t.Helper()
		var p *Partition
		var pending []bool // before each attempt, and at the end
		next := 0
		env := &environment{
			nodeID: 1, logger: telemetry.Discard(), background: &sync.WaitGroup{}, ctx: clock.With(t.Context(), hurried{}),
			changeISR: func(context.Context, types.TopicID, int32, meta.Revision, []meta.ISRMember) error {
				pending = append(pending, p.leader.Pending() != nil)
				next++
				return attempts[next-1]
			},
		}
		p = newPartition(env, newInlineShard(env.logger), types.TopicID{1}, types.TopicPartition{Topic: "a"}, nil)
		p.record, p.revision = &meta.PartitionRecord{Replicas: []types.BrokerID{1, 2}, ISR: []meta.ISRMember{{ID: 1, BrokerEpoch: 10}}, MinISR: 1, Leader: 1, LeaderEpoch: 3}, 5
		p.leader.Lead(1, replica.LeaderState{Revision: 5, LeaderEpoch: 3, Replicas: p.record.Replicas, ISR: p.record.ISR, MinISR: 1, LogEnd: 8, HighWatermark: 8, LagMax: 100})
		p.leader.SetBroker(2, replica.BrokerView{Epoch: 20})
		_, change, _ := p.leader.Fetched(replica.FollowerFetch{Replica: 2, BrokerEpoch: 20, Offset: 8, LogStart: 0, LeaderEpoch: 3, Now: 1})
		p.propose(change)
		pending = append(pending, p.leader.Pending() != nil)
		if next != len(attempts) || fmt.Sprint(pending) != fmt.Sprint(want) {
			t.Errorf("%s: %d attempts, pending before each and at the end: %v; want %d and %v", why, next, pending, len(attempts), want)
		}
	}
	f("nothing was sent", []error{metastore.ErrUnavailable}, true, false)
	f("the joiner leaves", []error{control.ErrLeaving}, true, false)
	f("refused", []error{metastore.ErrRefused}, true, false)
	f("unknown, then nothing is sent", []error{unknown, metastore.ErrUnavailable, control.ErrRecordChanged}, true, true, true, false)
	f("unknown, then the joiner leaves", []error{unknown, control.ErrLeaving, control.ErrNotRegistered}, true, true, true, false)
	f("unknown, then refused beside others", []error{unknown, metastore.ErrRefused, control.ErrNotLeader}, true, true, true, false)
	f("unknown, then unseen", []error{unknown, errors.New("the image doesn't come"), metastore.ErrUnavailable, control.ErrRecordChanged}, true, true, true, true, false)
}
