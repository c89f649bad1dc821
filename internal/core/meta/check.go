package meta

import (
	"errors"
	"fmt"
	"slices"

	"tidemark/internal/core/types"
)

// check finds what no writer of ours could have meant, so that a damaged value
// stops at its key.
func (r *PartitionRecord) check() error {
	if err := r.checkReplicas(); err != nil {
		return err
	}
	if r.LeaderEpoch < 0 {
		return fmt.Errorf("leader epoch %d", r.LeaderEpoch)
	}
	if r.Restored && (r.Leader != types.NoBroker || len(r.ISR)+len(r.ELR) > 0) {
		return fmt.Errorf("restored, and led by %d with ISR %v and ELR %v", r.Leader, r.ISRIDs(), r.ELRIDs())
	}
	if r.MinISR < 1 {
		return fmt.Errorf("min ISR %d", r.MinISR)
	}
	if err := r.Timelines.Validate(); len(r.Timelines) > 0 && err != nil {
		return err
	}
	if last, ok := r.Timelines.Last(); ok && last.FirstEpoch > r.LeaderEpoch {
		return fmt.Errorf("timeline %s begins at epoch %d, above the leader epoch %d", last.ID, last.FirstEpoch, r.LeaderEpoch)
	}
	return r.checkMirror()
}

func (r *PartitionRecord) checkReplicas() error {
	if len(r.Replicas) == 0 {
		return errors.New("no replicas")
	}
	for i, id := range r.Replicas {
		if id < 0 || slices.Contains(r.Replicas[:i], id) {
			return fmt.Errorf("replica %d is impossible or named twice", id)
		}
	}
	if r.Leader != types.NoBroker && !slices.Contains(r.Replicas, r.Leader) {
		return fmt.Errorf("leader %d is not a replica", r.Leader)
	}
	for i, id := range slices.Concat(r.Adding, r.Removing) {
		if !slices.Contains(r.Replicas, id) || slices.Contains(slices.Concat(r.Adding, r.Removing)[:i], id) {
			return fmt.Errorf("replica %d of a reassignment is not a replica or named twice", id)
		}
	}
	seen := make([]types.BrokerID, 0, len(r.Replicas))
	for _, members := range [][]ISRMember{r.ISR, r.ELR} {
		for _, m := range members {
			if !slices.Contains(r.Replicas, m.ID) || slices.Contains(seen, m.ID) {
				return fmt.Errorf("in-sync or eligible replica %d is not a replica or named twice", m.ID)
			}
			seen = append(seen, m.ID)
		}
	}
	return nil
}

func (r *PartitionRecord) checkMirror() error {
	if r.Fence != nil {
		return r.checkFence()
	}
	if r.Mirror == nil {
		if !r.Writable {
			return errors.New("read-only without a mirror")
		}
		if len(r.Timelines) == 0 {
			return errors.New("writable without a timeline")
		}
		return nil
	}
	m := r.Mirror
	if m.Name == "" || !slices.Contains(mirrorStates, m.State) {
		return fmt.Errorf("mirror %q in state %q", m.Name, m.State)
	}
	if r.Writable && m.State != MirrorStopped && m.State != MirrorFailed {
		return fmt.Errorf("writable while the mirror is in state %s", m.State)
	}
	if r.Writable && len(r.Timelines) == 0 {
		return errors.New("writable without a timeline")
	}
	return nil
}

// checkFence: what is fenced would be writable but for the fence.
func (r *PartitionRecord) checkFence() error {
	switch {
	case r.Writable:
		return errors.New("writable behind a fence")
	case len(r.Timelines) == 0:
		return errors.New("fenced without a timeline")
	case r.Mirror != nil && r.Mirror.State != MirrorStopped && r.Mirror.State != MirrorFailed:
		return fmt.Errorf("fenced while the mirror is in state %s", r.Mirror.State)
	}
	return nil
}

func (r *ClusterRecord) check() error {
	if !ValidClusterID(r.ID) {
		return fmt.Errorf("cluster id %q", r.ID)
	}
	return nil
}

func (r *BrokerRecord) check() error {
	if r.ID < 0 {
		return fmt.Errorf("broker id %d", r.ID)
	}
	for _, e := range r.Endpoints {
		if e.Host == "" || e.Port < 1 || e.Port > 65535 {
			return fmt.Errorf("endpoint %s %q:%d", e.Listener, e.Host, e.Port)
		}
	}
	return nil
}

func (r *ReportRecord) check() error {
	if r.Broker < 0 {
		return fmt.Errorf("broker id %d", r.Broker)
	}
	for _, l := range r.Logs {
		if l.Topic.IsZero() || l.Partition < 0 || l.LogEnd < 0 {
			return fmt.Errorf("log of partition %d of topic id %s ends at %d", l.Partition, l.Topic, l.LogEnd)
		}
	}
	return nil
}

func (r *TopicRecord) check() error {
	if r.ID.IsZero() || r.Name == "" {
		return fmt.Errorf("topic %q has id %s", r.Name, r.ID)
	}
	if r.Partitions < 1 {
		return fmt.Errorf("%d partitions", r.Partitions)
	}
	if r.GrownTo < 0 {
		return fmt.Errorf("grown to %d replicas", r.GrownTo)
	}
	if r.Drill != nil && (r.Drill.Name == "" || r.Drill.Run == "") {
		return fmt.Errorf("a part of drill %q, run %q", r.Drill.Name, r.Drill.Run)
	}
	return nil
}

func (r *NameRecord) check() error {
	if r.ID.IsZero() {
		return errors.New("no topic id")
	}
	return nil
}

func (r *ControllerRecord) check() error {
	if r.Broker < 0 {
		return fmt.Errorf("broker id %d", r.Broker)
	}
	return nil
}

func (r *MirrorRecord) check() error {
	if r.Name == "" || !slices.Contains(mirrorWants, r.Want) {
		return fmt.Errorf("mirror %q is asked to be %q", r.Name, r.Want)
	}
	if s := r.Switch; s != nil && (s.Attempt.Number < 1 || !slices.Contains(switchStates, s.State)) {
		return fmt.Errorf("mirror %q: switchover %d is %q", r.Name, s.Attempt.Number, s.State)
	}
	if r.Cut == nil {
		return nil
	}
	for topic, list := range r.Cut.Offsets {
		for n, at := range list {
			if at < types.NoOffset {
				return fmt.Errorf("mirror %q: cut %s promotes partition %d of topic id %s at offset %d", r.Name, r.Cut.ID, n, topic, at)
			}
		}
	}
	return nil
}

func (r *BrokerConfigRecord) check() error { return nil }

func (r *NodeRecord) check() error {
	if r.ID < 0 {
		return fmt.Errorf("node id %d", r.ID)
	}
	return nil
}

func (r *FeaturesRecord) check() error {
	for name, level := range r.Levels {
		if name == "" || level < 0 {
			return fmt.Errorf("feature %q at level %d", name, level)
		}
	}
	return nil
}

func (r *ProducerIDsRecord) check() error {
	if r.High >= 1<<31 || r.Next > 1<<32 {
		return fmt.Errorf("producer id range %d, next %d", r.High, r.Next)
	}
	return nil
}
