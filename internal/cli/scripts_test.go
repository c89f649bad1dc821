package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs testdata/*.txtar: commands against nodes that `node NAME` starts.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:  "testdata",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"node": startScriptNode},
	})
}

// startScriptNode is the script command `node NAME [KEY=VALUE...]`: it starts a node on free ports and
// points the commands that follow at it. $NAME_KAFKA and $NAME_HTTP hold its addresses, $NAME_LISTENER that of each listener.
func startScriptNode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: node NAME [KEY=VALUE...]")
	}
	flags := &nodeFlags{DataDir: filepath.Join(ts.Getenv("WORK"), "data-"+args[0]), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0",
		Set: append([]string{"group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=2", "mirror.metadata.refresh.ms=200",
			"mirror.group.sync.ms=100", "log.level=error"}, args[1:]...)}
	if slices.ContainsFunc(args[1:], func(set string) bool { return strings.HasPrefix(set, "listeners=") }) {
		flags.Listen = ""
	}
	n, err := startNode(context.Background(), flags, Streams{Err: ts.Stderr(), Version: "test"})
	ts.Check(err)
	ts.Defer(func() { ts.Check(n.close()) })
	ts.Setenv(args[0]+"_KAFKA", n.broker.KafkaAddr())
	ts.Setenv(args[0]+"_HTTP", n.api.Addr())
	for _, e := range n.broker.Endpoints() {
		ts.Setenv(args[0]+"_"+e.Listener, fmt.Sprintf("%s:%d", e.Host, e.Port))
	}
	ts.Setenv("TIDEMARK_API", "http://"+n.api.Addr())
	ts.Setenv("TIDEMARK_BOOTSTRAP", n.broker.KafkaAddr())
}
