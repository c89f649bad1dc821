package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// TestNobodyIsAskedInVain: a command that asks whether it should go on has looked
// before whether it can: each one that asks is given something that isn't there.
func TestNobodyIsAskedInVain(t *testing.T) {
	dir := t.TempDir()
	n, err := startNode(context.Background(), &nodeFlags{DataDir: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0",
		Set: []string{"node.id=1", "log.level=error", "offsets.topic.num.partitions=1"}}, Streams{Err: os.Stderr, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.close(); err != nil {
			t.Error(err)
		}
	}()
	t.Setenv("TIDEMARK_API", "http://"+n.api.Addr())
	t.Setenv("TIDEMARK_BOOTSTRAP", n.broker.KafkaAddr())
	mm2, junk := filepath.Join(dir, "mm2.properties"), filepath.Join(dir, "junk")
	for name, text := range map[string]string{junk: "nothing", mm2: "clusters=a,b\na.bootstrap.servers=127.0.0.1:1\nb.bootstrap.servers=127.0.0.1:2\na->b.enabled=true\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, _, errOut := command(t, "", "mirror", "create", "held", "--source", "127.0.0.1:1", "--no-start"); code != 0 {
		t.Fatal(errOut)
	}
	seen := map[string]bool{}
	f := func(say string, args ...string) {
		t.Helper()
		seen[commandOf(t, args)] = true
		code, out, errOut := command(t, "no\n", args...)
		if strings.Contains(errOut, "to go on") {
			t.Errorf("%v asks first:\n%s", args, errOut)
		}
		if code == 0 && !strings.Contains(out+errOut, "no") || !strings.Contains(out+errOut, say) {
			t.Errorf("%v: exit %d, want %q in:\n%s%s", args, code, say, out, errOut)
		}
	}
	f("node 9: there is no such node", "cluster", "decommission", "9")
	f("node 9: there is no such node", "cluster", "replace", "9")
	f("no member abc", "cluster", "remove", "abc")
	f("no partition waits", "cluster", "recover")
	f("junk", "cluster", "restore", junk, "--data-dir", dir)
	f(dir, "cluster", "reset", "--data-dir", dir)
	f("nope", "topic", "delete", "nope")
	f("there is no group nope", "group", "delete", "nope")
	f("nope", "group", "reset-offsets", "nope", "--to", "earliest")
	f("there is no user nope", "user", "remove", "nope")
	f("No authorizer is configured", "acl", "remove", "--topic", "nope")
	for _, verb := range []string{"delete", "abandon", "accept-gap", "failover", "failback", "switchover"} {
		f("nope", "mirror", verb, "nope")
	}
	f("nope", "mirror", "failback", "nope", "--plan", "p")
	f("nope", "mirror", "alter", "nope", "--topics", "x")
	f("nope", "mirror", "drill", "delete", "nope")
	f("no partition is closed", "mirror", "reopen", "--topic", "nope")
	f("mirror held exists", "mirror", "import-mm2", mm2, "--name", "held")
	f(`no vault entry "nope"`, "vault", "purge", "nope")
	f(`nope`, "vault", "replay", "nope")

	parser := parserOf(t)
	_ = kong.Visit(parser.Model, func(node kong.Visitable, next kong.Next) error {
		if leaf, ok := node.(*kong.Node); ok && leaf.Type == kong.CommandNode {
			for _, flag := range leaf.Flags {
				if flag.Name == "yes" && !seen[leaf.Path()] {
					t.Errorf("%s asks, and isn't tried here", leaf.Path())
				}
			}
		}
		return next(nil)
	})
}

func parserOf(t *testing.T) *kong.Kong {
	t.Helper()
	parser, err := kong.New(&grammar{}, kong.Name("tidemark"), kong.Vars{"version": "test", "sim_profiles": "none"})
	if err != nil {
		t.Fatal(err)
	}
	return parser
}

// commandOf gives the path of the command that a command line means.
func commandOf(t *testing.T, args []string) string {
	t.Helper()
	parsed, err := parserOf(t).Parse(args)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return parsed.Selected().Path()
}
