package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const mm2Example = `# two clusters
clusters = west, east
west.bootstrap.servers = w1:9092, w2:9092
east.bootstrap.servers = e1:9092
west->east.enabled = true
west->east.topics = orders.*, \
    payments
east->west.enabled = false
topics.exclude = .*\\.tmp
groups = shop-.*
replication.factor = 3
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 30
refresh.topics.interval.seconds = 60
emit.checkpoints.interval.seconds = 5
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
sync.topic.acls.enabled = true
tasks.max = 8
west.security.protocol = SASL_PLAINTEXT
west.sasl.mechanism = PLAIN
west.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hush";
west.consumer.fetch.max.bytes = 1048576
west.producer.linger.ms = 5
transforms = mask
groups.exclude = tmp-.*
east->west.topics = other
`

func importText(t *testing.T, text, flow string) (*mm2Import, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mm2.properties")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return importMM2(file, flow, "")
}

func TestImportMM2(t *testing.T) {
	imp, err := importText(t, mm2Example, "")
	if err != nil {
		t.Fatal(err)
	}
	s := imp.Spec
	if imp.Flow != "west->east" || s.Name != "west" || strings.Join(s.Bootstrap, " ") != "w1:9092 w2:9092" || s.Topics != "(?:orders.*)|(?:payments)" || s.Exclude != `.*\.tmp` || s.Groups != "shop-.*" {
		t.Errorf("%s: %+v", imp.Flow, s)
	}
	for key, want := range map[string]string{"mirror.group.sync.ms": "30000", "mirror.metadata.refresh.ms": "60000", "mirror.replication.factor": "3"} {
		if s.Settings[key] != want {
			t.Errorf("%s is %q, want %q", key, s.Settings[key], want)
		}
	}
	if s.ClientConfig["sasl.mechanism"] != "PLAIN" || s.ClientConfig["fetch.max.bytes"] != "1048576" || s.ClientConfig["linger.ms"] != "" {
		t.Errorf("client: %v", s.ClientConfig)
	}
	f := func(line int, key, fate string) {
		t.Helper()
		for _, l := range imp.Lines {
			if l.Line == line && l.Key == key {
				if l.Fate != fate || l.Why == "" {
					t.Errorf("line %d %s: %s (%s), want %s", line, key, l.Fate, l.Why, fate)
				}
				return
			}
		}
		t.Errorf("line %d %s isn't named", line, key)
	}
	f(6, "west->east.topics", mm2Carried)
	f(8, "east->west.enabled", mm2Other)
	f(15, "emit.checkpoints.interval.seconds", mm2Needless)
	f(17, "sync.topic.acls.enabled", mm2Carried)
	f(23, "west.producer.linger.ms", mm2Needless)
	f(24, "transforms", mm2Lost)
	f(25, "groups.exclude", mm2Lost)
	f(26, "east->west.topics", mm2Other)
	if strings.Contains(mm2TableText(t, imp), "hush") {
		t.Error("the table shows a password")
	}
}

func mm2TableText(t *testing.T, imp *mm2Import) string {
	t.Helper()
	var b strings.Builder
	if err := mm2Table(imp).write(&b, true); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestImportMM2Refuses(t *testing.T) {
	f := func(text, flow, want string) {
		t.Helper()
		if _, err := importText(t, text, flow); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", flow, err, want)
		}
	}
	f("clusters = a, b\na.bootstrap.servers = x:1\n", "", "no flow is enabled")
	f("clusters = a, b\na->b.enabled = true\nb->a.enabled = true\n", "", "several flows")
	f("clusters = a, b\n", "a->c", "of the clusters a, b")
	f("clusters = a, b\n", "a->b", "no a.bootstrap.servers")
	f("clusters = a, b\na.bootstrap.servers = x:1\ntopics = (?!secret).*\n", "a->b", "line 3")
}

func TestImportMM2Defaults(t *testing.T) {
	imp, err := importText(t, "clusters = a, b\na.bootstrap.servers = x:1\n", "a->b")
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	for _, l := range imp.Lines {
		if l.Line == 0 && l.Fate == mm2Lost {
			lost++
		}
	}
	if lost != 2 || imp.lost() != 2 || imp.Spec.Exclude == "" {
		t.Errorf("%+v", imp)
	}
}
