package e2e

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/test/e2e/harness"
)

// What the vault keeps of a topic can be read by any Kafka client, and by nobody be written.
func TestVaultView(t *testing.T) {
	s := newCutStory(t)
	const view = "__vault.t"
	f := func() {
		t.Helper()
		got := records(t, s.standby, view, 2)
		if string(got[0].Value) != "2 lost" || string(got[1].Value) != "3 lost" || got[0].Offset != 0 || got[1].Offset != 1 {
			t.Errorf("the view reads %q at %d, %q at %d", got[0].Value, got[0].Offset, got[1].Value, got[1].Offset)
		}
	}
	f()
	adm := s.standby.Admin(t)
	topics, err := adm.ListTopicsWithInternal(harness.Context(t))
	if err != nil || !topics.Has(view) || !topics[view].IsInternal || len(topics[view].Partitions) != 1 {
		t.Errorf("listed: %+v, %v", topics[view], err)
	}
	ends, err := adm.ListEndOffsets(harness.Context(t), view)
	if o, ok := ends.Lookup(view, 0); err != nil || !ok || o.Offset != 2 {
		t.Errorf("the view ends at %+v, %v", o, err)
	}
	c := s.standby.Client(t)
	if err := c.ProduceSync(harness.Context(t), &kgo.Record{Topic: view, Value: []byte("x")}).FirstErr(); err == nil {
		t.Error("a client wrote to the view")
	}
	if _, err := adm.CreateTopic(harness.Context(t), 1, 1, nil, "__vault.mine"); err == nil {
		t.Error("a topic was made with the vault's prefix")
	}
	if _, err := adm.DeleteTopic(harness.Context(t), view); err == nil {
		t.Error("the view was deleted")
	}
	// A group goes on in it where it was.
	read := func(want string) {
		t.Helper()
		g := s.standby.Client(t, kgo.ConsumerGroup("auditor"), kgo.ConsumeTopics(view), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		for {
			fetches := g.PollRecords(harness.Context(t), 1)
			if err := fetches.Err0(); err != nil {
				t.Fatal(err)
			}
			got := fetches.Records()
			if len(got) == 0 {
				continue
			}
			if string(got[0].Value) != want {
				t.Errorf("the group reads %q, want %q", got[0].Value, want)
			}
			if err := g.CommitRecords(harness.Context(t), got[0]); err != nil {
				t.Error(err)
			}
			g.Close()
			return
		}
	}
	read("2 lost")
	read("3 lost")
	// Offsets of the view outlive a restart and a purge.
	s.standby = s.standby.Restart(t)
	f()
	entries, err := s.standby.Vault().List()
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	if err := s.standby.Vault().Purge(entries[0].ID); err != nil {
		t.Fatal(err)
	}
	starts, err := s.standby.Admin(t).ListStartOffsets(harness.Context(t), view)
	if o, ok := starts.Lookup(view, 0); err != nil || !ok || o.Offset != 2 {
		t.Errorf("after the purge the view begins at %+v, %v", o, err)
	}
	listed, err := s.standby.Admin(t).ListTopicsWithInternal(harness.Context(t))
	if err != nil || slices.Contains(listed.Names(), view) {
		t.Errorf("an empty view is listed: %v", err)
	}
}
