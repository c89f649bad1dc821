package source

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
)

// GroupListing names one group of the source.
type GroupListing struct {
	ID           string
	ProtocolType string
	// State is empty for a source that doesn't list states (before KIP-518).
	State string
	// Type is "classic", "consumer", "share" or empty (before KIP-848).
	Type string
}

// Groups lists the groups of every live broker of the source. A broker that
// can't be asked is an error: a list with holes would look like deleted groups.
func (c *Client) Groups(ctx context.Context) ([]GroupListing, error) {
	var out []GroupListing
	for _, id := range c.liveBrokers() {
		kr, address, err := c.askAt(ctx, id, kmsg.NewPtrListGroupsRequest())
		if err != nil {
			return nil, err
		}
		resp := kr.(*kmsg.ListGroupsResponse)
		if resp.ErrorCode != 0 {
			return nil, answerError(address, "ListGroups", Code(resp.ErrorCode), "")
		}
		for _, g := range resp.Groups {
			out = append(out, GroupListing{ID: g.Group, ProtocolType: g.ProtocolType, State: g.GroupState, Type: g.GroupType})
			c.setCoordinator(g.Group, id) // only a group's coordinator lists it
		}
	}
	slices.SortFunc(out, func(a, b GroupListing) int { return strings.Compare(a.ID, b.ID) })
	return slices.CompactFunc(out, func(a, b GroupListing) bool { return a.ID == b.ID }), nil
}

func (c *Client) liveBrokers() []types.BrokerID {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := make([]types.BrokerID, 0, len(c.brokers))
	for id := range c.brokers {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (c *Client) setCoordinator(group string, id types.BrokerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.coordinators[group] = id
}

func (c *Client) forgetCoordinator(group string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.coordinators, group)
}

// CommittedOffset is one offset that a group has committed.
type CommittedOffset struct {
	Offset types.Offset
	// Epoch is the leader epoch of the commit, types.NoLeaderEpoch if the group didn't say.
	Epoch    types.LeaderEpoch
	Metadata string
}

// GroupOffsets is what one group has committed, or why it isn't known.
type GroupOffsets struct {
	Err     error
	Offsets map[types.TopicPartition]CommittedOffset
}

// GroupOffsets asks the groups' coordinators for all committed offsets. Every
// named group has an entry in the result.
func (c *Client) GroupOffsets(ctx context.Context, groups []string) map[string]GroupOffsets {
	out := make(map[string]GroupOffsets, len(groups))
	byBroker := map[types.BrokerID][]string{}
	for _, g := range groups {
		id, err := c.coordinator(ctx, g)
		if err != nil {
			out[g] = GroupOffsets{Err: err}
			continue
		}
		byBroker[id] = append(byBroker[id], g)
	}
	for id, ids := range byBroker {
		c.fetchOffsets(ctx, id, ids, out)
	}
	return out
}

// coordinator finds a group's coordinator, by memory if it has been seen.
func (c *Client) coordinator(ctx context.Context, group string) (types.BrokerID, error) {
	c.mu.Lock()
	id, ok := c.coordinators[group]
	c.mu.Unlock()
	if ok {
		return id, nil
	}
	err := c.anyBroker(ctx, func(cn *conn) error {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey, req.CoordinatorKeys = group, []string{group}
		kr, err := cn.ask(ctx, req)
		if err != nil {
			return err
		}
		resp := kr.(*kmsg.FindCoordinatorResponse)
		code, node := resp.ErrorCode, resp.NodeID
		if resp.Version >= 4 {
			if len(resp.Coordinators) != 1 {
				return protocolError(cn.address, "FindCoordinator", "%d answers to one question", len(resp.Coordinators))
			}
			code, node = resp.Coordinators[0].ErrorCode, resp.Coordinators[0].NodeID
		}
		if code != 0 {
			return answerError(cn.address, "FindCoordinator", Code(code), "group "+group)
		}
		id = types.BrokerID(node)
		return nil
	})
	if err == nil {
		c.setCoordinator(group, id)
	}
	return id, err
}

// groupsPerRequest bounds one OffsetFetch.
const groupsPerRequest = 200

// fetchOffsets asks one coordinator for its groups and puts the answers into out.
func (c *Client) fetchOffsets(ctx context.Context, id types.BrokerID, groups []string, out map[string]GroupOffsets) {
	cn, err := c.brokerConn(ctx, id, purposeRequests)
	if err != nil {
		c.failGroups(groups, err, out)
		return
	}
	version, err := cn.versions.choose(cn.address, 9)
	if err != nil {
		c.failGroups(groups, err, out)
		return
	}
	step := 1
	if version >= 8 {
		step = groupsPerRequest
	}
	for chunk := range slices.Chunk(groups, step) {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.SetVersion(version)
		req.Group, req.Topics = chunk[0], nil // null: all topics (v2)
		if version >= 8 {
			for _, g := range chunk {
				rg := kmsg.NewOffsetFetchRequestGroup()
				rg.Group, rg.Topics = g, nil
				req.Groups = append(req.Groups, rg)
			}
		}
		kr, err := cn.askAt(ctx, req, c.cfg.RequestTimeout)
		if err != nil {
			c.failGroups(chunk, err, out)
			continue
		}
		c.takeOffsets(cn.address, chunk, kr.(*kmsg.OffsetFetchResponse), out)
	}
}

func (c *Client) failGroups(groups []string, err error, out map[string]GroupOffsets) {
	for _, g := range groups {
		c.forgetCoordinator(g)
		out[g] = GroupOffsets{Err: err}
	}
}

func (c *Client) takeOffsets(broker string, groups []string, resp *kmsg.OffsetFetchResponse, out map[string]GroupOffsets) {
	if resp.Version < 8 {
		g := GroupOffsets{Offsets: map[types.TopicPartition]CommittedOffset{}}
		code := Code(resp.ErrorCode)
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode != 0 && code == 0 {
					code = Code(p.ErrorCode)
				}
				g.add(t.Topic, p.Partition, p.Offset, p.LeaderEpoch, p.Metadata)
			}
		}
		c.putGroup(broker, groups[0], code, g, out)
		return
	}
	for _, rg := range resp.Groups {
		if !slices.Contains(groups, rg.Group) {
			continue
		}
		g := GroupOffsets{Offsets: map[types.TopicPartition]CommittedOffset{}}
		code := Code(rg.ErrorCode)
		for _, t := range rg.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode != 0 && code == 0 {
					code = Code(p.ErrorCode)
				}
				g.add(t.Topic, p.Partition, p.Offset, p.LeaderEpoch, p.Metadata)
			}
		}
		c.putGroup(broker, rg.Group, code, g, out)
	}
	for _, g := range groups {
		if _, ok := out[g]; !ok {
			out[g] = GroupOffsets{Err: protocolError(broker, "OffsetFetch", "no answer for group %q", g)}
		}
	}
}

func (g *GroupOffsets) add(topic string, partition int32, offset int64, epoch int32, metadata *string) {
	if offset < 0 || partition < 0 {
		return // no commit
	}
	o := CommittedOffset{Offset: types.Offset(offset), Epoch: types.LeaderEpoch(epoch)}
	if metadata != nil {
		o.Metadata = *metadata
	}
	g.Offsets[types.TopicPartition{Topic: topic, Partition: partition}] = o
}

func (c *Client) putGroup(broker, group string, code Code, g GroupOffsets, out map[string]GroupOffsets) {
	if code != 0 {
		g = GroupOffsets{Err: answerError(broker, "OffsetFetch", code, "group "+group)}
		if code == CodeNotCoordinator || code == CodeCoordinatorNotAvailable {
			c.forgetCoordinator(group)
		}
	}
	out[group] = g
}
