package console

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"tidemark/internal/metastore/storetest"
	"tidemark/internal/telemetry"
)

const token = "0123456789abcdef0123"

func tokenFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// serveWith serves a node's API with access, and gives its address.
func serveWith(t *testing.T, access Access) string {
	t.Helper()
	ln, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Serve(ln, &fakeNode{registry: prometheus.NewRegistry()}, access, telemetry.Discard())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s.Addr()
}

func newClient(t *testing.T, base string, creds Credentials) *Client {
	t.Helper()
	c, err := NewClient(base, creds)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

// Every path but the two of load balancers asks for the token, also those that there aren't, and tells how to show it.
func TestEveryPathAsksForTheToken(t *testing.T) {
	addr := serveWith(t, Access{Token: token})
	paths := []route{{method: "GET", path: "/metrics"}, {method: "GET", path: "/none"}}
	for _, rt := range append((&Server{}).routes(), paths...) {
		for _, given := range []string{"", "Bearer ", "Bearer " + token + "x", "Bearer " + token[1:], "Basic " + token, token} {
			req, err := http.NewRequest(rt.method, "http://"+addr+strings.NewReplacer("{name}", "m", "{id}", "1").Replace(rt.path), nil)
			if err != nil {
				t.Fatal(err)
			}
			if given != "" {
				req.Header.Set("Authorization", given)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if refused := resp.StatusCode == http.StatusUnauthorized; refused == open[rt.path] {
				t.Errorf("%s %s with %q: %s", rt.method, rt.path, given, resp.Status)
			}
		}
	}
	if _, err := newClient(t, "http://"+addr, Credentials{}).Mirrors(t.Context()); err == nil || !strings.Contains(err.Error(), "--token-file") {
		t.Errorf("without the token: %v", err)
	}
	if _, err := newClient(t, "http://"+addr, Credentials{TokenFile: tokenFile(t, token+"\n")}).Mirrors(t.Context()); err != nil {
		t.Errorf("with the token: %v", err)
	}
}

// TestTheTokenForReading changes nothing, and is given neither records nor secrets; what it covers is the rest of GET.
func TestTheTokenForReading(t *testing.T) {
	const read = "9876543210fedcba9876"
	addr := serveWith(t, Access{Token: token, ReadToken: read})
	ask := func(method, path, given string) int {
		t.Helper()
		req, err := http.NewRequest(method, "http://"+addr+strings.NewReplacer("{name}", "m", "{id}", "1", "{drill}", "d").Replace(path), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+given)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	left := len(closed)
	for _, rt := range append((&Server{}).routes(), route{method: "GET", path: "/metrics"}, route{method: "HEAD", path: "/metrics"}) {
		pattern := rt.method + " " + rt.path
		covered := (rt.method == "GET" || rt.method == "HEAD") && !closed[pattern]
		if closed[pattern] {
			left--
		}
		status := ask(rt.method, rt.path, read)
		if (status == http.StatusForbidden) == covered || status == http.StatusUnauthorized {
			t.Errorf("%s is answered %d", pattern, status)
		}
		if status := ask(rt.method, rt.path, token); status == http.StatusForbidden || status == http.StatusUnauthorized {
			t.Errorf("%s with the other token is answered %d", pattern, status)
		}
	}
	if left != 0 {
		t.Errorf("%d of the closed routes aren't there: %v", left, closed)
	}
	if status := ask("GET", "/api/v1/mirrors", read[1:]); status != http.StatusUnauthorized {
		t.Errorf("another token is answered %d", status)
	}
}

// TestRefusedRequestsAreCounted by what was wrong with them.
func TestRefusedRequestsAreCounted(t *testing.T) {
	m := telemetry.New()
	addr := serveWith(t, Access{Token: token, ReadToken: "9876543210fedcba9876", Audit: telemetry.NewAudit(m, telemetry.Discard())})
	for _, given := range []string{"wrong", "9876543210fedcba9876"} {
		req, err := http.NewRequest("DELETE", "http://"+addr+"/api/v1/mirrors/m", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+given)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "tidemark_http_refused_total" {
			for _, one := range f.GetMetric() {
				counted[one.GetLabel()[0].GetValue()] = one.GetCounter().GetValue()
			}
		}
	}
	if counted["token"] != 1 || counted["rights"] != 1 {
		t.Errorf("counted %v", counted)
	}
}

func TestAPIOverTLS(t *testing.T) {
	authority := storetest.NewAuthority(t)
	addr := serveWith(t, Access{Token: token, CertFile: authority.Certificate("127.0.0.1")})
	creds := Credentials{TokenFile: tokenFile(t, token), CAFile: authority.File}
	if _, err := newClient(t, "https://"+addr, creds).Mirrors(t.Context()); err != nil {
		t.Errorf("who trusts the authority and has the token: %v", err)
	}
	creds.CAFile = storetest.NewAuthority(t).File
	if _, err := newClient(t, "https://"+addr, creds).Mirrors(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("who trusts another one: %v", err)
	}
	if _, err := NewClient("http://"+addr, creds); err == nil || !strings.Contains(err.Error(), "https://") {
		t.Errorf("authorities and no TLS: %v", err)
	}
	ln, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if _, err := Serve(ln, &fakeNode{}, Access{CertFile: authority.File}, telemetry.Discard()); err == nil || !strings.Contains(err.Error(), authority.File) {
		t.Errorf("a certificate without its key: %v", err)
	}
}

// A browser that shows another site's page is not to change a node that it reaches.
func TestOtherSitesPagesChangeNothing(t *testing.T) {
	addr := serveWith(t, Access{})
	req, err := http.NewRequest("POST", "http://"+addr+"/api/v1/mirrors/m/failover", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Origin", "https://elsewhere.example")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("another site's page is answered %s", resp.Status)
	}
}
