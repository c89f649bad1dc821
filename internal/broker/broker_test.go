package broker

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tidemark/internal/assert"
	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/broker/coordinator"
	"tidemark/internal/broker/coordinator/transactions"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore/backup"
	"tidemark/internal/vfs"
	"tidemark/internal/vfs/faultfs"
	"tidemark/internal/wire"
)

func TestRecordsAndEpochsSurviveARestart(t *testing.T) {
	w := newWorld(t)
	b := w.open()
	createTopic(t, b, "a", 1)
	p := mustPartition(t, b, "a", 0)
	if o := mustAppend(t, p, "x", "y"); o != 0 {
		t.Errorf("first offset %d", o)
	}
	first, err := p.LeaderEpoch()
	if err != nil {
		t.Fatal(err)
	}
	closeNode(t, b)
	_, err = appendTo(t, p, 1, "late")
	wantCode(t, "append after close", err, wire.ErrNotLeaderOrFollower)

	b = w.open()
	p = mustPartition(t, b, "a", 0)
	second, err := p.LeaderEpoch()
	if err != nil || second <= first {
		t.Errorf("leader epoch %d after %d (%v): an election must raise it (R10)", second, first, err)
	}
	if o := mustAppend(t, p, "z"); o != 2 {
		t.Errorf("offset after the restart: %d, want 2", o)
	}
	v, _ := p.View()
	if e, ok := v.History.Latest(); !ok || e.Epoch != second || e.Start != 2 {
		t.Errorf("history %v, want the election's entry at 2 (R3)", v.History)
	}
}

func TestACrashLosesNothingSynced(t *testing.T) {
	// log.flush.acks: what was answered is on disk, whatever the crash takes.
	w := newWorld(t, "log.flush.acks=true")
	b := w.open()
	createTopic(t, b, "a", 1)
	p := mustPartition(t, b, "a", 0)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if _, err := appendTo(t, p, -1, fmt.Sprint(i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	end := logEnd(t, p)
	crashed := w.with()
	crashed.fs = w.fs.(*vfs.Mem).CrashClone(vfs.CrashConfig{})
	closeNode(t, b)
	p = mustPartition(t, crashed.open(), "a", 0)
	if got := logEnd(t, p); got != end || end != 20 {
		t.Errorf("log end %d after the crash, %d before", got, end)
	}
	if r, err := read(p, 0); err != nil || r.HighWatermark != end || r.Bytes == 0 {
		t.Errorf("read after the crash: %+v, %v", r, err)
	}
}

func TestRefusedFolders(t *testing.T) {
	w := newWorld(t)
	b := w.open()
	f := func(want string, settings ...string) {
		t.Helper()
		other, err := w.with(settings...).try()
		if err == nil {
			_ = other.Close(context.Background())
			t.Errorf("%v: the node started, want %q", settings, want)
			return
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", settings, err, want)
		}
	}
	f("another process is using it")
	closeNode(t, b)
	f("it belongs to node 1 and this is node 7", "node.id=7")
	f("it belongs to cluster", "cluster.id=AAAAAAAAAAAAAAAAAAAAAA")
	f("is in use by another process: stop that one, or choose another address with --listen", "listeners=PLAINTEXT://"+busyPort(t))
}

func TestLostMetadataIsNotTakenForDeletedTopics(t *testing.T) {
	w := newWorld(t)
	b := w.open()
	createTopic(t, b, "precious", 1)
	mustAppend(t, mustPartition(t, b, "precious", 0), "x")
	closeNode(t, b)
	empty := newWorld(t)
	empty.fs = w.fs
	if _, err := empty.try(); err == nil || !strings.Contains(err.Error(), "precious-0") || !strings.Contains(err.Error(), "restore the metadata") {
		t.Errorf("started with an empty store over a full folder: %v", err)
	}
	if _, err := w.fs.Stat("/data/precious-0"); err != nil {
		t.Errorf("the data: %v", err)
	}
	if got := logEnd(t, mustPartition(t, w.open(), "precious", 0)); got != 1 {
		t.Errorf("log end %d with the right store again", got)
	}
}

func TestDeletionSurvivesACrash(t *testing.T) {
	w := newWorld(t, "log.segment.delete.delay.ms=0")
	b := w.open()
	id := createTopic(t, b, "a", 1)
	mustAppend(t, mustPartition(t, b, "a", 0), "old")
	// The crash comes after the metadata's deletion and before the folder's: the folder is there again.
	before := w.fs.(*vfs.Mem).CrashClone(vfs.CrashConfig{KeepBlock: 1, KeepEntry: 1})
	if err := b.Topics().Delete(testContext(t), id); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the folder goes", func() bool { return len(folders(t, w.fs)) == 0 })
	closeNode(t, b)

	crashed := w.with()
	crashed.fs = before
	b = crashed.open()
	eventually(t, "the stray folder goes", func() bool { return len(folders(t, before)) == 0 })
	createTopic(t, b, "a", 1)
	if end := logEnd(t, mustPartition(t, b, "a", 0)); end != 0 {
		t.Errorf("a topic made anew begins at %d", end)
	}
}

func TestATopicMadeAnewFindsNothingOfTheOld(t *testing.T) {
	w := newWorld(t)
	b := w.open()
	for round := range 5 {
		id := createTopic(t, b, "a", 2)
		p := mustPartition(t, b, "a", 1)
		if o := mustAppend(t, p, "x"); o != 0 {
			t.Fatalf("round %d: first offset %d", round, o)
		}
		if err := b.Topics().Delete(testContext(t), id); err != nil {
			t.Fatal(err)
		}
		_, err := read(p, 0)
		if code := wire.CodeOf(err); code != wire.ErrUnknownTopicOrPartition {
			eventually(t, "the deleted partition says so", func() bool {
				_, err := read(p, 0)
				return wire.CodeOf(err) == wire.ErrUnknownTopicOrPartition
			})
		}
	}
}

func TestAFailedAssertionTakesOnePartitionOffline(t *testing.T) {
	b := newWorld(t, "num.shards=1").open()
	createTopic(t, b, "a", 2)
	bad, good := mustPartition(t, b, "a", 0), mustPartition(t, b, "a", 1)
	if err := bad.Do(testContext(t), func(*Owned) error { assert.That(false, "I-00: a test"); return nil }); err == nil {
		t.Error("the broken event had no error")
	}
	_, err := appendTo(t, bad, 1, "x")
	wantCode(t, "append to the broken partition", err, wire.ErrKafkaStorageError)
	_, err = read(bad, 0)
	wantCode(t, "read of the broken partition", err, wire.ErrKafkaStorageError)
	mustAppend(t, good, "x")
	if err := b.Ready(); err != nil {
		t.Errorf("the node: %v", err)
	}
}

func TestAnIOErrorTakesItsLogDirOffline(t *testing.T) {
	faults, b := startOnTwoDirs(t, "log.flush.acks=true")
	p0, p1 := mustPartition(t, b, "a", 0), mustPartition(t, b, "a", 1)
	mustAppend(t, p0, "x")
	faults.Inject(faultfs.Rule{Kinds: faultfs.Sync, Pattern: path.Join(p0.dir.path, "a-0", "*.log")})
	_, err := appendTo(t, p0, -1, "y")
	wantCode(t, "acks=all append whose sync fails", err, wire.ErrKafkaStorageError)
	eventually(t, "the dir is offline", func() bool { return p0.dir.failure() != nil })
	mustAppend(t, p1, "y")
	for _, d := range (*served)(b).LogDirs() {
		if (d.Err != nil) != (d.Path == p0.dir.path) {
			t.Errorf("log dir %s: %v", d.Path, d.Err)
		}
	}
	if err := b.Ready(); err != nil {
		t.Errorf("the node with one live dir: %v", err)
	}
}

func TestAFullDiskRefusesAndResumes(t *testing.T) {
	w := newWorld(t)
	said := w.hear()
	faults := faultfs.New(w.fs)
	w.fs = faults
	b := w.open()
	createTopic(t, b, "a", 1)
	p := mustPartition(t, b, "a", 0)
	mustAppend(t, p, "x")
	if err := b.Ready(); err != nil {
		t.Errorf("with room: %v", err)
	}
	faults.SetSpace(0)
	_, err := appendTo(t, p, 1, "y")
	wantCode(t, "append on a full disk", err, wire.ErrKafkaStorageError)
	if !strings.Contains(err.Error(), "full") {
		t.Errorf("%v doesn't say that the disk is full", err)
	}
	_, err = appendTo(t, p, 1, "y")
	wantCode(t, "another one", err, wire.ErrKafkaStorageError)
	if err := b.Ready(); err == nil || !strings.Contains(err.Error(), p.dir.path) {
		t.Errorf("a node that refuses writes says %v: want the full log dir", err)
	}
	faults.SetSpace(100) // not enough for a batch
	p.dir.room.looked.Store(0)
	if err := b.Ready(); err == nil {
		t.Error("ready with room for nothing")
	}
	faults.SetSpace(1 << 30)
	// Nobody writes to a node that isn't ready: it finds out by itself.
	eventually(t, "the node is ready again", func() bool { return b.Ready() == nil })
	if names, err := w.fs.List(p.dir.path); err != nil || slices.Contains(names, "room"+vfs.TempSuffix) {
		t.Errorf("left in the log dir: %v, %v", names, err)
	}
	if o := mustAppend(t, p, "z"); o != 1 {
		t.Errorf("offset %d after the disk had room again", o)
	}
	if full, room := said.count("the disk is full"), said.count("the disk has room again"); full != 1 || room != 1 {
		t.Errorf("the log says %d times that the disk is full, and %d times that it has room again: want each once", full, room)
	}
}

// TestMinISRAboveTheReplicas: a minimum that could never be met counts as the
// number of replicas (KAFKA-15583). What happens below one that could is in test/e2e.
func TestMinISRAboveTheReplicas(t *testing.T) {
	b := newWorld(t).open()
	createTopic(t, b, "a", 1, "min.insync.replicas", "2")
	p := mustPartition(t, b, "a", 0)
	if _, err := appendTo(t, p, -1, "x"); err != nil {
		t.Errorf("acks=all: %v", err)
	}
	if r, err := read(p, 0); err != nil || r.HighWatermark != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestAWriteBelowTheMinimumAfterwards: with log.flush.acks one round can hold an append, the
// fetch that proves it, and a smaller ISR; the sync after it finds the mark there and too few replicas.
func TestAWriteBelowTheMinimumAfterwards(t *testing.T) {
	f := func(isr int, want wire.ErrCode) {
		t.Helper()
		p := &Partition{tp: types.TopicPartition{Topic: "a"}}
		led := replica.LeaderState{Revision: 1, Replicas: []types.BrokerID{1, 2}, ISR: []meta.ISRMember{{ID: 1}}, MinISR: 1, LogEnd: 10}
		p.leader.Lead(1, led)
		led.Revision, led.MinISR, led.ISR = 2, 2, []meta.ISRMember{{ID: 1}, {ID: 2}}[:isr]
		p.leader.Lead(1, led)
		write, later := &appendOp{next: 10, reply: make(chan struct{}, 2)}, &appendOp{next: 11, reply: make(chan struct{}, 2)}
		p.waiting = []*appendOp{write, later}
		p.settle(p.leader.HighWatermark())
		if wire.CodeOf(write.err) != want || len(write.reply) != 1 || len(later.reply) != 0 {
			t.Errorf("ISR of %d: %v, %d and %d replies", isr, write.err, len(write.reply), len(later.reply))
		}
	}
	f(1, wire.ErrNotEnoughReplicasAfterAppend)
	f(2, wire.None)
}

func alter(t *testing.T, b *Broker, topic string, changes ...api.ConfigChange) {
	t.Helper()
	if err := b.Topics().AlterConfigs(testContext(t), api.ConfigResource{Kind: api.ConfigTopic, Name: topic}, changes, false, false); err != nil {
		t.Fatal(err)
	}
}

func TestFences(t *testing.T) {
	w := newWorld(t)
	b := w.open()
	createTopic(t, b, "a", 1)
	closeNode(t, b)
	b = w.open() // leader epoch 1: below 0 nothing is fenced
	p := mustPartition(t, b, "a", 0)
	mustAppend(t, p, "x")
	e, _ := p.LeaderEpoch()
	f := func(said types.LeaderEpoch, want wire.ErrCode) {
		t.Helper()
		var out api.ReadResult
		err := p.Read(0, api.ReadRequest{CurrentLeaderEpoch: said, LastFetchedEpoch: -1, Replica: -1}, &out)
		wantCode(t, fmt.Sprintf("read with epoch %d", said), err, want)
		_, err = p.ListOffset(api.OffsetQuery{Timestamp: -1, CurrentLeaderEpoch: said, Replica: -1})
		wantCode(t, fmt.Sprintf("ListOffset with epoch %d", said), err, want)
		_, _, err = p.EpochEnd(said, 0)
		wantCode(t, fmt.Sprintf("EpochEnd with epoch %d", said), err, want)
		_, err = p.Append(testContext(t), oneBatch(t, "y"), api.AppendRequest{Acks: 1, LeaderEpoch: said})
		wantCode(t, fmt.Sprintf("Append with epoch %d", said), err, want)
	}
	f(e, wire.None)
	f(-1, wire.None)
	f(e-1, wire.ErrFencedLeaderEpoch)
	f(e+1, wire.ErrUnknownLeaderEpoch)
}

func TestProgressTellsWaiters(t *testing.T) {
	b := newWorld(t).open()
	id := createTopic(t, b, "a", 1)
	p := mustPartition(t, b, "a", 0)
	moved := make(chan struct{}, 100)
	cancel := p.OnProgress(func() { moved <- struct{}{} })
	expect := func(what string) {
		t.Helper()
		select {
		case <-moved:
		case <-time.After(time.Minute):
			t.Fatalf("nobody was told of %s", what)
		}
	}
	mustAppend(t, p, "x")
	expect("an append")
	if err := b.Topics().Delete(testContext(t), id); err != nil {
		t.Fatal(err)
	}
	expect("the deletion")
	cancel()
}

func TestALapsedRegistrationIsMadeAnew(t *testing.T) {
	w := newWorld(t, "broker.session.timeout.ms=1000")
	b := w.open()
	createTopic(t, b, "a", 1)
	p := mustPartition(t, b, "a", 0)
	old, _ := p.LeaderEpoch()
	oldRegistration, _ := b.BrokerEpoch()
	if err := w.store.Revoke(testContext(t), b.lease.id()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new registration leads in a higher epoch", func() bool {
		e, err := p.LeaderEpoch()
		r, ok := b.BrokerEpoch()
		return err == nil && e > old && ok && r > oldRegistration
	})
	mustAppend(t, p, "x")
}

func TestProducerIDsNeverRepeat(t *testing.T) {
	w := newWorld(t)
	seen := make(map[types.ProducerID]bool)
	for range 3 {
		b := w.open()
		for range producerIDBlock + 10 {
			id, err := b.ids.Next(testContext(t))
			if err != nil || seen[id] || id < 0 {
				t.Fatalf("id %d, seen before: %v, %v", id, seen[id], err)
			}
			seen[id] = true
		}
		closeNode(t, b)
	}
}

// TestProducerIDsCanWait: a producer that can't have an id now asks again, and is not told to give up.
func TestProducerIDsCanWait(t *testing.T) {
	w := newWorld(t)
	b := w.open()
	w.store.SetDown(true)
	_, err := b.ids.Next(testContext(t))
	wantCode(t, "without the metadata store", err, wire.ErrCoordinatorLoadInProgress)
	w.store.SetDown(false)
	if id, err := b.ids.Next(testContext(t)); err != nil || id < 0 {
		t.Errorf("id %d, %v", id, err)
	}
}

func TestTopicRefusals(t *testing.T) {
	b := newWorld(t).open()
	createTopic(t, b, "a.b", 1)
	ctx := testContext(t)
	f := func(want wire.ErrCode, r api.CreateTopic) {
		t.Helper()
		_, err := b.Topics().Create(ctx, r)
		wantCode(t, fmt.Sprintf("create %+v", r), err, want)
	}
	bad := "bad"
	f(wire.ErrTopicAlreadyExists, api.CreateTopic{Name: "a.b", Partitions: 1, ReplicationFactor: 1})
	f(wire.ErrInvalidTopic, api.CreateTopic{Name: "a/b", Partitions: 1, ReplicationFactor: 1})
	f(wire.ErrInvalidTopic, api.CreateTopic{Name: "a_b", Partitions: 1, ReplicationFactor: 1})
	f(wire.ErrInvalidPartitions, api.CreateTopic{Name: "c", Partitions: 0, ReplicationFactor: 1})
	f(wire.ErrInvalidReplicationFactor, api.CreateTopic{Name: "c", Partitions: 1, ReplicationFactor: 2})
	f(wire.ErrInvalidConfig, api.CreateTopic{Name: "c", Partitions: 1, ReplicationFactor: 1, Configs: map[string]*string{"retention.ms": &bad}})
	f(wire.ErrInvalidConfig, api.CreateTopic{Name: "c", Partitions: 1, ReplicationFactor: 1, Configs: map[string]*string{"no.such": &bad}})
	f(wire.ErrInvalidReplicaAssignment, api.CreateTopic{Name: "c", Partitions: -1, ReplicationFactor: -1, Assignments: map[int32][]types.BrokerID{0: {9}}})
	f(wire.None, api.CreateTopic{Name: "c", Partitions: -1, ReplicationFactor: -1, ValidateOnly: true})
	if _, ok := b.Image().TopicByName("c"); ok {
		t.Error("validate_only made the topic")
	}
	wantCode(t, "fewer partitions", b.Topics().AddPartitions(ctx, api.AddPartitions{Topic: "a.b", Count: 1}), wire.ErrInvalidPartitions)
	wantCode(t, "more partitions", b.Topics().AddPartitions(ctx, api.AddPartitions{Topic: "a.b", Count: 3}), wire.None)
	mustAppend(t, mustPartition(t, b, "a.b", 2), "x")
	wantCode(t, "delete an unknown id", b.Topics().Delete(ctx, types.TopicID{1}), wire.ErrUnknownTopicID)
}

// TestACoordinatorsTopicMadeByOthers: whoever has it made, it is compacted and has the
// coordinator's number of partitions: its records would go with their age otherwise.
func TestACoordinatorsTopicMadeByOthers(t *testing.T) {
	b := newWorld(t).open()
	f := func(name string, partitions, want int32, configs ...string) {
		t.Helper()
		id := createTopic(t, b, name, partitions, configs...)
		topic, ok := b.Image().Topic(id)
		if !ok || topic.Record.Partitions != want || b.cfg.Topic(topic.Record.Configs).Delete || !b.cfg.Topic(topic.Record.Configs).Compact {
			t.Errorf("%s: %+v", name, topic.Record)
		}
	}
	f(coordinator.OffsetsTopic, -1, b.cfg.Offsets.TopicPartitions)
	f(transactions.StateTopic, 3, 3, "segment.bytes", "1048576")
	txns, _ := b.Image().TopicByName(transactions.StateTopic)
	if got := txns.Record.Configs["segment.bytes"]; got != "1048576" {
		t.Errorf("segment.bytes %s; what was asked for stays", got)
	}
}

func TestConfigsReachTheLog(t *testing.T) {
	b := newWorld(t).open()
	createTopic(t, b, "a", 1, "max.message.bytes", "200")
	p := mustPartition(t, b, "a", 0)
	big := strings.Repeat("x", 300)
	_, err := appendTo(t, p, 1, big)
	wantCode(t, "a batch above max.message.bytes", err, wire.ErrMessageTooLarge)
	larger := "1000"
	alter(t, b, "a", api.ConfigChange{Name: "max.message.bytes", Value: &larger})
	eventually(t, "the raised limit holds", func() bool { _, err := appendTo(t, p, 1, big); return err == nil })
	entries, err := b.Topics().DescribeConfigs(testContext(t), api.ConfigResource{Kind: api.ConfigTopic, Name: "a"}, []string{"max.message.bytes"})
	if err != nil || len(entries) != 1 || *entries[0].Value != "1000" || entries[0].Source != api.SourceTopic {
		t.Errorf("described as %+v, %v", entries, err)
	}
}

func TestRetentionRunsByTheClock(t *testing.T) {
	w := newWorld(t, "log.retention.check.interval.ms=20")
	b := w.open()
	createTopic(t, b, "a", 1, "segment.bytes", "100", "retention.bytes", "150")
	p := mustPartition(t, b, "a", 0)
	for range 10 {
		mustAppend(t, p, strings.Repeat("x", 50))
	}
	eventually(t, "old segments go", func() bool { v, _ := p.View(); return v.LogStart >= 7 })
	_, err := read(p, 0)
	wantCode(t, "read below the log start", err, wire.ErrOffsetOutOfRange)
}

func TestDeleteRecords(t *testing.T) {
	b := newWorld(t).open()
	createTopic(t, b, "a", 1)
	createTopic(t, b, "c", 1, "cleanup.policy", "compact")
	p := mustPartition(t, b, "a", 0)
	mustAppend(t, p, "x", "y", "z")
	start, err := p.DeleteRecords(testContext(t), 2)
	if err != nil || start != 2 {
		t.Errorf("log start %d, %v", start, err)
	}
	_, err = p.DeleteRecords(testContext(t), 4)
	wantCode(t, "above the high watermark", err, wire.ErrOffsetOutOfRange)
	start, err = p.DeleteRecords(testContext(t), types.NoOffset)
	if err != nil || start != 3 {
		t.Errorf("-1: log start %d, %v", start, err)
	}
	_, err = mustPartition(t, b, "c", 0).DeleteRecords(testContext(t), types.NoOffset)
	wantCode(t, "a compacted topic", err, wire.ErrPolicyViolation)
}

func TestCommitAfterARefusalSeesWhatStandsInTheWay(t *testing.T) {
	b := newWorld(t).open()
	id := createTopic(t, b, "a", 1)
	rec, rev := b.Image().Partition(id, 0)
	key := b.Image().Keys().Partition(id, 0)
	plan := func(epoch types.LeaderEpoch) meta.Plan {
		next := rec.Clone()
		next.LeaderEpoch = epoch
		return meta.Plan{Why: "test", If: []meta.Compare{meta.ModRevisionIs(key, rev)}, Then: []meta.Op{meta.Put(key, next.Encode())}}
	}
	if _, err := b.Commit(testContext(t), plan(50)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Commit(testContext(t), plan(60)); !errors.Is(err, ErrRefused) {
		t.Fatalf("second commit: %v", err)
	}
	if now, _ := b.Image().Partition(id, 0); now.LeaderEpoch != 50 {
		t.Errorf("image shows epoch %d", now.LeaderEpoch)
	}
}

func TestMetadataThatWentBackServesNothing(t *testing.T) {
	// R19: a record older than what the log has seen is not served, and nothing is cut.
	w := newWorld(t)
	b := w.open()
	createTopic(t, b, "a", 1)
	closeNode(t, b)
	old := w.store.Backup()
	for range 3 {
		b = w.open()
		mustAppend(t, mustPartition(t, b, "a", 0), "x")
		closeNode(t, b)
	}
	b = w.open()
	createTopic(t, b, "since", 1)
	mustAppend(t, mustPartition(t, b, "since", 0), "x")
	id, known := b.ClusterID(), mustPartition(t, b, "a", 0).assigned
	closeNode(t, b)
	w.store.Restore(old)
	if _, err := w.try(); err == nil || !strings.Contains(err.Error(), "METADATA_WENT_BACK") || !strings.Contains(err.Error(), "restore --in-place") {
		t.Fatalf("a node on metadata that is older than its folder: %v", err)
	}
	// The way out is an operator's word: the log leads, above every epoch that it knows.
	if _, err := backup.Recover(testContext(t), w.store, id, "restore", 1); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b = w.open()
		p := mustPartition(t, b, "a", 0)
		eventually(t, "the partition has a leader again", func() bool {
			r, _ := b.Image().Partition(p.id, 0)
			return r != nil && !r.Restored && p.serving.Load().err == nil
		})
		mustAppend(t, p, "y")
		r, _ := b.Image().Partition(p.id, 0)
		if int32(r.LeaderEpoch) <= known || len(r.Timelines) != 2 {
			t.Errorf("epoch %d after %d, timelines %v", r.LeaderEpoch, known, r.Timelines)
		}
		if got := folders(t, w.fs); !slices.ContainsFunc(got, func(f string) bool { return strings.HasPrefix(f, "since-0.") && strings.HasSuffix(f, straySuffix) }) {
			t.Errorf("the topic made since isn't set aside: %v", got)
		}
		closeNode(t, b)
	}
	b = w.open()
	if end := logEnd(t, mustPartition(t, b, "a", 0)); end != 5 {
		t.Errorf("log end %d: something was cut", end)
	}
}

func TestCompactionRunsByTheClock(t *testing.T) {
	w := newWorld(t, "log.cleaner.backoff.ms=10")
	b := w.open()
	createTopic(t, b, "c", 1, "cleanup.policy", "compact", "segment.bytes", "300", "min.cleanable.dirty.ratio", "0")
	p := mustPartition(t, b, "c", 0)
	for i := range 30 {
		bld := batch.NewBuilder(batch.BuilderOptions{})
		bld.Append(types.Millis(time.Now().UnixMilli()), []byte("key"), fmt.Append(nil, i))
		raw, err := bld.Build()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Append(testContext(t), raw, api.AppendRequest{Acks: 1, LeaderEpoch: types.NoLeaderEpoch}); err != nil {
			t.Fatal(err)
		}
	}
	before, _ := p.View()
	eventually(t, "older values of the key go", func() bool { v, _ := p.View(); return v.Size < before.Size/3 })
	v, _ := p.View()
	if v.LogEnd != 30 || v.LogStart != 0 {
		t.Errorf("compaction moved the log to [%d, %d)", v.LogStart, v.LogEnd)
	}
	if r, err := read(p, 0); err != nil || r.Bytes == 0 {
		t.Errorf("read after compaction: %+v, %v", r, err)
	}
	// The next process knows how far compaction came (ADR 27).
	closeNode(t, b)
	if cleaned := mustPartition(t, w.open(), "c", 0).log.Cleaned(); cleaned == 0 || cleaned > 30 {
		t.Errorf("compacted up to %d after a restart", cleaned)
	}
}

// folders lists the partition folders of /data, those being deleted included.
func folders(t *testing.T, fsys vfs.FS) []string {
	t.Helper()
	names, err := fsys.List("/data")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(n string) bool {
		_, ok := folderPartition(n)
		return !ok && !strings.HasSuffix(n, deleteSuffix) && !strings.HasSuffix(n, straySuffix)
	})
}
