package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"tidemark/internal/await"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/backup"
	"tidemark/internal/metastore/mem"
	"tidemark/internal/metastore/member"
	"tidemark/internal/telemetry"
	"tidemark/internal/vault"
)

func TestMain(m *testing.M) { await.NoLeaks(m) }

// fakeNode answers what a test wants to see.
type fakeNode struct {
	ready, healthy error
	mirrors        fakeMirrors
	registry       *prometheus.Registry
}

func (n *fakeNode) Ready() error                  { return n.ready }
func (n *fakeNode) Healthy() error                { return n.healthy }
func (n *fakeNode) ClusterID() string             { return "cluster" }
func (n *fakeNode) NodeID() types.BrokerID        { return 3 }
func (n *fakeNode) Image() *meta.Image            { return meta.Empty("cluster") }
func (n *fakeNode) Gatherer() prometheus.Gatherer { return n.registry }
func (n *fakeNode) Mirrors() Mirrors              { return &n.mirrors }
func (n *fakeNode) Vault() Vault                  { return fakeVault{} }
func (n *fakeNode) Membership() Membership        { return fakeMembership{} }

// fakeMembership is a quorum of one.
type fakeMembership struct{}

func (fakeMembership) Admit(_ context.Context, r member.JoinRequest) (member.JoinAnswer, error) {
	if r.ClusterID != "" && r.ClusterID != "cluster" {
		return member.JoinAnswer{}, errors.New("its data folder belongs to cluster " + r.ClusterID)
	}
	return member.JoinAnswer{ClusterID: "cluster", Voter: true, Endpoints: []string{"http://127.0.0.1:1"}}, nil
}

func (fakeMembership) Members(context.Context) ([]member.Info, error) {
	return []member.Info{{ID: "a1", Name: "node-3", Started: true, Healthy: true}}, nil
}

func (fakeMembership) RemoveMember(_ context.Context, id string) error {
	if id == "a1" {
		return errors.New("the last member can't be removed")
	}
	return nil
}

func (fakeMembership) Decommission(_ context.Context, id types.BrokerID, _ bool) (int, error) {
	return int(id), nil
}

func (fakeMembership) ReplaceNode(_ context.Context, id types.BrokerID, dryRun bool) (member.Replaced, error) {
	if id == 3 {
		return member.Replaced{}, fmt.Errorf("node 3: %w", control.ErrNodeIDInUse)
	}
	return member.Replaced{Replicas: int(id), Member: fmt.Sprint(dryRun)}, nil
}

func (fakeMembership) Forget(_ context.Context, id types.BrokerID) error {
	if id == 3 {
		return control.ErrInvalidRequest
	}
	return nil
}

func (fakeMembership) MayAdd(_ context.Context, id types.BrokerID) (member.Addition, error) {
	return member.Addition{NodeID: id, Join: "h:1"}, nil
}

func (fakeMembership) Backup(ctx context.Context) (*backup.Backup, error) {
	s := mem.New()
	defer s.Close()
	_, err := s.Txn(ctx, metastore.Txn{Then: []meta.Op{meta.Put(meta.KeysOf("cluster").Cluster(), meta.ClusterRecord{ID: "cluster"}.Encode())}})
	if err != nil {
		return nil, err
	}
	return backup.Take(ctx, s, "cluster")
}

func (fakeMembership) Recovery() member.Recovery               { return member.Recovery{Waiting: 2} }
func (fakeMembership) AcceptLoss(context.Context) (int, error) { return 2, nil }
func (fakeMembership) Features() meta.Features                 { return meta.Features{"f": {Min: 1, Max: 2}} }

func (fakeMembership) UpdateFeatures(_ context.Context, changes []control.FeatureChange, dryRun bool) error {
	if changes[0].Level != 2 {
		return fmt.Errorf("%w: %d", control.ErrFeatureLevel, changes[0].Level)
	}
	return nil
}

type fakeVault struct{}

func (fakeVault) List() ([]vault.Entry, error) { return []vault.Entry{{ID: "e1", Topic: "t"}}, nil }

func (fakeVault) Show(id string) (vault.Entry, error) {
	if id != "e1" {
		return vault.Entry{}, fmt.Errorf("%s: %w", id, vault.ErrNoEntry)
	}
	return vault.Entry{ID: id}, nil
}

func (fakeVault) Export(_ string, f vault.Format, w io.Writer) error {
	_, err := io.WriteString(w, "exported as "+string(f))
	return err
}

func (v fakeVault) NoteReplay(id string, _ vault.Replay) error { _, err := v.Show(id); return err }

func (fakeVault) Usage() vault.Usage { return vault.Usage{Entries: 1, MaxBytes: -1} }

func (v fakeVault) Purge(id string) error { _, err := v.Show(id); return err }

// fakeMirrors knows the mirror "m" and remembers what was asked.
type fakeMirrors struct {
	asked []string
	err   error
}

func (f *fakeMirrors) LastVerify(name string) (mirror.VerifyReport, error) {
	return mirror.VerifyReport{Format: 1}, f.note("last verify", name)
}

func (f *fakeMirrors) Groups(_ context.Context, name string) ([]mirror.GroupSync, error) {
	return nil, f.note("groups", name)
}

func (f *fakeMirrors) Alter(_ context.Context, name string, a mirror.Alteration) (mirror.Altered, error) {
	return mirror.Altered{DryRun: a.DryRun, Changes: []string{}, Warnings: []string{}}, f.note("alter", name)
}

func (f *fakeMirrors) note(verb, name string) error {
	f.asked = append(f.asked, verb+" "+name)
	if f.err == nil && name != "m" {
		return fmt.Errorf("%w: %s", mirror.ErrUnknownMirror, name)
	}
	return f.err
}

func (f *fakeMirrors) Create(_ context.Context, s mirror.Spec) error {
	return f.note("create", s.Name)
}
func (f *fakeMirrors) Start(_ context.Context, name string) error  { return f.note("start", name) }
func (f *fakeMirrors) Pause(_ context.Context, name string) error  { return f.note("pause", name) }
func (f *fakeMirrors) Resume(_ context.Context, name string) error { return f.note("resume", name) }
func (f *fakeMirrors) Delete(_ context.Context, name string) error { return f.note("delete", name) }

func (f *fakeMirrors) Preview(_ context.Context, name string, _ mirror.PreviewRequest) (mirror.Preview, error) {
	return mirror.Preview{Mirror: name, Plan: "p", Partitions: []mirror.PartitionPlan{}}, f.note("preview", name)
}

func (f *fakeMirrors) Failback(_ context.Context, name string, r mirror.FailbackRequest) (mirror.Preview, error) {
	return mirror.Preview{Mirror: name, Plan: r.Plan, Partitions: []mirror.PartitionPlan{}}, f.note("failback", name)
}

func (f *fakeMirrors) Switchover(_ context.Context, name string, _ mirror.SwitchoverRequest) (mirror.Status, error) {
	return mirror.Status{Mirror: name, Partitions: []mirror.PartitionStatus{}}, f.note("switchover", name)
}

func (f *fakeMirrors) AbandonOf(_ context.Context, name string, _ []string, _ string) ([]string, error) {
	return []string{"t-0: abandoned"}, f.note("abandon", name)
}

func (f *fakeMirrors) AcceptGap(_ context.Context, name string, _ []string) ([]string, error) {
	return []string{"t-0: goes on"}, f.note("accept-gap", name)
}

func (f *fakeMirrors) Drill(_ context.Context, name string, r mirror.DrillRequest) (mirror.DrillReport, error) {
	return mirror.DrillReport{Mirror: name, Drill: r.Drill, DryRun: r.DryRun}, f.note("drill", name)
}

func (f *fakeMirrors) Drills(context.Context) ([]mirror.Drill, error) {
	return []mirror.Drill{{Drill: "friday", Mirror: "m"}}, nil
}

func (f *fakeMirrors) DeleteDrill(_ context.Context, drill string, dryRun bool) ([]string, error) {
	if drill != "friday" {
		return nil, mirror.ErrUnknownDrill
	}
	return []string{fmt.Sprint("deleted, dry run: ", dryRun)}, nil
}

func (f *fakeMirrors) Would(_ context.Context, name, verb string, _ []string) ([]string, error) {
	return []string{"would " + verb}, f.note("would "+verb, name)
}

func (f *fakeMirrors) Reopen(_ context.Context, topics []string) ([]string, error) {
	return topics, f.note("reopen", "m")
}

func (f *fakeMirrors) FailoverOf(_ context.Context, name string, o mirror.FailoverOrder) (mirror.Status, error) {
	how := "failover "
	if o.Consistent {
		how = "failover at a cut " + o.Plan + " "
	}
	if o.StartID != "" {
		how += "of " + o.StartID + " "
	}
	return mirror.Status{Mirror: name, State: "STOPPED"}, f.note(how+strings.Join(o.Topics, "+"), name)
}

func (f *fakeMirrors) StatusEverywhere(_ context.Context, name string) (mirror.Status, error) {
	return mirror.Status{Mirror: name, State: "RUNNING", Partitions: []mirror.PartitionStatus{{Topic: "t", End: 7}}}, f.note("status", name)
}

func (f *fakeMirrors) Describe(_ context.Context, name string) (mirror.Description, error) {
	return mirror.Description{Status: mirror.Status{Mirror: name}}, f.note("describe", name)
}

func (f *fakeMirrors) List(context.Context) ([]mirror.Status, error) { return nil, f.err }
func (f *fakeMirrors) Events() []mirror.Event                        { return nil }

func (f *fakeMirrors) Verify(_ context.Context, name string, progress func(mirror.Verify)) (mirror.Verify, error) {
	if err := f.note("verify", name); err != nil {
		return mirror.Verify{}, err
	}
	progress(mirror.Verify{Mirror: name, Bytes: 1, TotalBytes: 2})
	return mirror.Verify{Mirror: name, Equal: true, Bytes: 2, TotalBytes: 2}, nil
}

func serve(t *testing.T) (*fakeNode, *Client) {
	t.Helper()
	n := &fakeNode{registry: prometheus.NewRegistry()}
	ln, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Serve(ln, n, Access{}, telemetry.Discard())
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClient("http://"+s.Addr(), Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.http.CloseIdleConnections()
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n, c
}

// ask sends a raw request and gives status and body.
func ask(t *testing.T, c *Client, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, c.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestStatusCodes checks each route's success, and what a bad call gets.
func TestStatusCodes(t *testing.T) {
	n, c := serve(t)
	f := func(want int, say, method, path, body string) {
		t.Helper()
		status, got := ask(t, c, method, path, body)
		if status != want || !strings.Contains(got, say) {
			t.Errorf("%s %s: %d %s, want %d and %q", method, path, status, got, want, say)
		}
		if want != http.StatusOK && !json.Valid([]byte(got)) {
			t.Errorf("%s %s: %q is no JSON", method, path, got)
		}
	}
	f(200, `"ok"`, "GET", "/healthz", "")
	f(200, `"ok"`, "GET", "/readyz", "")
	f(200, "", "GET", "/metrics", "")
	f(200, `"clusterId":"cluster"`, "GET", "/api/v1/cluster", "")
	f(200, `"members":[{"id":"a1"`, "GET", "/api/v1/cluster", "")
	f(200, `"voter":true`, "POST", "/api/v1/cluster/join", `{"nodeId":4,"directoryId":"d"}`)
	f(500, "belongs to cluster other", "POST", "/api/v1/cluster/join", `{"nodeId":4,"directoryId":"d","clusterId":"other"}`)
	f(400, "bad request", "POST", "/api/v1/cluster/join", `{`)
	f(500, "last member", "DELETE", "/api/v1/cluster/members/a1", "")
	f(200, "", "DELETE", "/api/v1/cluster/members/a2", "")
	f(400, "want the hexadecimal id", "DELETE", "/api/v1/cluster/members/node-1", "")
	f(200, `{"left":5}`, "POST", "/api/v1/cluster/nodes/5/decommission", "")
	f(400, "want a node id", "POST", "/api/v1/cluster/nodes/x/decommission", "")
	f(200, `"member":"true"`, "POST", "/api/v1/cluster/nodes/5/replace?dryRun=true", "")
	f(409, "in use", "POST", "/api/v1/cluster/nodes/3/replace", "")
	f(200, "", "DELETE", "/api/v1/cluster/nodes/5", "")
	f(409, "invalid request", "DELETE", "/api/v1/cluster/nodes/3", "")
	f(200, `"nodeId":-1`, "GET", "/api/v1/cluster/addition", "")
	f(200, `"nodeId":7`, "GET", "/api/v1/cluster/addition?node=7", "")
	f(400, "want a node id", "GET", "/api/v1/cluster/addition?node=x", "")
	f(200, `"sha256"`, "GET", "/api/v1/cluster/backup", "")
	f(200, "", "POST", "/api/v1/cluster/features", `{"levels":{"f":2}}`)
	f(409, "feature level", "POST", "/api/v1/cluster/features", `{"levels":{"f":3}}`)
	f(400, "no feature", "POST", "/api/v1/cluster/features", `{}`)
	f(200, `"partitions":2`, "POST", "/api/v1/cluster/recover", "")
	f(200, `"waiting":2`, "GET", "/api/v1/cluster", "")
	f(200, `"entries"`, "GET", "/api/v1/meta", "")
	f(200, "", "GET", "/api/v1/meta?format=text", "")
	f(400, "want json or text", "GET", "/api/v1/meta?format=xml", "")
	f(200, `{"events":[]}`, "GET", "/api/v1/events", "")
	f(200, `"id":"e1"`, "GET", "/api/v1/vault", "")
	f(200, `"id":"e1"`, "GET", "/api/v1/vault/e1", "")
	f(404, "vault list", "GET", "/api/v1/vault/e2", "")
	f(200, "exported as json", "GET", "/api/v1/vault/e1/export?format=json", "")
	f(400, "want segments or json", "GET", "/api/v1/vault/e1/export", "")
	f(404, "", "DELETE", "/api/v1/vault/e2", "")
	f(200, `{"mirrors":[]}`, "GET", "/api/v1/mirrors", "")
	f(200, `"end":7`, "GET", "/api/v1/mirrors/m", "")
	f(404, "no such mirror", "GET", "/api/v1/mirrors/x", "")
	f(200, `"mirror":"m"`, "POST", "/api/v1/mirrors", `{"name":"m","bootstrap":["h:1"]}`)
	f(400, "unknown field", "POST", "/api/v1/mirrors", `{"nmae":"m"}`)
	f(400, "bad request", "POST", "/api/v1/mirrors", `{`)
	f(200, "STOPPED", "POST", "/api/v1/mirrors/m/failover", `{"topics":["a","b"]}`)
	f(200, `"message":["would pause"]`, "POST", "/api/v1/mirrors/m/pause?dryRun=true", "")
	f(200, `{"message":["would delete"]}`, "DELETE", "/api/v1/mirrors/m?dryRun=true", "")
	f(200, "would accept-gap", "POST", "/api/v1/mirrors/m/accept-gap", `{"dryRun":true}`)
	f(200, "t-0: goes on", "POST", "/api/v1/mirrors/m/accept-gap", `{}`) // one dry run is one call's
	f(200, `"drill":"friday"`, "POST", "/api/v1/mirrors/m/drill", `{"drill":"friday"}`)
	f(404, "no such mirror", "POST", "/api/v1/mirrors/x/drill", `{"drill":"friday"}`)
	f(200, `"drill":"friday"`, "GET", "/api/v1/drills", "")
	f(200, "dry run: true", "DELETE", "/api/v1/drills/friday?dryRun=true", "")
	f(404, "no such drill", "DELETE", "/api/v1/drills/monday", "")
	f(404, "openapi.json", "GET", "/api/v2/nothing", "")
	f(404, "no DELETE", "DELETE", "/healthz", "")
	f(200, `"openapi"`, "GET", "/api/v1/openapi.json", "")
	n.mirrors.err = fmt.Errorf("%w: paused", mirror.ErrState)
	f(409, "paused", "POST", "/api/v1/mirrors/m/pause", "")
	n.mirrors.err = errors.New("disk on fire")
	f(500, "disk on fire", "POST", "/api/v1/mirrors/m/start", "")
	n.ready, n.healthy = errors.New("reading the metadata"), errors.New("log dir offline")
	f(503, "reading the metadata", "GET", "/readyz", "")
	f(503, "log dir offline", "GET", "/healthz", "")
}

// TestClientSpeaksTheAPI calls every verb through the client.
func TestClientSpeaksTheAPI(t *testing.T) {
	n, c := serve(t)
	ctx := context.Background()
	var seen []int64
	v, err := c.Verify(ctx, "m", func(v mirror.Verify) { seen = append(seen, v.Bytes) })
	if err != nil || !v.Equal || !v.Done || len(seen) != 1 {
		t.Errorf("verify: %+v, %v, progress %v", v, err, seen)
	}
	if _, err := c.Verify(ctx, "x", nil); err == nil || !strings.Contains(err.Error(), "no such mirror") {
		t.Errorf("verify of a mirror that isn't there: %v", err)
	}
	if _, err := c.Verb(ctx, "m", "resume"); err != nil {
		t.Error(err)
	}
	if _, err := c.Failover(ctx, "m", []string{"a"}); err != nil {
		t.Error(err)
	}
	if _, err := c.FailoverOf(ctx, "m", FailoverRequest{Topics: []string{"b"}, StartID: "s7"}); err != nil {
		t.Error(err)
	}
	if err := c.Delete(ctx, "m"); err != nil {
		t.Error(err)
	}
	if got := strings.Join(n.mirrors.asked, ", "); got != "verify m, verify x, resume m, status m, failover a m, failover of s7 b m, delete m" {
		t.Errorf("asked %s", got)
	}
	var out strings.Builder
	if err := c.VaultExport(ctx, "e1", vault.Segments, &out); err != nil || out.String() != "exported as segments" {
		t.Errorf("export: %q, %v", out.String(), err)
	}
}
