package e2e

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"tidemark/test/e2e/harness"
)

// freeAddr finds a loopback address that was free a moment ago, for a node that keeps its port
// over a restart. It isn't 127.0.0.1, where others take ports all the time.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.3:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// atVersion gives a client that asks an API in just one version.
func atVersion(t *testing.T, b *harness.Broker, key, version int16) *kgo.Client {
	t.Helper()
	v := kversion.Stable()
	v.SetMaxKeyVersion(key, version)
	return b.Client(t, kgo.MaxVersions(v), kgo.MinVersions(minAt(key, version)))
}

func minAt(key, version int16) *kversion.Versions {
	v := new(kversion.Versions)
	v.SetMaxKeyVersion(key, version)
	return v
}

func topicID(t *testing.T, b *harness.Broker, topic string) [16]byte {
	t.Helper()
	d, err := b.Admin(t).ListTopics(harness.Context(t), topic)
	if err != nil {
		t.Fatal(err)
	}
	return d[topic].ID
}

// warmUp waits until the offsets topic is made and its groups are loaded: the
// first requests of a new cluster may be told to come again.
func warmUp(t *testing.T, b *harness.Broker) {
	t.Helper()
	admin := b.Admin(t)
	harness.Eventually(t, "groups are served", func() bool {
		_, err := admin.FetchOffsets(harness.Context(t), "g")
		if err != nil {
			return false
		}
		_, err = admin.ListGroups(harness.Context(t))
		return err == nil
	})
}

// Offsets of a group that never was are -1 without an error, in every version.
func TestGroupOffsetFetchUnknown(t *testing.T) {
	b := harness.StartBroker(t)
	warmUp(t, b)
	b.CreateTopic(t, "t", 1, nil)
	id := topicID(t, b, "t")
	for version := int16(1); version <= 10; version++ {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Group = "nobody"
		topic := kmsg.NewOffsetFetchRequestTopic()
		topic.Topic, topic.Partitions = "t", []int32{0}
		req.Topics = append(req.Topics, topic)
		group := kmsg.NewOffsetFetchRequestGroup()
		group.Group = "nobody"
		group.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", TopicID: id, Partitions: []int32{0}}}
		req.Groups = append(req.Groups, group)
		resp, err := req.RequestWith(harness.Context(t), atVersion(t, b, 9, version))
		if err != nil {
			t.Errorf("version %d: %v", version, err)
			continue
		}
		if resp.Version != version {
			t.Fatalf("asked in version %d, answered in %d", version, resp.Version)
		}
		var offset int64
		var code int16
		if version < 8 {
			p := resp.Topics[0].Partitions[0]
			offset, code = p.Offset, p.ErrorCode|resp.ErrorCode
		} else {
			g := resp.Groups[0]
			p := g.Topics[0].Partitions[0]
			offset, code = p.Offset, p.ErrorCode|g.ErrorCode
		}
		if offset != -1 || code != 0 {
			t.Errorf("version %d: offset %d, error %d", version, offset, code)
		}
	}
}

// A commit and its answer in each version: names, ids, leader epochs.
func TestGroupOffsetCommitVersions(t *testing.T) {
	b := harness.StartBroker(t)
	warmUp(t, b)
	b.CreateTopic(t, "t", 11, nil)
	id := topicID(t, b, "t")
	for version := int16(2); version <= 10; version++ {
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Group, req.Generation = "g", -1
		good := kmsg.OffsetCommitRequestTopic{Topic: "t", TopicID: id}
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = int32(version), int64(version), 3, kmsg.StringPtr("m")
		good.Partitions = append(good.Partitions, p)
		bad := kmsg.OffsetCommitRequestTopic{Topic: "none", TopicID: [16]byte{1}, Partitions: good.Partitions}
		req.Topics = append(req.Topics, bad, good)
		resp, err := req.RequestWith(harness.Context(t), atVersion(t, b, 8, version))
		if err != nil {
			t.Errorf("version %d: %v", version, err)
			continue
		}
		wantBad := kerr.UnknownTopicOrPartition.Code
		if version >= 10 {
			wantBad = kerr.UnknownTopicID.Code
		}
		if got := resp.Topics[0].Partitions[0].ErrorCode; got != wantBad {
			t.Errorf("version %d: unknown topic gave %d, want %d", version, got, wantBad)
		}
		if got := resp.Topics[1].Partitions[0].ErrorCode; got != 0 {
			t.Errorf("version %d: %v", version, kerr.ErrorForCode(got))
		}
	}
	offsets, err := b.Admin(t).FetchOffsets(harness.Context(t), "g")
	if err != nil {
		t.Fatal(err)
	}
	for version := int32(2); version <= 10; version++ {
		wantEpoch := int32(3)
		if version < 6 {
			wantEpoch = -1
		}
		if o, ok := offsets.Lookup("t", version); !ok || o.At != int64(version) || o.LeaderEpoch != wantEpoch || o.Metadata != "m" {
			t.Errorf("committed in version %d: %+v", version, o)
		}
	}
}

// Several groups in one request, by name (v8) and by id (v10); all topics of a group.
func TestGroupOffsetFetchMany(t *testing.T) {
	b := harness.StartBroker(t)
	warmUp(t, b)
	b.CreateTopic(t, "t", 2, nil)
	b.CreateTopic(t, "u", 1, nil)
	id := topicID(t, b, "t")
	admin := b.Admin(t)
	commitAt := func(group, topic string, partition int32, at int64) {
		t.Helper()
		var os kadm.Offsets
		os.Add(kadm.Offset{Topic: topic, Partition: partition, At: at, LeaderEpoch: -1})
		if err := admin.CommitAllOffsets(harness.Context(t), group, os); err != nil {
			t.Fatal(err)
		}
	}
	commitAt("a", "t", 0, 5)
	commitAt("a", "u", 0, 6)
	commitAt("b", "t", 1, 7)
	for _, version := range []int16{8, 9, 10} {
		req := kmsg.NewPtrOffsetFetchRequest()
		all := kmsg.NewOffsetFetchRequestGroup()
		all.Group = "a"
		some := kmsg.NewOffsetFetchRequestGroup()
		some.Group = "b"
		some.Topics = []kmsg.OffsetFetchRequestGroupTopic{
			{Topic: "t", TopicID: id, Partitions: []int32{1, 0}}, {Topic: "none", TopicID: [16]byte{9}, Partitions: []int32{0}},
		}
		none := kmsg.NewOffsetFetchRequestGroup()
		none.Group = "c"
		req.Groups = append(req.Groups, all, some, none)
		resp, err := req.RequestWith(harness.Context(t), atVersion(t, b, 9, version))
		if err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		if len(resp.Groups) != 3 || len(resp.Groups[0].Topics) != 2 || len(resp.Groups[2].Topics) != 0 {
			t.Fatalf("version %d: %+v", version, resp.Groups)
		}
		if version >= 10 && resp.Groups[0].Topics[0].TopicID != id {
			t.Errorf("version %d: topic without its id: %+v", version, resp.Groups[0].Topics[0])
		}
		ps := resp.Groups[1].Topics[0].Partitions
		if ps[0].Offset != 7 || ps[1].Offset != -1 {
			t.Errorf("version %d: %+v", version, ps)
		}
		want := int16(0)
		if version >= 10 {
			want = kerr.UnknownTopicID.Code
		}
		if p := resp.Groups[1].Topics[1].Partitions[0]; p.Offset != -1 || p.ErrorCode != want {
			t.Errorf("version %d: unknown topic gave %+v, want error %d", version, p, want)
		}
	}
}

// The offsets topic can be read as a topic, in Kafka's own format, as Burrow does.
func TestGroupOffsetsTopicIsReadable(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "t", 1, nil)
	fill(t, b, "t", 1, 5)
	var y tally
	m := startMember(t, b, "readers", "t", &y)
	harness.Eventually(t, "all records are read", func() bool { return y.count() == 5 })
	m.leave()
	c := b.Client(t, kgo.ConsumeTopics("__consumer_offsets"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	offset, group := int64(-1), ""
	for ctx := harness.Context(t); offset < 5 || group != "Empty"; {
		fetches := c.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("offset %d, group %q", offset, group)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			var ok kmsg.OffsetCommitKey
			if ok.ReadFrom(r.Key) == nil && ok.Version <= 1 && ok.Group == "readers" {
				var ov kmsg.OffsetCommitValue
				if err := ov.ReadFrom(r.Value); err != nil {
					t.Errorf("offset record: %v", err)
				}
				offset = ov.Offset
			}
			var gk kmsg.GroupMetadataKey
			if gk.ReadFrom(r.Key) == nil && gk.Version == 2 && gk.Group == "readers" {
				var gv kmsg.GroupMetadataValue
				if err := gv.ReadFrom(r.Value); err != nil {
					t.Errorf("group record: %v", err)
				}
				group = "Stable"
				if len(gv.Members) == 0 {
					group = "Empty"
				}
			}
		})
	}
	d, err := b.Admin(t).DescribeTopicConfigs(harness.Context(t), "__consumer_offsets")
	if err != nil {
		t.Fatal(err)
	}
	for _, cfg := range d[0].Configs {
		switch cfg.Key {
		case "cleanup.policy":
			if cfg.MaybeValue() != "compact" {
				t.Errorf("%s is %s", cfg.Key, cfg.MaybeValue())
			}
		case "segment.bytes":
			if cfg.MaybeValue() != "104857600" {
				t.Errorf("%s is %s", cfg.Key, cfg.MaybeValue())
			}
		}
	}
}

// What operators do with groups: list, describe, delete offsets, delete.
func TestGroupAdministration(t *testing.T) {
	b := harness.StartBroker(t)
	warmUp(t, b)
	b.CreateTopic(t, "t", 1, nil)
	b.CreateTopic(t, "u", 1, nil)
	fill(t, b, "t", 1, 5)
	admin, ctx := b.Admin(t), harness.Context(t)
	var y tally
	m := startMember(t, b, "g", "t", &y)
	harness.Eventually(t, "one member is stable", stableMembers(t, admin, "g", 1))
	harness.Eventually(t, "all records are read", func() bool { return y.count() == 5 })

	list, err := admin.ListGroups(ctx, "Stable")
	if err != nil || len(list) != 1 || list["g"].ProtocolType != "consumer" {
		t.Errorf("list: %+v, %v", list, err)
	}
	if list, err = admin.ListGroups(ctx, "Empty"); err != nil || len(list) != 0 {
		t.Errorf("empty groups: %+v, %v", list, err)
	}
	d, err := admin.DescribeGroups(ctx, "g", "none")
	if err != nil || d["g"].Err != nil || d["g"].Protocol == "" || len(d.AssignedPartitions()["t"]) != 1 {
		t.Errorf("describe: %+v, %v", d, err)
	}
	if !errors.Is(d["none"].Err, kerr.GroupIDNotFound) {
		t.Errorf("describe an unknown group: %+v", d["none"])
	}
	if r, err := admin.DeleteGroup(ctx, "g"); !errors.Is(firstErr(err, r.Err), kerr.NonEmptyGroup) {
		t.Errorf("delete a group with members: %+v, %v", r, err)
	}
	deleted, err := admin.DeleteOffsets(ctx, "g", kadm.TopicsSet{"t": {0: {}}, "u": {0: {}}})
	if err != nil || !errors.Is(deleted["t"][0], kerr.GroupSubscribedToTopic) || deleted["u"][0] != nil {
		t.Errorf("delete offsets: %+v, %v", deleted, err)
	}
	m.leave()
	harness.Eventually(t, "the group is empty", func() bool {
		d, err := admin.DescribeGroups(ctx, "g")
		return err == nil && d["g"].State == "Empty"
	})
	deleted, err = admin.DeleteOffsets(ctx, "g", kadm.TopicsSet{"t": {0: {}}})
	if err != nil || deleted["t"][0] != nil {
		t.Errorf("delete offsets of an empty group: %+v, %v", deleted, err)
	}
	if offsets, err := admin.FetchOffsets(ctx, "g"); err != nil || len(offsets) != 0 {
		t.Errorf("offsets after their deletion: %+v, %v", offsets, err)
	}
	if r, err := admin.DeleteGroup(ctx, "g"); firstErr(err, r.Err) != nil {
		t.Errorf("delete: %v", firstErr(err, r.Err))
	}
	if r, err := admin.DeleteGroup(ctx, "g"); !errors.Is(firstErr(err, r.Err), kerr.GroupIDNotFound) {
		t.Errorf("delete again: %+v, %v", r, err)
	}
}

func firstErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// A deleted topic takes its offsets along: one made anew begins without.
func TestGroupTopicDeleted(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "t", 1, nil)
	admin, ctx := b.Admin(t), harness.Context(t)
	var os kadm.Offsets
	os.Add(kadm.Offset{Topic: "t", At: 5, LeaderEpoch: -1})
	if err := admin.CommitAllOffsets(ctx, "g", os); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.DeleteTopic(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the offset is gone", func() bool {
		offsets, err := admin.FetchOffsets(ctx, "g")
		return err == nil && len(offsets) == 0
	})
}

// FindCoordinator in every version, and what isn't coordinated here.
func TestGroupFindCoordinator(t *testing.T) {
	b := harness.StartBroker(t)
	warmUp(t, b)
	for version := int16(0); version <= 6; version++ {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey, req.CoordinatorKeys = "g", []string{"g", "h"}
		resp, err := req.RequestWith(harness.Context(t), atVersion(t, b, 10, version))
		if err != nil {
			t.Errorf("version %d: %v", version, err)
			continue
		}
		if version < 4 {
			if resp.ErrorCode != 0 || resp.NodeID != int32(b.NodeID()) || resp.Port == 0 {
				t.Errorf("version %d: %+v", version, resp)
			}
			continue
		}
		keys := map[string]bool{}
		for _, c := range resp.Coordinators {
			keys[c.Key] = c.ErrorCode == 0 && c.NodeID == int32(b.NodeID())
		}
		if len(keys) != 2 || !keys["g"] || !keys["h"] {
			t.Errorf("version %d: %+v", version, resp.Coordinators)
		}
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKeys = 2, []string{"group:AAAAAAAAAAAAAAAAAAAAAQ:0"}
	resp, err := req.RequestWith(harness.Context(t), atVersion(t, b, 10, 6))
	if err != nil {
		t.Fatal(err)
	}
	if c := resp.Coordinators[0]; c.ErrorCode != kerr.InvalidRequest.Code || c.ErrorMessage == nil {
		t.Errorf("a share group's coordinator: %+v", c)
	}
}

// A join that waits for a rebalance doesn't hold up the node's shutdown.
func TestGroupParkedJoinAtShutdown(t *testing.T) {
	b := harness.StartBroker(t)
	warmUp(t, b)
	join := func(memberID string) *kmsg.JoinGroupRequest {
		req := kmsg.NewPtrJoinGroupRequest()
		req.Group, req.MemberID, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = "g", memberID, 60000, 300000
		req.ProtocolType, req.Protocols = "consumer", []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
		return req
	}
	first, err := join("").RequestWith(harness.Context(t), atVersion(t, b, 11, 3))
	if err != nil || first.ErrorCode != 0 {
		t.Fatalf("first join: %+v, %v", first, err)
	}
	parked := make(chan *kmsg.JoinGroupResponse, 1)
	c := atVersion(t, b, 11, 3)
	go func() {
		resp, _ := join("").RequestWith(harness.Context(t), c)
		parked <- resp
	}()
	harness.Eventually(t, "the second join waits", func() bool {
		ids, _ := memberIDs(t, b, "g")
		return len(ids) == 2
	})
	began := time.Now()
	b.Stop(t)
	if took := time.Since(began); took > harness.Patience/2 {
		t.Errorf("the shutdown took %v", took)
	}
	if resp, _ := harness.Receive(t, "the waiting join is answered", parked); resp != nil && resp.ErrorCode != kerr.NotCoordinator.Code {
		t.Errorf("the waiting join was answered with %+v", resp)
	}
}
