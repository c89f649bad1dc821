package telemetry

import (
	"iter"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tidemark/internal/core/types"
)

// scrape gives the lines of /metrics.
func scrape(t *testing.T, m *Metrics) []string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(m.Gatherer(), promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return strings.Split(strings.TrimSpace(w.Body.String()), "\n")
}

// full is a node's metrics with everything registered and touched once, so that all show up.
func full(t *testing.T) *Metrics {
	t.Helper()
	m := New()
	part := PartitionStat{TopicPartition: types.TopicPartition{Topic: "a", Partition: 3}, SizeBytes: 10, Segments: 2, LogStart: 1, LogEnd: 9, HighWatermark: 8, LeaderEpoch: 4, Leader: true}
	mirrored := MirrorStat{Mirror: "m", TopicPartition: part.TopicPartition, State: "MIRRORING", SourceEnd: 20, LogEnd: 9, LagRecords: 11, LagBytes: 1100, LagMs: 250}
	for _, c := range []error{
		m.Register(NewPartitionCollector(func() iter.Seq[PartitionStat] { return slices.Values([]PartitionStat{part}) })),
		m.Register(NewMirrorCollector(func() iter.Seq[MirrorStat] { return slices.Values([]MirrorStat{mirrored}) })),
		m.Register(NewVaultCollector(func() VaultStat { return VaultStat{Entries: 2, Bytes: 30, MaxBytes: -1} })),
		m.Register(NewNetCollector(func() NetStat { return NetStat{Open: 7, BytesIn: 5} })),
		m.Register(NewGroupCollector(func() []GroupStat { return []GroupStat{{Type: "consumer", State: "Stable", Groups: 2}} })),
	} {
		if c != nil {
			t.Fatal(c)
		}
	}
	m.Topics.MessagesIn.WithLabelValues("a").Add(5)
	m.Requests.Count.WithLabelValues("Fetch", "13").Inc()
	m.Log.CutRecords.WithLabelValues("DIVERGENCE", "LEADER").Add(3)
	return m
}

func TestNamesThatDashboardsLookFor(t *testing.T) {
	got := scrape(t, full(t))
	f := func(want string) {
		t.Helper()
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing", want)
		}
	}
	f(`kafka_server_brokertopicmetrics_messagesin_total{topic="a"} 5`)
	f(`kafka_network_requestmetrics_requests_total{request="Fetch",version="13"} 1`)
	f(`kafka_log_log_size{partition="3",topic="a"} 10`)
	f(`kafka_log_log_logendoffset{partition="3",topic="a"} 9`)
	f(`kafka_server_replicamanager_leadercount 1`)
	f(`kafka_server_replicamanager_underreplicatedpartitions 0`)
	f(`kafka_server_socketservermetrics_connection_count 7`)
	f(`tidemark_mirror_lag_records{mirror="m",partition="3",topic="a"} 11`)
	f(`tidemark_mirror_lag_bytes{mirror="m",partition="3",topic="a"} 1100`)
	f(`tidemark_mirror_lag_seconds{mirror="m",partition="3",topic="a"} 0.25`)
	f(`tidemark_mirror_state{mirror="m",partition="3",state="MIRRORING",topic="a"} 1`)
	f(`tidemark_log_cut_records_total{cause="DIVERGENCE",ordered_by="LEADER"} 3`)
}

func TestEveryMetricHasHelpAndAKnownPrefix(t *testing.T) {
	helped := make(map[string]bool)
	for _, line := range scrape(t, full(t)) {
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			helped[name] = help != ""
			continue
		}
		name, ok := strings.CutPrefix(line, "# TYPE ")
		if !ok {
			continue
		}
		name, kind, _ := strings.Cut(name, " ")
		if strings.HasPrefix(name, "tidemark_") && (strings.HasSuffix(name, "_ms") || (kind == "counter") != strings.HasSuffix(name, "_total")) {
			t.Errorf("%s %s: times are in seconds, and counters, and nothing else, end in _total", kind, name)
		}
		if !helped[name] {
			t.Errorf("%s has no help", name)
		}
		if !slices.ContainsFunc([]string{"kafka_", "tidemark_", "go_", "process_"}, func(p string) bool { return strings.HasPrefix(name, p) }) {
			t.Errorf("%s has no known prefix", name)
		}
	}
}

func TestForgottenTopicsAreGone(t *testing.T) {
	m := full(t)
	m.Topics.Forget("a")
	for _, line := range scrape(t, m) {
		if strings.HasPrefix(line, "kafka_server_brokertopicmetrics_messagesin_total{") {
			t.Errorf("a deleted topic is still shown: %s", line)
		}
	}
}

func TestTheSecondCollectorOfAKindIsRefused(t *testing.T) {
	m := full(t)
	if err := m.Register(NewNetCollector(func() NetStat { return NetStat{} })); err == nil {
		t.Error("it was taken")
	}
}

func TestNewLogger(t *testing.T) {
	f := func(level, format, want string, ok bool) {
		t.Helper()
		var b strings.Builder
		l, err := NewLogger(&b, level, format)
		if (err == nil) != ok {
			t.Errorf("%s/%s: %v", level, format, err)
			return
		}
		if !ok {
			return
		}
		l.Info("hello", "k", 1)
		if !strings.Contains(b.String(), want) || want == "" && b.Len() > 0 {
			t.Errorf("%s/%s wrote %q, want %q", level, format, b.String(), want)
		}
	}
	f("info", "text", "msg=hello k=1", true)
	f("debug", "json", `"msg":"hello"`, true)
	f("warn", "text", "", true)
	f("loud", "text", "", false)
	f("info", "xml", "", false)
}
