//go:build kafka

package kafka_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tidemark/internal/await"
	"tidemark/internal/core/types"
	"tidemark/test/kafka/cluster"
	"tidemark/test/process"
)

// node is a Tidemark process started from the binary that users run.
type node struct {
	*process.Process
	t     testing.TB
	dir   string
	kafka string
	http  string
}

func binary(t testing.TB) string {
	t.Helper()
	return process.Binary(t, "kafka")
}

// startNode runs `tidemark ARGS...` with a data folder and free ports, and waits until it is ready.
func startNode(t testing.TB, command string, args ...string) *node {
	t.Helper()
	n := newNode(t, command, args...)
	n.start()
	n.waitReady()
	return n
}

func newNode(t testing.TB, command string, args ...string) *node {
	t.Helper()
	dir := t.TempDir()
	n := &node{t: t, dir: filepath.Join(dir, "data"),
		kafka: fmt.Sprintf("127.0.0.1:%d", cluster.FreePort(t)), http: fmt.Sprintf("127.0.0.1:%d", cluster.FreePort(t))}
	n.Process = &process.Process{Bin: binary(t), LogFile: filepath.Join(dir, "tidemark.log"),
		Args: append([]string{command, "--data-dir", n.dir, "--listen", n.kafka, "--http", n.http}, args...)}
	t.Cleanup(func() {
		n.kill()
		if t.Failed() {
			t.Logf("end of the node's log:\n%s", n.LogEnd(6000))
		}
	})
	return n
}

// startStandby runs a standby of the source with quick refreshes.
func startStandby(t testing.TB, source string, args ...string) *node {
	t.Helper()
	return startNode(t, "standby", append([]string{"--source", source, "--set", "mirror.metadata.refresh.ms=1000",
		"--set", "group.initial.rebalance.delay.ms=0"}, args...)...)
}

func (n *node) start() {
	n.t.Helper()
	if err := n.Start(); err != nil {
		n.t.Fatal(err)
	}
}

// kill is kill -9 and returns when the process is gone.
func (n *node) kill() { n.End(syscall.SIGKILL) }

// stop ends the process in order.
func (n *node) stop() { n.End(syscall.SIGTERM) }

func (n *node) waitReady() {
	n.t.Helper()
	eventually(n.t, 60*time.Second, "the node is ready", func() error {
		if !n.Running() {
			n.t.Fatalf("the node ended:\n%s", n.LogEnd(1<<20))
		}
		return process.Ready(http.DefaultClient, n.http)
	})
}

// leastPatience is how long anything may take on a busy machine.
const leastPatience = 2 * time.Minute

// eventually calls f until it gives nil, and fails the test with its last error when the limit has passed, or leastPatience if that is longer.
func eventually(t testing.TB, limit time.Duration, what string, f func() error) {
	t.Helper()
	await.NoError(t, max(limit, leastPatience), what, f)
}

// tidemark runs a command of the binary against this node and gives its exit code and what it printed.
func (n *node) tidemark(args ...string) (code int, stdout, stderr string) {
	n.t.Helper()
	cmd := exec.Command(binary(n.t), args...)
	cmd.Env = append(os.Environ(), "TIDEMARK_API=http://"+n.http, "TIDEMARK_BOOTSTRAP="+n.kafka)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		n.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
}

// partitionStatus is one partition of `mirror status -o json`; the names are relied on.
type partitionStatus struct {
	Topic      string `json:"topic"`
	Partition  int32  `json:"partition"`
	State      string `json:"state"`
	SrcEpoch   int32  `json:"srcEpoch"`
	Epoch      int32  `json:"epoch"`
	SrcStart   int64  `json:"srcStart"`
	SrcEnd     int64  `json:"srcEnd"`
	Start      int64  `json:"start"`
	End        int64  `json:"end"`
	LagRecords int64  `json:"lagRecords"`
	LagBytes   int64  `json:"lagBytes"`
	LagMs      int64  `json:"lagMs"`
	VerifiedTo int64  `json:"verifiedTo"`
	Reason     string `json:"reason"`
	Promotion  *struct {
		LastMirroredEpoch  int32 `json:"lastMirroredEpoch"`
		LastMirroredOffset int64 `json:"lastMirroredOffset"`
		SrcEndLastSeen     int64 `json:"srcEndLastSeen"`
		SrcEndSeenAt       int64 `json:"srcEndSeenAt"`
		PromotedEpoch      int32 `json:"promotedEpoch"`
	} `json:"promotion"`
}

type mirrorStatus struct {
	Mirror          string            `json:"mirror"`
	SourceClusterID string            `json:"sourceClusterId"`
	State           string            `json:"state"`
	Partitions      []partitionStatus `json:"partitions"`
}

func (n *node) status() (mirrorStatus, error) {
	code, out, errOut := n.tidemark("mirror", "status", "standby", "-o", "json")
	var st mirrorStatus
	if code != 0 {
		return st, fmt.Errorf("mirror status: exit %d: %s", code, errOut)
	}
	return st, json.Unmarshal([]byte(out), &st)
}

// waitCaughtUp waits until the mirror has every partition of the ends given, up to those ends.
func (n *node) waitCaughtUp(limit time.Duration, ends map[types.TopicPartition]int64) {
	n.t.Helper()
	eventually(n.t, limit, "the standby has caught up", func() error {
		st, err := n.status()
		if err != nil {
			return err
		}
		have := map[types.TopicPartition]partitionStatus{}
		for _, p := range st.Partitions {
			have[types.TopicPartition{Topic: p.Topic, Partition: p.Partition}] = p
		}
		for tp, end := range ends {
			p, ok := have[tp]
			if !ok {
				return fmt.Errorf("%s isn't mirrored", tp)
			}
			if p.End < end || p.State != "MIRRORING" {
				return fmt.Errorf("%s is %s (%s) at %d of %d", tp, p.State, p.Reason, p.End, end)
			}
		}
		return nil
	})
}

// failover runs the one command and gives what it said.
func (n *node) failover() mirrorStatus {
	n.t.Helper()
	code, out, errOut := n.tidemark("mirror", "failover", "standby", "--yes", "-o", "json")
	if code != 0 {
		n.t.Fatalf("failover: exit %d\n%s\n%s", code, out, errOut)
	}
	var st mirrorStatus
	if err := json.Unmarshal([]byte(out), &st); err != nil {
		n.t.Fatalf("failover said %q: %v", out, err)
	}
	return st
}

func hasState(st mirrorStatus, topic, state string) (partitionStatus, bool) {
	for _, p := range st.Partitions {
		if p.Topic == topic && p.State == state {
			return p, true
		}
	}
	return partitionStatus{}, false
}

// reasonOf waits for a partition of the topic to be in the state and gives its reason.
func (n *node) reasonOf(limit time.Duration, topic, state string) partitionStatus {
	n.t.Helper()
	var found partitionStatus
	eventually(n.t, limit, topic+" is "+state, func() error {
		st, err := n.status()
		if err != nil {
			return err
		}
		p, ok := hasState(st, topic, state)
		if !ok {
			var all []string
			for _, p := range st.Partitions {
				all = append(all, fmt.Sprintf("%s-%d %s %s", p.Topic, p.Partition, p.State, p.Reason))
			}
			return fmt.Errorf("mirror %s: %s", st.State, strings.Join(all, "; "))
		}
		found = p
		return nil
	})
	return found
}
