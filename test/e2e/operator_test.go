package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"tidemark/internal/broker"
	"tidemark/internal/cli"
	"tidemark/internal/console"
	"tidemark/test/e2e/harness"
)

// apiNode shows a node to its HTTP API, as the command line's nodes do.
type apiNode struct{ *broker.Broker }

func (n apiNode) Healthy() error                 { return n.Health() }
func (n apiNode) Mirrors() console.Mirrors       { return n.Broker.Mirrors() }
func (n apiNode) Membership() console.Membership { return n.Broker }
func (n apiNode) Vault() console.Vault           { return n.Broker.Vault() }

// operator types commands at a node.
type operator struct {
	t    testing.TB
	args []string
}

// operate serves a node's HTTP API until the test ends.
func operate(t testing.TB, b *harness.Broker) *operator {
	t.Helper()
	ln, err := console.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := console.Serve(ln, apiNode{b.Broker}, console.Access{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(harness.Context(t)) })
	return &operator{t: t, args: []string{"--api", "http://" + s.Addr(), "--bootstrap", b.Addr}}
}

// try runs a command and gives what it printed and its exit code.
func (o *operator) try(args ...string) (stdout, stderr string, code int) {
	o.t.Helper()
	var out, errs bytes.Buffer
	code = cli.Main(append(args, o.args...), cli.Streams{In: &bytes.Buffer{}, Out: &out, Err: &errs, Version: "test"})
	return out.String(), errs.String(), code
}

// run runs a command that must succeed.
func (o *operator) run(args ...string) (stdout, stderr string) {
	o.t.Helper()
	stdout, stderr, code := o.try(args...)
	if code != 0 {
		o.t.Fatalf("%v: exit %d\n%s%s", args, code, stdout, stderr)
	}
	return stdout, stderr
}

// json runs a command with -o json and decodes what it printed.
func (o *operator) json(into any, args ...string) {
	o.t.Helper()
	stdout, _ := o.run(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(stdout), into); err != nil {
		o.t.Fatalf("%v: %v in\n%s", args, err, stdout)
	}
}

// fails runs a command that must fail, and gives what it says.
func (o *operator) fails(args ...string) string {
	o.t.Helper()
	stdout, stderr, code := o.try(args...)
	if code == 0 {
		o.t.Fatalf("%v succeeded:\n%s%s", args, stdout, stderr)
	}
	return fmt.Sprint(stdout, stderr)
}
