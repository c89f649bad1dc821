package telemetry

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// document is docs/metrics.md, made from a scrape with everything touched once.
func document(t *testing.T) string {
	t.Helper()
	m := full(t)
	m.touch()
	help, kind, labels := map[string]string{}, map[string]string{}, map[string]string{}
	for _, line := range scrape(t, m) {
		switch {
		case strings.HasPrefix(line, "# HELP "):
			name, text, _ := strings.Cut(strings.TrimPrefix(line, "# HELP "), " ")
			help[name] = text
		case strings.HasPrefix(line, "# TYPE "):
			name, text, _ := strings.Cut(strings.TrimPrefix(line, "# TYPE "), " ")
			kind[name] = text
		default:
			name, rest, ok := strings.Cut(line, "{")
			name = strings.TrimSuffix(name, "_bucket")
			if !ok {
				continue
			}
			var names []string
			for _, pair := range strings.Split(rest[:strings.LastIndexByte(rest, '}')], `",`) {
				if l, _, _ := strings.Cut(pair, "="); l != "le" {
					names = append(names, l)
				}
			}
			labels[name] = strings.Join(names, ", ")
		}
	}
	var names []string
	for name := range help {
		if strings.HasPrefix(name, "kafka_") || strings.HasPrefix(name, "tidemark_") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var b strings.Builder
	b.WriteString("# Metrics\n\n" +
		"Made from a scrape by `TIDEMARK_UPDATE_DOCS=1 go test ./internal/telemetry`; a test keeps it in step. Served at `/metrics` of the\n" +
		"HTTP listener, beside `go_*` and `process_*`. Names that begin with `kafka_` are those of the usual JMX exporter rules, with their milliseconds; all other times are in seconds.\n\n" +
		"| metric | kind | labels | what it says |\n| --- | --- | --- | --- |\n")
	for _, name := range names {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, kind[name], labels[name], help[name])
	}
	return b.String()
}

// touch makes every labelled counter show.
func (m *Metrics) touch() {
	t := m.Topics
	t.BytesIn.WithLabelValues("t")
	t.BytesOut.WithLabelValues("t")
	t.ProduceRequests.WithLabelValues("t")
	t.FetchRequests.WithLabelValues("t")
	t.FailedProduce.WithLabelValues("e")
	t.FailedFetch.WithLabelValues("e")
	m.Requests.Closed.WithLabelValues("r")
	m.Requests.TimeMs.WithLabelValues("r")
	m.Events.Count.WithLabelValues("k")
	m.Replication.Elections.WithLabelValues("k")
	m.Mirror.Bytes.WithLabelValues("m", "t")
	m.Mirror.Batches.WithLabelValues("m", "t")
	m.Mirror.Cuts.WithLabelValues("m", "c")
	m.Mirror.Failures.WithLabelValues("m", "r")
	m.Mirror.Promotions.WithLabelValues("m")
	m.Mirror.VerifyEnd.WithLabelValues("m")
	m.Mirror.VerifyDifferent.WithLabelValues("m")
	m.Mirror.VerifyUnproved.WithLabelValues("m")
	m.Mirror.VerifyBytes.WithLabelValues("m")
	m.Mirror.SplitBrain.WithLabelValues("m")
	m.Mirror.EpochRaises.WithLabelValues("m")
	m.Security.LogIns.WithLabelValues("l", "m")
	m.Security.FailedLogIns.WithLabelValues("l", "m")
	m.Security.FailedHandshakes.WithLabelValues("l")
	m.Security.Denials.WithLabelValues("o", "r")
	m.Security.HTTPRefused.WithLabelValues("r")
}

func TestDocumentIsInStep(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "metrics.md")
	if os.Getenv("TIDEMARK_UPDATE_DOCS") != "" {
		if err := os.WriteFile(file, []byte(document(t)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != document(t) {
		t.Errorf("%s isn't what a scrape says: run TIDEMARK_UPDATE_DOCS=1 go test ./internal/telemetry", file)
	}
}
