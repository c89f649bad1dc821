package etcd_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"tidemark/internal/await"
	"tidemark/internal/metastore/etcd"
)

// memberEnv makes the test binary an etcd member: a process of its own that can be killed and frozen.
const memberEnv = "TIDEMARK_TEST_ETCD_MEMBER"

// member says what a member process runs.
type member struct {
	Name, Dir, Client, Peer string
	Cluster                 string // initial cluster: name=peer URL, …
	MaxTxnOps               uint
	Cert, CA                string // for TLS towards clients, who must show a certificate
}

func TestMain(m *testing.M) {
	if spec := os.Getenv(memberEnv); spec != "" {
		if err := runMember(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	await.NoLeaks(m)
}

// runMember serves until its standard input ends, so that it never outlives the tests.
func runMember(spec string) error {
	var m member
	if err := json.Unmarshal([]byte(spec), &m); err != nil {
		return err
	}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.MaxTxnOps = m.Name, m.Dir, m.MaxTxnOps
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	client, peer := url.URL{Scheme: "http", Host: m.Client}, url.URL{Scheme: "http", Host: m.Peer}
	if m.Cert != "" {
		client.Scheme = "https"
		cfg.ClientTLSInfo = transport.TLSInfo{CertFile: m.Cert, KeyFile: m.Cert, TrustedCAFile: m.CA, ClientCertAuth: true}
		cfg.EnableGRPCGateway = false
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = m.Cluster
	cfg.UnsafeNoFsync = true // what a killed process wrote, the kernel keeps
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	<-e.Server.ReadyNotify()
	fmt.Println("ready", e.Clients[0].Addr().String())
	signal.Ignore(syscall.SIGINT)
	bufio.NewReader(os.Stdin).ReadByte()
	return nil
}

// process is a running member.
type process struct {
	t    *testing.T
	spec member
	cmd  *exec.Cmd
	out  *bufio.Reader
	addr string
}

// launch starts a member; ready waits for it.
func launch(t *testing.T, spec member) *process {
	t.Helper()
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, spec: spec, cmd: exec.Command("/proc/self/exe")}
	p.cmd.Env = append(os.Environ(), memberEnv+"="+string(data))
	p.cmd.Stderr = os.Stderr
	if _, err := p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

func (p *process) ready() *process {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if err != nil || !ok {
		p.t.Fatalf("etcd says %q, %v", line, err)
	}
	p.addr = addr
	return p
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// freeze stops all threads of the process and waits until they stand.
func (p *process) freeze() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 5000 {
		if p.stands() {
			return
		}
		<-tick.C
	}
	p.t.Fatal("the process doesn't stop")
}

// stands reports whether each thread is in state T, which follows the last parenthesis of its stat file.
func (p *process) stands() bool {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	if err != nil || len(files) == 0 {
		return false
	}
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if i := strings.LastIndex(string(stat), ") "); err != nil || i < 0 || !strings.HasPrefix(string(stat)[i:], ") T") {
			return false
		}
	}
	return true
}

// kill ends the process as kill -9 does. It may be called more than once.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	}
}

// restart starts the member again on its folder and its address.
func (p *process) restart() *process {
	p.t.Helper()
	p.kill()
	spec := p.spec
	spec.Client = p.addr
	return launch(p.t, spec).ready()
}

// startSingle runs one etcd, and gives a store on it.
func startSingle(t *testing.T, maxTxnOps uint, o etcd.Options) (*process, *etcd.Store) {
	t.Helper()
	const anyPort = "127.0.0.1:0"
	p := launch(t, member{Name: "m", Dir: filepath.Join(t.TempDir(), "etcd"), Client: anyPort, Peer: anyPort, Cluster: "m=http://" + anyPort, MaxTxnOps: maxTxnOps}).ready()
	return p, dial(t, o, p.addr)
}

func dial(t *testing.T, o etcd.Options, endpoints ...string) *etcd.Store {
	t.Helper()
	s, err := dialSoon(t, etcd.DialOptions{Options: o, Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// dialSoon dials until it succeeds: an attempt's time-out may be short for a slow machine.
func dialSoon(t *testing.T, o etcd.DialOptions) (*etcd.Store, error) {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		s, err := etcd.Dial(ctx, o)
		cancel()
		if err == nil || time.Now().After(until) {
			return s, err
		}
	}
}

// startThree runs an etcd cluster of three members.
func startThree(t *testing.T) ([]*process, *etcd.Store) {
	t.Helper()
	ports := freePorts(t, 6)
	var cluster []string
	for i := range 3 {
		cluster = append(cluster, fmt.Sprintf("m%d=http://%s", i, ports[i]))
	}
	var members []*process
	var endpoints []string
	for i := range 3 {
		members = append(members, launch(t, member{Name: fmt.Sprintf("m%d", i), Dir: filepath.Join(t.TempDir(), "etcd"),
			Client: ports[3+i], Peer: ports[i], Cluster: strings.Join(cluster, ","), MaxTxnOps: 128}))
		endpoints = append(endpoints, ports[3+i])
	}
	for _, m := range members {
		m.ready()
	}
	return members, dial(t, etcd.Options{}, endpoints...)
}

// freePorts gives addresses that nobody listens on. They are not of 127.0.0.1, where tests that
// run at the same time take ports all the time.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var addrs []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.4:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}
