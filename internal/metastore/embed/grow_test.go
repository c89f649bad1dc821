package embed_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/embed"
	"tidemark/internal/metastore/member"
)

// grown is a cluster that a test grows node by node.
type grown struct {
	t     *testing.T
	dirs  map[string]string
	nodes map[string]*embed.Server
	// options may change how a node is started.
	options func(name string, o *embed.Options)
}

func newGrown(t *testing.T) *grown {
	return &grown{t: t, dirs: make(map[string]string), nodes: make(map[string]*embed.Server)}
}

// try starts a node on its folder; via names the node that it asks to be taken in, empty for none.
func (g *grown) try(ctx context.Context, name, via string) (*embed.Server, error) {
	dir, ok := g.dirs[name]
	if !ok {
		dir = filepath.Join(g.t.TempDir(), "metadata")
		g.dirs[name] = dir
	}
	o := embed.Options{Dir: dir, Name: name, UnsafeNoSync: true}
	if via != "" {
		o.Join = func(ctx context.Context, r member.JoinRequest) (member.JoinAnswer, error) {
			return g.nodes[via].Admit(ctx, r)
		}
	}
	if g.options != nil {
		g.options(name, &o)
	}
	s, err := embed.Start(ctx, o)
	if err == nil {
		g.nodes[name] = s
		g.t.Cleanup(func() { s.Close() })
	}
	return s, err
}

func (g *grown) start(name, via string) *embed.Server {
	g.t.Helper()
	s, err := g.try(within(g.t), name, via)
	if err != nil {
		g.t.Fatal(err)
	}
	return s
}

func (g *grown) stop(name string) {
	g.t.Helper()
	if err := g.nodes[name].Close(); err != nil {
		g.t.Error(err)
	}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// voters waits until n members are voters.
func (g *grown) voters(via string, n int) []member.Info {
	g.t.Helper()
	ctx := within(g.t)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		all, err := g.nodes[via].Members(ctx)
		voters := 0
		for _, m := range all {
			if !m.Learner && m.Started {
				voters++
			}
		}
		if err == nil && voters == n {
			return all
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			g.t.Fatalf("%d voters wanted: %+v, %v", n, all, err)
		}
	}
}

// put writes through a node; every attempt is a compare-and-set, as all of ours are.
func (g *grown) put(name, key, value string) {
	g.t.Helper()
	plan := meta.Plan{Why: "put " + key, If: []meta.Compare{meta.Absent(key)}, Then: []meta.Op{meta.Put(key, []byte(value))}}
	if _, err := metastore.Commit(within(g.t), g.nodes[name].Store(), plan); err != nil {
		g.t.Fatal(err)
	}
}

func (g *grown) want(name, key, value string) {
	g.t.Helper()
	kv, _, err := g.nodes[name].Store().Get(within(g.t), key)
	if err != nil || string(kv.Value) != value {
		g.t.Fatalf("%s sees %s = %q, %v, want %q", name, key, kv.Value, err, value)
	}
}

// TestGrow: 1 → 3, with a writer and a watch that go on through the first
// member's restart with ports; a member lost; the lost one back; all back.
func TestGrow(t *testing.T) {
	g := newGrown(t)
	a := g.start("a", "")
	w := a.Store().Watch(within(t), "/w/", 0)
	defer w.Close()
	stop, wrote := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				wrote <- n
				return
			default:
				g.put("a", fmt.Sprintf("/w/%06d", n), "x")
			}
		}
	}()
	g.start("b", "a")
	g.put("b", "/from-b", "1") // a learner's node writes at once, through the others
	g.voters("a", 2)
	g.start("c", "b")
	g.voters("a", 3)
	close(stop)
	n := <-wrote
	for i := 0; i < n; {
		events, err := w.Next(within(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range events.Events {
			if want := fmt.Sprintf("/w/%06d", i); ev.KV.Key != want {
				t.Fatalf("watch: %s, want %s", ev.KV.Key, want)
			}
			i++
		}
	}
	t.Logf("%d writes meanwhile", n)
	g.want("c", "/from-b", "1")

	g.stop("a")
	g.put("b", "/without-a", "2")
	g.start("a", "")
	g.want("a", "/without-a", "2")
	for _, name := range []string{"a", "b", "c"} {
		g.stop(name)
	}
	// A lone voter of three has no quorum, and says so.
	short, cancel := context.WithTimeout(context.Background(), tooShort)
	defer cancel()
	_, err := g.try(short, "b", "")
	if err == nil || !strings.Contains(err.Error(), "other members: [http://127.0.0.1:") {
		t.Fatalf("a lone voter of three: %v", err)
	}
	done := make(chan error)
	for _, name := range []string{"b", "c"} {
		go func() {
			s, err := embed.Start(within(t), embed.Options{Dir: g.dirs[name], Name: name, UnsafeNoSync: true})
			if err == nil {
				t.Cleanup(func() { s.Close() })
			}
			done <- err
		}()
	}
	if err := errors.Join(<-done, <-done); err != nil {
		t.Fatal(err)
	}
}

// TestRemovedMember: a member that was taken out ends, and says what to do when it is started again.
func TestRemovedMember(t *testing.T) {
	g := newGrown(t)
	g.start("a", "")
	b := g.start("b", "a")
	all := g.voters("a", 2)
	for _, m := range all {
		if strings.HasPrefix(m.Name, "b-") {
			if err := g.nodes["a"].RemoveMember(within(t), m.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	select {
	case err := <-b.Failed():
		if !strings.Contains(err.Error(), "removed from the cluster") || !strings.Contains(err.Error(), "--join") {
			t.Errorf("the removed member says %v", err)
		}
	case <-within(t).Done():
		t.Fatal("the removed member goes on")
	}
	g.stop("b")
	g.put("a", "/alone", "1")
	short, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if _, err := g.try(short, "b", "a"); err == nil || !strings.Contains(err.Error(), "move the folder away") {
		t.Errorf("a removed member that comes back: %v", err)
	}
	if err := g.nodes["a"].RemoveMember(within(t), g.voters("a", 1)[0].ID); err == nil || !strings.Contains(err.Error(), "last member") {
		t.Errorf("the last member: %v", err)
	}
}

// TestReset: one of two members is lost for good; the other is made the only
// one, keeps its data, and takes a new node in.
func TestReset(t *testing.T) {
	g := newGrown(t)
	g.start("a", "")
	g.start("b", "a")
	g.voters("a", 2)
	g.put("b", "/kept", "1")
	g.stop("a")
	o := embed.Options{Dir: g.dirs["a"], Name: "a", UnsafeNoSync: true}
	never := func(context.Context, metastore.Store) error { return errors.New("it was asked") }
	if err := embed.Reset(within(t), o, never); err == nil || !strings.Contains(err.Error(), "stop all nodes first") {
		t.Errorf("a reset while another member answers: %v", err)
	}
	g.stop("b")
	settled := false
	settle := func(ctx context.Context, s metastore.Store) error {
		kv, _, err := s.Get(ctx, "/kept")
		settled = string(kv.Value) == "1"
		return err
	}
	if err := embed.Reset(within(t), o, settle); err != nil || !settled {
		t.Fatalf("settled %v, %v", settled, err)
	}
	g.start("a", "")
	g.want("a", "/kept", "1")
	g.put("a", "/written", "2")
	if all := g.voters("a", 1); len(all) != 1 {
		t.Fatalf("members %+v", all)
	}
	g.start("c", "a")
	g.voters("a", 2)
	if err := embed.Reset(within(t), embed.Options{Dir: t.TempDir(), Name: "x"}, settle); err == nil || !strings.Contains(err.Error(), "no metadata member") {
		t.Errorf("an empty folder: %v", err)
	}
}

// tooShort is what a node is given for what can't be done: long enough to find out why, on any machine.
const tooShort = 8 * time.Second

func joinOf(name, peer string) member.JoinRequest {
	return member.JoinRequest{Name: name, PeerURL: peer}
}

// TestNeverComesUp: a node that was taken in and never starts holds up the next
// one, which is told; it counts for nothing, and can be taken out again.
func TestNeverComesUp(t *testing.T) {
	g := newGrown(t)
	a := g.start("a", "")
	if _, err := a.Admit(within(t), joinOf("x-1", "http://127.0.0.1:9")); err != nil {
		t.Fatal(err)
	}
	g.put("a", "/goes-on", "1")
	short, cancel := context.WithTimeout(context.Background(), tooShort)
	defer cancel()
	_, err := a.Admit(short, joinOf("y-1", "http://127.0.0.1:19"))
	if err == nil || !strings.Contains(err.Error(), "another node is joining") || !strings.Contains(err.Error(), "tidemark cluster remove") {
		t.Fatalf("the next one: %v", err)
	}
	all, err := a.Members(within(t))
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, m := range all {
		if !m.Started {
			if err := a.RemoveMember(within(t), m.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	g.start("b", "a")
	g.voters("a", 2)
}

// TestSixNodes: five vote, the sixth asks them; once a voter is taken out for good, the sixth takes its place.
// TestAMemberThatOthersHaveYetToHearOf: a new member asks one that doesn't know of it yet,
// as one that lags behind the others. Its start failed, and its folder was called damaged.
func TestAMemberThatOthersHaveYetToHearOf(t *testing.T) {
	g := newGrown(t)
	g.start("a", "")
	g.start("b", "a")
	g.voters("a", 2)
	admitted, asked := make(chan error, 1), make(chan struct{})
	g.options = func(_ string, o *embed.Options) {
		o.Logger = slog.New(slog.NewTextHandler(firstWrite(asked), &slog.HandlerOptions{Level: slog.LevelDebug}))
		o.Join = func(ctx context.Context, r member.JoinRequest) (member.JoinAnswer, error) {
			answer, err := g.nodes["a"].Admit(ctx, member.JoinRequest{Name: r.Name, PeerURL: r.PeerURL, ClientURL: r.ClientURL, Probe: true})
			if err != nil || r.Probe {
				return answer, err
			}
			all, err := g.nodes["a"].Members(ctx)
			for _, m := range all {
				answer.Members = append(answer.Members, m.Name+"="+m.Peer)
			}
			answer.Members, answer.Voter = append(answer.Members, r.Name+"="+r.PeerURL), true
			go func() { // the answer comes before the others know
				select {
				case <-asked:
				case <-t.Context().Done():
				}
				_, err := g.nodes["a"].Admit(context.WithoutCancel(ctx), r)
				admitted <- err
			}()
			return answer, err
		}
	}
	g.start("c", "a")
	if err := <-admitted; err != nil {
		t.Fatal(err)
	}
	g.voters("a", 3)
	g.put("c", "/k", "1")
	g.want("b", "/k", "1")
}

// firstWrite closes itself when the log says that a member was not heard of.
func firstWrite(c chan struct{}) io.Writer {
	var once sync.Once
	return writerFunc(func(b []byte) (int, error) {
		if bytes.Contains(b, []byte("hasn't heard of this one yet")) {
			once.Do(func() { close(c) })
		}
		return len(b), nil
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestSixNodes(t *testing.T) {
	g := newGrown(t)
	g.options = func(_ string, o *embed.Options) { o.Look = 200 * time.Millisecond }
	g.start("a", "")
	for _, name := range []string{"b", "c", "d", "e"} {
		g.start(name, "a")
	}
	g.voters("a", 5)
	f := g.start("f", "b")
	all := g.voters("a", 5)
	if len(all) != 5 {
		t.Fatalf("members %+v", all)
	}
	g.put("f", "/from-f", "1")
	g.want("e", "/from-f", "1")
	w := f.Store().Watch(within(t), "/w/", 0)
	defer w.Close()
	g.stop("f")
	if _, err := g.try(within(t), "f", ""); err != nil { // it knows whom to ask
		t.Fatal(err)
	}
	g.want("f", "/from-f", "1")

	g.stop("e")
	for _, m := range all {
		if strings.HasPrefix(m.Name, "e-") {
			if err := g.nodes["a"].RemoveMember(within(t), m.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	for deadline := within(t); ; {
		all = g.voters("a", 5)
		if slices.ContainsFunc(all, func(m member.Info) bool { return strings.HasPrefix(m.Name, "f-") && !m.Learner }) {
			break
		}
		if deadline.Err() != nil {
			t.Fatalf("the sixth has not taken the free place: %+v", all)
		}
	}
	g.put("f", "/as-voter", "1")
	g.stop("f")
	if _, err := g.try(within(t), "f", ""); err != nil {
		t.Fatal(err)
	}
	g.want("f", "/as-voter", "1")
}

// TestAMemberThatLostItsFolder: a node that comes back with nothing at the address of a
// voter isn't that voter: it would vote again where that one has voted, and without what
// that one had said to hold. It is told what to do.
func TestAMemberThatLostItsFolder(t *testing.T) {
	g := newGrown(t)
	a := g.start("a", "")
	g.start("b", "a")
	all := g.voters("a", 2)
	g.start("c", "a")
	g.voters("a", 3)
	lost := all[slices.IndexFunc(all, func(m member.Info) bool { return strings.HasPrefix(m.Name, "b-") })]
	g.stop("b")
	delete(g.dirs, "b")
	g.options = func(name string, o *embed.Options) {
		o.PeerPort, o.ClientPort = portOf(t, lost.Peer), portOf(t, lost.Client)
	}
	_, err := g.try(within(t), "b", "a")
	if err == nil || !strings.Contains(err.Error(), "tidemark cluster remove "+lost.ID) {
		t.Fatalf("it was taken in: %v", err)
	}
	if err := a.RemoveMember(within(t), lost.ID); err != nil {
		t.Fatal(err)
	}
	g.start("b", "a")
	g.voters("a", 3)
}

// startThree grows a quorum of a, b and c, one after the other.
func (g *grown) startThree() {
	g.t.Helper()
	g.start("a", "")
	g.start("b", "a")
	g.voters("a", 2)
	g.start("c", "a")
	g.voters("a", 3)
}

// TestAMemberWhoseDataIsGone: its place is there and its data isn't, as with a disk that isn't mounted.
func TestAMemberWhoseDataIsGone(t *testing.T) {
	g := newGrown(t)
	g.startThree()
	f := func(name, want string) {
		g.stop(name)
		data, aside := filepath.Join(g.dirs[name], "etcd"), filepath.Join(g.dirs[name], "aside")
		if err := os.Rename(data, aside); err != nil {
			t.Fatal(err)
		}
		if _, err := g.try(within(t), name, ""); err == nil || !strings.Contains(err.Error(), "is the disk mounted") || !strings.Contains(err.Error(), want) {
			t.Fatalf("%s started without its data: %v", name, err)
		}
		if err := os.MkdirAll(data, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := embed.CanReset(within(t), embed.Options{Dir: g.dirs[name], Name: name}); err == nil || !strings.Contains(err.Error(), "no metadata member") {
			t.Errorf("%s is reset to nothing: %v", name, err)
		}
		if err := errors.Join(os.RemoveAll(data), os.Rename(aside, data)); err != nil {
			t.Fatal(err)
		}
		g.start(name, "")
	}
	all := g.voters("c", 3)
	f("b", "tidemark cluster remove "+all[slices.IndexFunc(all, func(m member.Info) bool { return strings.HasPrefix(m.Name, "b-") })].ID)
	f("a", "tidemark cluster remove")
}

// TestTakenInAndNotStarted: a node that stopped between the answer and its start goes on.
func TestTakenInAndNotStarted(t *testing.T) {
	g := newGrown(t)
	a := g.start("a", "")
	peer, client := freePort(t), freePort(t)
	answer, err := a.Admit(within(t), joinOf("b-1", "http://"+peer))
	if err != nil {
		t.Fatal(err)
	}
	place, err := json.Marshal(map[string]any{"v": 1, "voter": true, "name": "b-1", "peer": peer, "client": client, "joined": true,
		"members": answer.Members, "endpoints": answer.Endpoints})
	if err != nil {
		t.Fatal(err)
	}
	g.dirs["b"] = t.TempDir()
	if err := os.WriteFile(filepath.Join(g.dirs["b"], "member.json"), place, 0o600); err != nil {
		t.Fatal(err)
	}
	g.start("b", "")
	g.voters("a", 2)
}

// TestKilledAsItJoins: a member that is killed a moment after its start has its log, and a database
// that doesn't know of it yet. It was taken for one that had been removed.
func TestKilledAsItJoins(t *testing.T) {
	g := newGrown(t)
	g.startThree()
	g.stop("c")
	if err := os.Remove(filepath.Join(g.dirs["c"], "etcd", "member", "snap", "db")); err != nil {
		t.Fatal(err)
	}
	g.start("c", "")
	g.voters("a", 3)
	g.stop("b")
	g.put("c", "/k", "1")
	g.want("a", "/k", "1")
}

// freePort gives an address that nobody listens on. It is not of 127.0.0.1, where tests that
// run at the same time take ports all the time.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.5:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func portOf(t *testing.T, address string) int {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
