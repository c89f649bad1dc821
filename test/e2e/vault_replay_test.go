package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/replay"
	"tidemark/internal/vault"
	"tidemark/test/e2e/harness"
)

// records reads a partition from the start.
func records(t testing.TB, b *harness.Broker, topic string, n int) []*kgo.Record {
	t.Helper()
	c := b.Client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	var out []*kgo.Record
	for len(out) < n {
		f := c.PollFetches(harness.Context(t))
		if err := f.Err0(); err != nil {
			t.Fatalf("after %d records: %v", len(out), err)
		}
		f.EachRecord(func(r *kgo.Record) { out = append(out, r) })
	}
	return out
}

func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// What a cut removed goes into its topic again once, however often that is asked for.
func TestVaultReplay(t *testing.T) {
	s := newCutStory(t)
	op := operate(t, s.standby)
	failover(t, s.standby)
	var list []struct {
		ID   string `json:"id"`
		Node int    `json:"node"`
	}
	op.json(&list, "vault", "list")
	if len(list) != 1 || list[0].Node != 1 {
		t.Fatalf("vault list: %+v", list)
	}
	id := list[0].ID
	if _, stderr := op.run("vault", "list"); !strings.Contains(stderr, "in 1 entries") {
		t.Errorf("vault list says %q", stderr)
	}

	var r replay.Result
	op.json(&r, "vault", "replay", id, "--dry-run")
	if r.Replayed != 2 || !r.DryRun || s.standby.Produce(t, "t", 0, "3 new") != 3 {
		t.Fatalf("dry run: %+v", r)
	}
	if said := op.fails("vault", "replay", id); !strings.Contains(said, "--yes") {
		t.Errorf("unasked: %s", said)
	}
	op.json(&r, "vault", "replay", id, "--yes")
	if r.Replayed != 2 || r.FirstOffset != 4 || r.LastOffset != 5 {
		t.Fatalf("replay: %+v", r)
	}
	op.json(&r, "vault", "replay", id, "--yes")
	if r.Replayed != 0 || r.Present != 2 {
		t.Errorf("again: %+v", r)
	}
	op.json(&r, "vault", "replay", id, "--yes", "--again")
	if r.Replayed != 0 || r.Present != 2 {
		t.Errorf("again by force: %+v", r)
	}
	got := records(t, s.standby, "t", 6)
	var values []string
	for _, one := range got {
		values = append(values, string(one.Value))
	}
	if !slices.Equal(values, []string{"0", "1", "2 new", "3 new", "2 lost", "3 lost"}) {
		t.Errorf("the topic reads %q", values)
	}
	timelines := s.standby.RecordOf("t", 0).Timelines
	for i, one := range got[4:] {
		if header(one, replay.HeaderOffset) != fmt.Sprint(2+i) || header(one, replay.HeaderTopic) != "t" || header(one, replay.HeaderPartition) != "0" ||
			header(one, replay.HeaderEntry) != id || header(one, replay.HeaderEpoch) == "" || header(one, replay.HeaderTimeline) != timelines[0].ID {
			t.Errorf("headers of %q: %+v", one.Value, one.Headers)
		}
	}
	// The note outlives a restart.
	s.standby = s.standby.Restart(t)
	entries, err := s.standby.Vault().List()
	if err != nil || len(entries) != 1 || len(entries[0].Replays) != 1 || entries[0].Replays[0].Records != 2 {
		t.Errorf("after a restart: %+v, %v", entries, err)
	}
}

// An interrupted replay goes on where it stopped: what is there is known by its headers.
func TestVaultReplayGoesOn(t *testing.T) {
	s := newCutStory(t)
	op := operate(t, s.standby)
	entries, err := s.standby.Vault().List()
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	s.standby.CreateTopic(t, "rescue", 1, nil)
	var r replay.Result
	op.json(&r, "vault", "replay", entries[0].ID, "--topic", "rescue", "--yes")
	first := records(t, s.standby, "rescue", 2)
	// Another cluster in which only the first record arrived.
	s.standby.CreateTopic(t, "half", 1, nil)
	c := s.standby.Client(t)
	if err := c.ProduceSync(harness.Context(t), &kgo.Record{Topic: "half", Value: first[0].Value, Headers: first[0].Headers}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	op.json(&r, "vault", "replay", entries[0].ID, "--topic", "half", "--yes")
	if r.Replayed != 1 || r.Present != 1 {
		t.Errorf("%+v", r)
	}
	if got := records(t, s.standby, "half", 2); string(got[1].Value) != "3 lost" {
		t.Errorf("%q", got[1].Value)
	}
	if said := op.fails("vault", "replay", entries[0].ID, "--topic", "none", "--yes"); !strings.Contains(said, "--create") {
		t.Error(said)
	}
	op.run("vault", "export", entries[0].ID, "--to-topic", "made")
	if got := s.standby.Consume(t, "made", 0, 0, 2); !slices.Equal(got, []string{"2 lost", "3 lost"}) {
		t.Errorf("%q", got)
	}
	if said := op.fails("vault", "export", "nosuch"); !strings.Contains(said, "nosuch") {
		t.Error(said)
	}
}

func TestVaultPurgeByCommand(t *testing.T) {
	s := newCutStory(t)
	op := operate(t, s.standby)
	op.fails("vault", "purge", "--yes")
	op.fails("vault", "purge", "nosuch", "--yes")
	if _, stderr := op.run("vault", "purge", "--topic", "t", "--dry-run"); !strings.Contains(stderr, "would remove 1 entries") {
		t.Error(stderr)
	}
	if _, stderr := op.run("vault", "purge", "--topic", "t", "--older-than", "1h", "--yes"); !strings.Contains(stderr, "nothing to purge") {
		t.Error(stderr)
	}
	op.run("vault", "purge", "--topic", "t", "--yes")
	var list []vault.Entry
	op.json(&list, "vault", "list")
	if len(list) != 0 {
		t.Errorf("%+v", list)
	}
	// The cut stays in the event log.
	if stdout, _ := op.run("events", "--kind", "CUT"); !strings.Contains(stdout, "t-0") {
		t.Errorf("events:\n%s", stdout)
	}
}
