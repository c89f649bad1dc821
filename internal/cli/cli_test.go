package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"tidemark/internal/await"
)

// TestMain runs the tests, or, when a script executes `tidemark`, the program itself.
func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){
		"tidemark": func() {
			os.Exit(Main(os.Args[1:], Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Version: "test"}))
		},
	})
}

// leakChecked fails a run that leaves goroutines behind.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if code == 0 {
		if err := await.Leaks(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			return 1
		}
	}
	return code
}

// command runs a command line in this process.
func command(t *testing.T, in string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = run(context.Background(), args, Streams{In: strings.NewReader(in), Out: &out, Err: &errOut, InTerminal: in != "", Version: "test"})
	return code, out.String(), errOut.String()
}

// TestExitCodes checks what a call that can't work says, and its exit code.
func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(bad, []byte("listners=PLAINTEXT://:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	badClient := filepath.Join(dir, "client.properties")
	if err := os.WriteFile(badClient, []byte("security.protokol=SSL\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(want int, say string, args ...string) {
		t.Helper()
		code, out, errOut := command(t, "", args...)
		if code != want || !strings.Contains(out+errOut, say) {
			t.Errorf("%v: exit %d, want %d, and %q in:\n%s%s", args, code, want, say, out, errOut)
		}
	}
	f(0, "test", "--version")
	f(0, "standby", "--help")
	f(0, "Exit codes: 0 done", "--help")
	f(2, "unknown flag --nonsense", "serve", "--nonsense")
	f(2, "unexpected argument", "fly")
	f(2, "listeners", "serve", "--config", bad)
	f(2, "tidemark config keys", "serve", "--data-dir", dir, "--set", "num.partitons=3")
	f(0, "num.partitions ", "config", "keys", "partitions", "topic")
	f(0, "retention.ms ", "config", "keys", "--topic", "-o", "wide")
	f(0, `"own": true`, "config", "keys", "vault", "-o", "json")
	f(2, "HOST:PORT", "serve", "--data-dir", dir, "--listen", "nowhere")
	f(2, "node.id", "serve", "--data-dir", dir, "--set", "node.id=-7")
	f(2, "must be key=value", "serve", "--data-dir", dir, "--set", "node.id")
	f(2, "--source", "standby", "--data-dir", dir)
	f(2, "security.protocol", "standby", "--data-dir", dir, "--source", "127.0.0.1:1", "--source-config", badClient)
	f(2, "http://HOST:PORT", "mirror", "list", "--api", "nonsense")
	f(2, "add --yes", "mirror", "failover", "m", "--api", "http://127.0.0.1:1")
	f(1, "is the node running?", "mirror", "list", "--api", "http://127.0.0.1:1")
	f(1, "is the node running?", "meta", "--api", "http://127.0.0.1:1")
	f(1, "is the node running? --bootstrap names", "topic", "list", "--bootstrap", "127.0.0.1:1")
	f(2, "--join \"nonsense\": want HOST:PORT", "serve", "--data-dir", dir, "--join", "nonsense")
	f(2, "nothing to change", "topic", "alter", "t")
}

// TestConfirm asks on a terminal and does nothing without the right word.
func TestConfirm(t *testing.T) {
	f := func(typed string, wantErr bool) {
		t.Helper()
		var errOut bytes.Buffer
		err := confirm(Streams{In: strings.NewReader(typed), Err: &errOut, InTerminal: true}, false, "This is serious.", "prod")
		if (err != nil) != wantErr || !strings.Contains(errOut.String(), "This is serious.") {
			t.Errorf("typed %q: %v, asked %q", typed, err, errOut.String())
		}
	}
	f("prod\n", false)
	f("prod", false)
	f("no\n", true)
	f("\n", true)
	f("", true)
}

// TestProgressText says how far, how fast, and how long to go.
func TestProgressText(t *testing.T) {
	f := func(done, total int64, want string) {
		t.Helper()
		if got := progressText("verify", done, total, 1e9); got != want {
			t.Errorf("said %q, want %q", got, want)
		}
	}
	f(512, 0, "verify: 512 B, 512 B/s")
	f(1<<20, 4<<20, "verify: 1.0 MiB of 4.0 MiB (25%), 1.0 MiB/s, 3s to go")
	f(4<<20, 4<<20, "verify: 4.0 MiB of 4.0 MiB (100%), 4.0 MiB/s")
}

// TestYAMLHasJSONsNames prints the same value in both formats.
func TestYAMLHasJSONsNames(t *testing.T) {
	var out bytes.Buffer
	rows := []topicRow{{Name: "orders", ID: "x", Partitions: 3}}
	if err := (Target{Output: "yaml"}).print(&out, rows, nil); err != nil {
		t.Fatal(err)
	}
	if want := "- name: orders\n  id: x\n  partitions: 3\n  internal: false\n"; out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
}
