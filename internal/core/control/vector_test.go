package control_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tidemark/internal/assert"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/vectors"
)

// controllerVector is a vector of isr_hw.json whose kind is a controller's.
type controllerVector struct {
	ID, Kind, Title string
	Partition       struct {
		Leader      types.BrokerID
		LeaderEpoch types.LeaderEpoch `json:"leader_epoch"`
		Replicas    []types.BrokerID
		// Brokers, PartitionEpoch and Recovering are those of isr_change_request.
		Brokers        map[types.BrokerID]vectorBroker
		PartitionEpoch int64 `json:"partition_epoch"`
		Recovering     bool
		// ISR, Alive, Unclean and Type are those of election.
		ISR     []types.BrokerID
		Alive   []types.BrokerID
		Unclean bool
		Type    string
	}
	Request struct {
		From           types.BrokerID
		LeaderEpoch    types.LeaderEpoch `json:"leader_epoch"`
		PartitionEpoch int64             `json:"partition_epoch"`
		ISR            []struct {
			Broker types.BrokerID
			Epoch  types.BrokerEpoch `json:"broker_epoch"`
		}
	}
	Expect controllerOutcome
}

type vectorBroker struct {
	State string
	Epoch types.BrokerEpoch
}

// controllerOutcome is an error's name for a request, the rest for an election.
type controllerOutcome struct {
	Error       string
	Leader      types.BrokerID
	ISR         []types.BrokerID
	Unclean     bool
	LeaderEpoch types.LeaderEpoch `json:"leader_epoch"`
}

// refusals gives the errors of ChangeISR the vectors' names. No client sees
// them: a leader plans its own change, and there is no API for it.
var refusals = []struct {
	err  error
	name string
}{
	{control.ErrRecordChanged, "INVALID_UPDATE_VERSION"},
	{control.ErrNotRegistered, "INELIGIBLE_REPLICA"},
}

// otherwise lists the vectors whose outcome here is another than expected, and
// why. A line whose outcome is the expected one fails.
var otherwise = map[string]struct {
	why  string
	want controllerOutcome
}{
	"IH-067": {"the record's revision stands for leader epoch and partition epoch at once (R7)",
		controllerOutcome{Error: "INVALID_UPDATE_VERSION"}},
	"IH-069": {"the leader plans itself; on an image behind its record it is refused as for any other record (R7)",
		controllerOutcome{Error: "INVALID_UPDATE_VERSION"}},
	"IH-073": {"a broker that is no replica is as little fit to join as one that isn't registered",
		controllerOutcome{Error: "INELIGIBLE_REPLICA"}},
	"IH-074": {"the proposer is the planner, so that an ISR without it is a bug, not bad input",
		controllerOutcome{Error: "I-211"}},
	"IH-079": {"there is no state of recovery: an uncleanly elected leader is the ISR, and R15 lets others join at its log",
		controllerOutcome{Error: "NONE"}},
	"IH-086": {"without a leader to elect the record stays: the old one's registration has ended, so that it leads nothing (R10)",
		controllerOutcome{Leader: types.NoBroker, ISR: brokers{1}, LeaderEpoch: 5}},
	"IH-089": {"as IH-086", controllerOutcome{Leader: types.NoBroker, ISR: brokers{1}, LeaderEpoch: 5}},
}

// TestVectorISRHighWatermark runs the kinds of isr_hw.json that are the
// controller's: isr_change_request and election. core/replica's are the others.
func TestVectorISRHighWatermark(t *testing.T) {
	ran := make(map[string]bool)
	kinds := map[string]int{}
	for _, v := range vectors.Load[controllerVector](t, "isr_hw") {
		var run func(*testing.T, *controllerVector) controllerOutcome
		switch v.Kind {
		case "isr_change_request":
			run = runISRChange
		case "election":
			run = runElection
		case "leader_state", "log_watermark":
			continue
		default:
			t.Fatalf("%s: unknown kind %s", v.ID, v.Kind)
		}
		ran[v.ID] = true
		kinds[v.Kind]++
		t.Run(v.ID, func(t *testing.T) {
			want := v.Expect
			got := run(t, &v)
			if o, ok := otherwise[v.ID]; ok {
				if want = o.want; cmp.Equal(v.Expect, want, asSet) {
					t.Errorf("listed as another outcome than expected, and is the same (%s)", o.why)
				}
			}
			if diff := cmp.Diff(want, got, asSet); diff != "" {
				t.Fatalf("%s: -want +got\n%s", v.Title, diff)
			}
		})
	}
	for id := range otherwise {
		if !ran[id] {
			t.Errorf("%s is listed and isn't there", id)
		}
	}
	if kinds["isr_change_request"] < 11 || kinds["election"] < 8 {
		t.Errorf("%v: fewer vectors than there were", kinds)
	}
}

// asSet compares ISRs without their order, which means nothing.
var asSet = cmp.Transformer("set", func(ids []types.BrokerID) string {
	return fmt.Sprint(slices.Sorted(slices.Values(ids)))
})

// put writes a partition's record as it is, and gives its revision.
func (c *cluster) put(id types.TopicID, change func(*meta.PartitionRecord)) meta.Revision {
	c.t.Helper()
	r := c.partition(id, 0).Clone()
	change(&r)
	c.commit(meta.Plan{Why: "a vector's record", Then: []meta.Op{meta.Put(c.image.Keys().Partition(id, 0), r.Encode())}})
	_, revision := c.image.Partition(id, 0)
	return revision
}

// vectorTopic makes a topic of one partition on brokers that are registered, with min ISR 1.
func (c *cluster) vectorTopic(v *controllerVector, me control.Me) types.TopicID {
	c.t.Helper()
	r := topicRequest("a", 1, 0)
	r.Assignment, r.MinISR = [][]types.BrokerID{v.Partition.Replicas}, 1
	return c.create(me, r).ID
}

// isrRequest is one isr_change_request: a partition whose leader is in sync
// alone, and proposes.
type isrRequest struct {
	*cluster
	v      *controllerVector
	id     types.TopicID
	mes    map[types.BrokerID]control.Me
	leases map[types.BrokerID]meta.LeaseID
	// earlier are registrations that had ended before the vector begins.
	earlier map[types.BrokerID]types.BrokerEpoch
}

func newISRRequest(t *testing.T, v *controllerVector) *isrRequest {
	r := &isrRequest{
		cluster: newCluster(t), v: v, mes: make(map[types.BrokerID]control.Me),
		leases: make(map[types.BrokerID]meta.LeaseID), earlier: make(map[types.BrokerID]types.BrokerEpoch),
	}
	for _, b := range v.Partition.Replicas {
		r.earlier[b] = r.register(b).Epoch
		r.mes[b], r.leases[b] = r.registerLeased(b)
	}
	r.id = r.vectorTopic(v, r.mes[v.Request.From])
	for _, b := range v.Partition.Replicas {
		switch v.Partition.Brokers[b].State {
		case "active":
		case "fenced", "": // a lease that is over both fences and unregisters
			r.end(r.leases, b)
		default:
			t.Fatalf("broker %d: unknown state %s", b, v.Partition.Brokers[b].State)
		}
	}
	return r
}

// members are the request's, in the registrations of this cluster that stand for the vector's.
func (r *isrRequest) members() []meta.ISRMember {
	var isr []meta.ISRMember
	for _, m := range r.v.Request.ISR {
		epoch := r.earlier[m.Broker]
		switch said := r.v.Partition.Brokers[m.Broker]; m.Epoch {
		case types.NoBrokerEpoch:
			epoch = types.NoBrokerEpoch
		case said.Epoch:
			epoch = r.mes[m.Broker].Epoch
		}
		isr = append(isr, meta.ISRMember{ID: m.Broker, BrokerEpoch: epoch})
	}
	return isr
}

// record is the vector's partition at one pair of epochs.
func (r *isrRequest) record(epoch types.LeaderEpoch) meta.Revision {
	leader := r.mes[r.v.Partition.Leader]
	return r.put(r.id, func(p *meta.PartitionRecord) {
		p.Leader, p.LeaderBrokerEpoch, p.LeaderEpoch = leader.ID, leader.Epoch, epoch
		p.ISR = []meta.ISRMember{{ID: leader.ID, BrokerEpoch: leader.Epoch}}
	})
}

// runISRChange gives the request the record that it was decided on (R7): the
// present one, an older one, or one that the image doesn't have yet.
func runISRChange(t *testing.T, v *controllerVector) controllerOutcome {
	r := newISRRequest(t, v)
	p, q := &v.Partition, &v.Request
	older := q.LeaderEpoch < p.LeaderEpoch || q.PartitionEpoch < p.PartitionEpoch
	switch {
	case older:
		from := r.record(q.LeaderEpoch)
		before, _ := r.propose(from)
		r.record(p.LeaderEpoch)
		// Planned before the image knew, it is the store that refuses it.
		r.refused(before)
		return r.outcome(from)
	case q.PartitionEpoch > p.PartitionEpoch:
		r.record(p.LeaderEpoch)
		behind := r.image
		from := r.record(q.LeaderEpoch)
		r.image = behind
		return r.outcome(from)
	case p.Recovering:
		// An unclean election made the leader, which is in sync alone.
		r.record(p.LeaderEpoch - 1)
		r.end(r.leases, p.Leader)
		r.mes[p.Leader], r.leases[p.Leader] = r.registerLeased(p.Leader)
		if e, ok := r.elect(r.id, p.Leader, true, r.mes[p.Leader]); !ok || e.Kind != control.ElectedUnclean || e.Record.LeaderEpoch != p.LeaderEpoch {
			t.Fatalf("%+v, want an unclean election", e)
		}
		_, from := r.image.Partition(r.id, 0)
		return r.outcome(from)
	}
	out := r.outcome(r.record(p.LeaderEpoch))
	for _, m := range q.ISR {
		if slices.Contains(p.Replicas, m.Broker) {
			continue
		}
		// No replica, but registered: refused all the same.
		isr := append(r.members()[:1:1], meta.ISRMember{ID: m.Broker, BrokerEpoch: r.register(m.Broker).Epoch})
		_, from := r.image.Partition(r.id, 0)
		_, err := control.ChangeISR(r.image, r.id, 0, from, isr, r.mes[q.From])
		wantError(t, err, control.ErrNotRegistered)
	}
	return out
}

// propose plans the request; a broken invariant is an error here.
func (r *isrRequest) propose(from meta.Revision) (plan meta.Plan, err error) {
	defer func() {
		if x := recover(); x != nil {
			broken, ok := x.(*assert.Error)
			if !ok {
				panic(x)
			}
			err = broken
		}
	}()
	return control.ChangeISR(r.image, r.id, 0, from, r.members(), r.mes[r.v.Request.From])
}

// outcome carries the request out: the name of what refuses it, or NONE with its ISR in force.
func (r *isrRequest) outcome(from meta.Revision) controllerOutcome {
	r.t.Helper()
	old := r.partition(r.id, 0).Clone()
	plan, err := r.propose(from)
	if err != nil {
		return controllerOutcome{Error: refusal(r.t, err)}
	}
	r.commit(plan)
	if p := r.partition(r.id, 0); !slices.Equal(p.ISR, r.members()) || p.Leader != old.Leader || p.LeaderEpoch != old.LeaderEpoch {
		r.t.Fatalf("%+v, want the ISR %v and all else as before", p, r.members())
	}
	return controllerOutcome{Error: "NONE"}
}

func refusal(t *testing.T, err error) string {
	t.Helper()
	var broken *assert.Error
	if errors.As(err, &broken) {
		number, _, _ := strings.Cut(broken.Message, ":")
		return number
	}
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return r.name
		}
	}
	t.Fatalf("refused for no known reason: %v", err)
	return ""
}

// runElection lets a controller that holds no replica settle the partition, or
// elect its preferred leader.
func runElection(t *testing.T, v *controllerVector) controllerOutcome {
	c, p := newCluster(t), &v.Partition
	office, lease := c.registerLeased(100)
	boss := c.office(office, lease)
	mes, leases := make(map[types.BrokerID]control.Me), make(map[types.BrokerID]meta.LeaseID)
	for _, b := range p.Replicas {
		mes[b], leases[b] = c.registerLeased(b)
	}
	id := c.vectorTopic(v, boss)
	c.put(id, func(r *meta.PartitionRecord) {
		r.Leader, r.LeaderBrokerEpoch, r.LeaderEpoch = p.Leader, mes[p.Leader].Epoch, p.LeaderEpoch
		r.ISR = nil
		for _, b := range p.ISR {
			r.ISR = append(r.ISR, meta.ISRMember{ID: b, BrokerEpoch: mes[b].Epoch})
		}
	})
	for _, b := range p.Replicas {
		if !slices.Contains(p.Alive, b) {
			c.end(leases, b)
		}
	}
	for _, b := range p.Alive { // all that an unclean election would want to know
		logs := []meta.LogReport{{Topic: id, Revision: mustEntry(c, id).ModRevision, LastEpoch: p.LeaderEpoch, LogEnd: 1}}
		plan, err := control.Report(c.image, logs, mes[b], leases[b])
		if err != nil {
			t.Fatal(err)
		}
		c.commit(plan)
	}
	var changes []control.Change
	switch p.Type {
	case "online":
		changes = c.settleAll(boss, control.Policy{Unclean: func(*meta.Topic) bool { return p.Unclean }})
	case "preferred":
		change, err := control.ElectPreferred(c.image, mustEntry(c, id), boss)
		if err == nil {
			c.commit(change.Plan)
			changes = append(changes, change)
		} else {
			wantError(t, err, control.ErrPreferredUnavailable)
		}
	default:
		t.Fatalf("unknown type %s", p.Type)
	}
	r := c.partition(id, 0)
	out := controllerOutcome{Leader: r.Leader, ISR: r.ISRIDs(), LeaderEpoch: r.LeaderEpoch}
	if control.NeedsLeader(c.image, r) {
		out.Leader = types.NoBroker // what clients are told
	}
	for _, change := range changes {
		out.Unclean = out.Unclean || change.Kind == control.ElectedUnclean || change.Kind == control.ElectedSole
	}
	return out
}
