package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/broker/mirror"
	"tidemark/test/e2e/harness"
)

// A mirror is compared with its source by itself; each comparison leaves a report that outlives the node.
func TestVerifyInTheBackground(t *testing.T) {
	source := harness.StartBroker(t)
	standby := startStandby(t)
	source.CreateTopic(t, "t", 2, nil)
	source.CreateTopic(t, "c", 1, map[string]string{"cleanup.policy": "compact"})
	source.Produce(t, "t", 0, "0", "1", "2")
	if err := source.Client(t).ProduceSync(harness.Context(t), &kgo.Record{Topic: "c", Key: []byte("k"), Value: []byte("0")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}, Settings: map[string]string{"mirror.verify.interval.ms": "100"}})
	awaitEnd(t, standby, "t", 0, 3)
	awaitEnd(t, standby, "c", 0, 1)
	var r mirror.VerifyReport
	proved := func(topic string, to int64) bool {
		return slices.ContainsFunc(r.Result.Partitions, func(p mirror.VerifyPartition) bool {
			return p.Topic == topic && p.Partition == 0 && int64(p.VerifiedTo) == to && p.Difference == "" && p.Error == "" && (p.SHA256 != "") == (topic == "t")
		})
	}
	harness.Eventually(t, "everything is compared", func() bool {
		var err error
		r, err = standby.Mirrors().LastVerify("m")
		return err == nil && r.Background && r.Result.Equal && r.Result.Done && len(r.Result.Partitions) == 3 && proved("t", 3) && proved("c", 1)
	})
	source.Produce(t, "t", 0, "3")
	harness.Eventually(t, "it is compared again", func() bool {
		var err error
		r, err = standby.Mirrors().LastVerify("m")
		return err == nil && proved("t", 4)
	})
	data, err := os.ReadFile(r.File)
	if err != nil {
		t.Fatal(err)
	}
	var kept mirror.VerifyReport
	if err := json.Unmarshal(data, &kept); err != nil || kept.ClusterID != standby.ClusterID() || kept.SourceClusterID != source.ClusterID() || !kept.Result.Equal {
		t.Errorf("the file %s holds %+v, %v", r.File, kept, err)
	}
	text, err := os.ReadFile(strings.TrimSuffix(r.File, ".json") + ".txt")
	if err != nil || !strings.Contains(string(text), "EQUAL: every batch") || !strings.Contains(string(text), kept.Result.Partitions[0].SHA256) {
		t.Errorf("the text says %q, %v", text, err)
	}
	if s := status(t, standby).Verified; s == nil || !s.Equal || s.Partitions != 3 || s.File == "" {
		t.Errorf("status: %+v", s)
	}
	if err := standby.Mirrors().Pause(harness.Context(t), "m"); err != nil {
		t.Fatal(err)
	}
	last, _ := standby.Mirrors().LastVerify("m")
	standby = standby.Restart(t)
	if got, err := standby.Mirrors().LastVerify("m"); err != nil || got.Ended < last.Ended || !got.Result.Equal {
		t.Errorf("after a restart: %+v, %v", got, err)
	}
}

// What differs is told as an event, and in the report; other partitions are compared all the same.
func TestVerifyTellsADifference(t *testing.T) {
	source := harness.StartBroker(t)
	standby := startStandby(t)
	source.CreateTopic(t, "a", 1, nil)
	source.CreateTopic(t, "z", 1, nil)
	source.Produce(t, "a", 0, "alike", "DIFFERS", "alike")
	source.Produce(t, "z", 0, "1")
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}})
	awaitEnd(t, standby, "a", 0, 3)
	awaitEnd(t, standby, "z", 0, 1)
	standby.Stop(t)
	name := filepath.Join(standby.Dir, "a-0", "00000000000000000000.log")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	i := strings.Index(string(data), "DIFFERS")
	if i < 0 {
		t.Fatal("the record isn't in the log")
	}
	data[i] = 'd'
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
	standby = standby.Restart(t)
	op := operate(t, standby)
	file := filepath.Join(t.TempDir(), "report")
	said := op.fails("mirror", "verify", "m", "--report", file)
	if !strings.Contains(said, "the two sides differ") {
		t.Error(said)
	}
	text, err := os.ReadFile(file + ".txt")
	if err != nil || !strings.Contains(string(text), "DIFFERENT: 1 of 2 partitions differ") {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	if !slices.Contains(kinds(standby), mirror.VerifyDiffers) {
		t.Errorf("events: %v", kinds(standby))
	}
	if said := op.fails("mirror", "verify", "m", "--last"); !strings.Contains(said, "offset 1") {
		t.Error(said)
	}
}
