package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// document is docs/configuration.md, made from the tables.
func document() string {
	var b strings.Builder
	b.WriteString("# Configuration\n\n" +
		"Made from the tables in `internal/config` by `TIDEMARK_UPDATE_DOCS=1 go test ./internal/config`; a test keeps it in step.\n\n" +
		"A node reads `--config server.properties` (Java properties, Kafka's names), then flags and `--set key=value`; the later source wins.\n" +
		"`tidemark config keys [WORD]` lists the same. An unknown key stops the start with the nearest known one; a key of Kafka's that means nothing here is a warning, and one whose\n" +
		"meaning can't be kept (tiered storage, Kerberos, authorizers of one's own) stops the start with the reason. Keys marked † are this project's own.\n")
	section := func(title string, keys []key) {
		fmt.Fprintf(&b, "\n## %s\n\n| key | default | allowed | what it does |\n| --- | --- | --- | --- |\n", title)
		for _, k := range keys {
			own, def := "", "`"+k.def+"`"
			if k.own {
				own = " †"
			}
			switch {
			case k.alias != "":
				def = "of `" + k.alias + "`"
			case k.def == "":
				def = "none"
			}
			fmt.Fprintf(&b, "| `%s`%s | %s | %s | %s |\n", k.name, own, def, k.rule.allowed(), k.doc)
		}
	}
	section("Node", keysNode())
	section("Network", keysNet())
	section("Log-ins and permissions", keysSecurity())
	section("Topics", keysTopic())
	section("Log", keysLog())
	section("Fetch", keysFetch())
	section("Replication", keysReplica())
	section("Producers and transactions", keysTxn())
	section("Groups and offsets", keysGroup())
	section("Mirrors and vault", keysMirror())
	b.WriteString("\n## Topic configs\n\n| config | default | allowed | what it does |\n| --- | --- | --- | --- |\n")
	for _, k := range topicKeys() {
		def := "`" + k.def + "`"
		switch {
		case k.broker != "":
			def = "of `" + k.broker + "`"
		case k.def == "":
			def = "none"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.name, def, k.rule.allowed(), k.doc)
	}
	b.WriteString("\n## Without effect\n\nKeys that are known and change nothing here; a start with one of them says so in a warning. A name that ends with a dot is a prefix.\n\n| key | why |\n| --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(ignoredReasons)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, ignoredReasons[name])
	}
	return b.String()
}

func TestDocumentIsInStep(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "configuration.md")
	if os.Getenv("TIDEMARK_UPDATE_DOCS") != "" {
		if err := os.WriteFile(file, []byte(document()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != document() {
		t.Errorf("%s isn't what the tables say: run TIDEMARK_UPDATE_DOCS=1 go test ./internal/config", file)
	}
}
