//go:build kafka

// Package cluster starts real Apache Kafka brokers on loopback for tests.
//
// Each node is a JVM process of its own, so that it can be killed and frozen.
// The jars come from the folder that TIDEMARK_KAFKA_LIBS names (make kafka
// fills it). A test that can't have them fails; it never skips.
package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tidemark/internal/core/types"
)

// controllerID is the node id of the process that runs the controller alone.
const controllerID = 100

// startWait bounds how long a node may take until its listeners accept.
const startWait = 3 * time.Minute

// Options describe a cluster.
type Options struct {
	// Brokers is how many broker nodes there are: ids from 1. With one, it is its own controller.
	Brokers int
	// Props are added to each node's server.properties.
	Props map[string]string
	// Listener replaces the client listener's protocol (PLAINTEXT): SSL, SASL_PLAINTEXT or SASL_SSL.
	Listener string
	// Host is the name that clients are told (default 127.0.0.1); it must resolve to loopback.
	Host string
	// ClusterID, if set, is the cluster's id (22 characters).
	ClusterID string
	// FormatArgs are added to the format tool's, such as --add-scram.
	FormatArgs []string
	// Ports, if set, are the brokers' client ports; else free ones are chosen.
	Ports []int
	// Advertised, if set, are the ports that clients are told in place of the brokers' own: something stands between them.
	Advertised []int
	// At, if set, says where each broker runs; else everything is on loopback. It goes with Combined.
	At func(id int) Place
	// Combined makes every broker a controller as well, as small clusters are run; else several brokers have a controller apart.
	Combined bool
	// JVM replaces the brokers' JVM options, which are those of a small and quickly started process.
	JVM []string
}

// Place is an address of a node's own, with a way to start processes there and to connect to it.
type Place struct {
	Host  string
	Start func(*exec.Cmd) error
	Dial  func(ctx context.Context, network, address string) (net.Conn, error)
}

// at gives a node's place.
func (c *Cluster) at(id int) Place {
	if c.opts.At != nil {
		return c.opts.At(id)
	}
	var d net.Dialer
	return Place{Host: "127.0.0.1", Start: (*exec.Cmd).Start, Dial: d.DialContext}
}

// told is the host name that clients are told of a broker.
func (c *Cluster) told(id int) string {
	if c.opts.At != nil {
		return c.at(id).Host
	}
	return c.opts.Host
}

// Cluster is a running Apache Kafka.
type Cluster struct {
	tb        testing.TB
	dir       string
	opts      Options
	ClusterID string
	nodes     []*Node // brokers, and a controller at the end if it is apart
}

// Node is one JVM.
type Node struct {
	ID   int
	Port int
	// Internal is the port of the listener between brokers, which is open and tells of itself alone.
	Internal int
	dir      string
	props    string
	mu       sync.Mutex
	cmd      *exec.Cmd
	done     chan struct{}
	logFile  string
}

// Libs gives the folder of Kafka's jars.
func Libs(tb testing.TB) string {
	tb.Helper()
	libs := os.Getenv("TIDEMARK_KAFKA_LIBS")
	if libs == "" {
		tb.Fatal("TIDEMARK_KAFKA_LIBS names no folder with Apache Kafka's jars: run `make kafka`")
	}
	return libs
}

// given are the ports that FreePort has given.
var given sync.Map

// FreePort gives a port on loopback that was free a moment ago, and each only once: what is to
// listen there has yet to start.
func FreePort(tb testing.TB) int {
	tb.Helper()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		if _, twice := given.LoadOrStore(port, true); !twice {
			return port
		}
	}
}

// Start formats and starts a cluster and stops it when the test ends.
func Start(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	if o.Brokers == 0 {
		o.Brokers = 1
	}
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	if o.Listener == "" {
		o.Listener = "PLAINTEXT"
	}
	c := &Cluster{tb: tb, dir: tb.TempDir(), opts: o, ClusterID: o.ClusterID}
	if c.ClusterID == "" {
		var id types.TopicID
		_, _ = rand.Read(id[:])
		c.ClusterID = id.String()
		if c.ClusterID[0] == '-' { // a leading dash looks like an option to the format tool
			c.ClusterID = "A" + c.ClusterID[1:]
		}
	}
	controllers := []int{FreePort(tb)}
	for o.Combined && len(controllers) < o.Brokers {
		controllers = append(controllers, FreePort(tb))
	}
	for i := range o.Brokers {
		port := 0
		if i < len(o.Ports) {
			port = o.Ports[i]
		} else {
			port = FreePort(tb)
		}
		c.nodes = append(c.nodes, c.newNode(i+1, port, controllers))
	}
	if c.apart() {
		c.nodes = append(c.nodes, c.newNode(controllerID, 0, controllers))
	}
	c.each(func(n *Node) error { return c.format(n) })
	tb.Cleanup(c.stopAll)
	c.each(func(n *Node) error { return c.start(n) })
	return c
}

// each runs f for all nodes at once and fails the test on the first error.
func (c *Cluster) each(f func(*Node) error) {
	c.tb.Helper()
	errs := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	for i, n := range c.nodes {
		wg.Go(func() { errs[i] = f(n) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		c.tb.Fatal(err)
	}
}

// apart reports whether the controller is a process of its own.
func (c *Cluster) apart() bool { return c.opts.Brokers > 1 && !c.opts.Combined }

// newNode lays out a node; controllers are the ports of the quorum's members, whose ids are 1 and so on, or controllerID.
func (c *Cluster) newNode(id, port int, controllers []int) *Node {
	n := &Node{ID: id, Port: port, dir: filepath.Join(c.dir, fmt.Sprint("node", id))}
	controller := !c.apart() || id == controllerID
	own := controllers[0]
	var voters []string
	for i, port := range controllers {
		voter := i + 1
		if c.apart() {
			voter = controllerID
		}
		if voter == id {
			own = port
		}
		voters = append(voters, fmt.Sprintf("%d@%s:%d", voter, c.at(voter).Host, port))
	}
	props := map[string]string{
		"node.id":                        fmt.Sprint(id),
		"controller.listener.names":      "CONTROLLER",
		"listener.security.protocol.map": "CLIENT:" + c.opts.Listener + ",INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"log.dirs":                       filepath.Join(n.dir, "data"),
		"offsets.topic.num.partitions":   "5", "transaction.state.log.num.partitions": "5",
		"offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1",
		"transaction.state.log.min.isr": "1", "share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr": "1", "group.initial.rebalance.delay.ms": "0",
		"auto.create.topics.enable": "false", "log.retention.check.interval.ms": "500",
		"log.cleaner.backoff.ms": "500", "log.initial.task.delay.ms": "100",
		"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500",
		"controller.quorum.voters": strings.Join(voters, ","),
	}
	host := c.at(id).Host
	var roles, listeners []string
	if id != controllerID {
		n.Internal = FreePort(c.tb)
		roles = append(roles, "broker")
		listeners = append(listeners, fmt.Sprintf("CLIENT://%s:%d", host, port), fmt.Sprintf("INTERNAL://%s:%d", host, n.Internal))
		told := port
		if id <= len(c.opts.Advertised) {
			told = c.opts.Advertised[id-1]
		}
		props["advertised.listeners"] = fmt.Sprintf("CLIENT://%s:%d,INTERNAL://%s:%d", c.told(id), told, host, n.Internal)
		props["inter.broker.listener.name"] = "INTERNAL"
	}
	if controller {
		roles = append(roles, "controller")
		listeners = append(listeners, fmt.Sprintf("CONTROLLER://%s:%d", host, own))
	}
	props["process.roles"], props["listeners"] = strings.Join(roles, ","), strings.Join(listeners, ",")
	for k, v := range c.opts.Props {
		props[k] = v
	}
	var text strings.Builder
	for k, v := range props {
		fmt.Fprintf(&text, "%s=%s\n", k, v)
	}
	n.props = text.String()
	return n
}

func (c *Cluster) format(n *Node) error {
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(n.propsFile(), []byte(n.props), 0o644); err != nil {
		return err
	}
	out, err := javaCommand(context.Background(), c.tb, "kafka.tools.StorageTool",
		append([]string{"format", "-t", c.ClusterID, "-c", n.propsFile()}, c.opts.FormatArgs...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("format node %d: %w\n%s", n.ID, err, out)
	}
	return nil
}

func (n *Node) propsFile() string { return filepath.Join(n.dir, "server.properties") }

// Java gives the command that runs a class of Kafka's jars, or of ours, in a small JVM.
func Java(ctx context.Context, tb testing.TB, class string, args ...string) *exec.Cmd {
	tb.Helper()
	return javaCommand(ctx, tb, class, args...)
}

// javaCommand runs a class of Kafka's jars in a small JVM.
func javaCommand(ctx context.Context, tb testing.TB, class string, args ...string) *exec.Cmd {
	return jvm(ctx, tb, []string{"-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}, class, args...)
}

// jvm runs a class of Kafka's jars in a JVM with the options.
func jvm(ctx context.Context, tb testing.TB, options []string, class string, args ...string) *exec.Cmd {
	all := append(slices.Clone(options), "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", filepath.Join(Libs(tb), "*"), class)
	return exec.CommandContext(ctx, "java", append(all, args...)...)
}

func (c *Cluster) start(n *Node) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd != nil {
		return fmt.Errorf("node %d runs already", n.ID)
	}
	n.logFile = filepath.Join(n.dir, "out.log")
	log, err := os.OpenFile(n.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := javaCommand(context.Background(), c.tb, "kafka.Kafka", n.propsFile())
	if c.opts.JVM != nil {
		cmd = jvm(context.Background(), c.tb, c.opts.JVM, "kafka.Kafka", n.propsFile())
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.at(n.ID).Start(cmd); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	n.cmd, n.done = cmd, done
	if n.ID == controllerID {
		return nil
	}
	return waitListening(c.at(n.ID), n, done)
}

func waitListening(at Place, n *Node, done chan struct{}) error {
	deadline := time.NewTimer(startWait)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			out, _ := os.ReadFile(n.logFile)
			return fmt.Errorf("node %d ended while starting:\n%s", n.ID, tail(out))
		case <-deadline.C:
			return fmt.Errorf("node %d doesn't listen after %s", n.ID, startWait)
		case <-tick.C:
			// One listener is opened after the other: on a busy machine that takes seconds.
			if accepts(at, n.Port) && accepts(at, n.Internal) {
				return nil
			}
		}
	}
}

func accepts(at Place, port int) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := at.Dial(ctx, "tcp", fmt.Sprintf("%s:%d", at.Host, port))
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

func tail(b []byte) []byte {
	if len(b) > 4000 {
		b = b[len(b)-4000:]
	}
	return b
}

// Node gives the broker with the id.
func (c *Cluster) Node(id int) *Node {
	i := slices.IndexFunc(c.nodes, func(n *Node) bool { return n.ID == id })
	if i < 0 {
		c.tb.Fatalf("no node %d", id)
	}
	return c.nodes[i]
}

// Bootstrap lists all brokers' client addresses.
func (c *Cluster) Bootstrap() string {
	var addrs []string
	for _, n := range c.nodes {
		if n.ID != controllerID {
			addrs = append(addrs, fmt.Sprintf("%s:%d", c.told(n.ID), n.Port))
		}
	}
	return strings.Join(addrs, ",")
}

// Signal sends a signal to a node; with wait it returns when the process has ended.
func (c *Cluster) Signal(id int, sig syscall.Signal, wait bool) {
	c.tb.Helper()
	n := c.Node(id)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return
	}
	if err := n.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.tb.Fatal(err)
	}
	if wait {
		<-n.done
		n.cmd = nil
	}
}

// Kill ends a node abruptly (kill -9).
func (c *Cluster) Kill(id int) { c.tb.Helper(); c.Signal(id, syscall.SIGKILL, true) }

// Stop ends a node in order.
func (c *Cluster) Stop(id int) { c.tb.Helper(); c.Signal(id, syscall.SIGTERM, true) }

// KillAll ends the whole cluster abruptly.
func (c *Cluster) KillAll() {
	for _, n := range c.nodes {
		c.Kill(n.ID)
	}
}

// Restart starts a node that was stopped or killed.
func (c *Cluster) Restart(id int) {
	c.tb.Helper()
	if err := c.start(c.Node(id)); err != nil {
		c.tb.Fatal(err)
	}
}

func (c *Cluster) stopAll() {
	for _, n := range c.nodes {
		n.mu.Lock()
		if n.cmd != nil {
			_ = n.cmd.Process.Kill()
			<-n.done
			n.cmd = nil
		}
		n.mu.Unlock()
	}
}

// Pid is the node's process id.
func (n *Node) Pid() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cmd.Process.Pid
}

// DataDir is a node's log.dirs.
func (n *Node) DataDir() string { return filepath.Join(n.dir, "data") }

// Tool runs a Java class to its end and gives what it printed.
func (c *Cluster) Tool(ctx context.Context, class string, args ...string) (string, error) {
	return RunJava(ctx, c.tb, class, args...)
}

// RunJava runs a class of Kafka's jars, or of ours, to its end.
func RunJava(ctx context.Context, tb testing.TB, class string, args ...string) (string, error) {
	cmd := javaCommand(ctx, tb, class, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	return out.String(), err
}
