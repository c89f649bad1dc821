package telemetry

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// newTestAudit gives an audit whose clock stands, and what moves it.
func newTestAudit() (a *Audit, m *Metrics, lines func() []string, wait func(time.Duration)) {
	m = New()
	var out bytes.Buffer
	a = NewAudit(m, slog.New(slog.NewTextHandler(&out, nil)))
	at := time.Unix(1000, 0)
	a.now = func() time.Time { return at }
	lines = func() []string {
		text := strings.TrimSpace(out.String())
		out.Reset()
		if text == "" {
			return nil
		}
		return strings.Split(text, "\n")
	}
	return a, m, lines, func(d time.Duration) { at = at.Add(d) }
}

// shows reports whether a scrape has the line.
func shows(t *testing.T, m *Metrics, line string) bool {
	t.Helper()
	return slices.Contains(scrape(t, m), line)
}

func denial(name string) Denial {
	return Denial{Principal: "User:eve", Host: "10.0.0.9", Listener: "CLIENTS", Client: "c", API: "Produce", Operation: "WRITE", Resource: "TOPIC", Name: name}
}

// TestADenialIsToldOnceAMinute, with how often it was since, and counted each time.
func TestADenialIsToldOnceAMinute(t *testing.T) {
	a, m, lines, wait := newTestAudit()
	for range 1000 {
		a.Denied(denial("orders"))
	}
	a.Denied(denial("bills"))
	got := lines()
	if len(got) != 2 || !strings.Contains(got[0], "msg=denied audit=true principal=User:eve host=10.0.0.9 operation=WRITE resource=TOPIC name=orders api=Produce listener=CLIENTS client=c") {
		t.Fatalf("%d lines: %q", len(got), got)
	}
	if !shows(t, m, `tidemark_security_denials_total{operation="WRITE",resource="TOPIC"} 1001`) {
		t.Error("the denials aren't counted")
	}
	wait(auditPause)
	a.Denied(denial("orders"))
	if got = lines(); len(got) != 1 || !strings.Contains(got[0], "repeats=999") {
		t.Errorf("after a minute: %q", got)
	}
}

// TestManyDenialsAreBounded, however many names they have; the next line says how many weren't told.
func TestManyDenialsAreBounded(t *testing.T) {
	a, m, lines, wait := newTestAudit()
	for i := range 10 * auditKeysMax {
		a.Denied(denial(fmt.Sprint(i)))
	}
	if n := len(lines()); n != auditBurst {
		t.Errorf("%d lines, want %d", n, auditBurst)
	}
	if !shows(t, m, fmt.Sprint("tidemark_security_untold_lines_total ", 10*auditKeysMax-auditBurst)) {
		t.Error("the untold lines aren't counted")
	}
	wait(time.Second)
	a.Denied(denial("another"))
	if got := lines(); len(got) != 1 || !strings.Contains(got[0], fmt.Sprint("untold=", 10*auditKeysMax-auditBurst)) {
		t.Errorf("%q", got)
	}
	for i := range 10 * auditKeysMax {
		wait(time.Second)
		a.Denied(denial(fmt.Sprint("slowly", i)))
	}
	if len(a.told) > auditKeysMax {
		t.Errorf("%d lines are remembered", len(a.told))
	}
}

// TestWhatClientsSayIsClipped: a user's name is the attacker's to choose.
func TestWhatClientsSayIsClipped(t *testing.T) {
	a, m, lines, _ := newTestAudit()
	a.LogInRefused(LogIn{User: "x\n" + strings.Repeat("é", 5000), Host: "h", Listener: "L", Reason: "SASL_AUTHENTICATION_FAILED"})
	got := lines()
	if len(got) != 1 || len(got[0]) > 500 || !strings.Contains(got[0], `user="x\né`) {
		t.Errorf("%q", got)
	}
	if !shows(t, m, `kafka_server_socketservermetrics_failed_authentication_total{listener="L",mechanism="OTHER"} 1`) {
		t.Error("it isn't counted")
	}
}

// TestNobodyAudits: without an audit nothing happens.
func TestNobodyAudits(t *testing.T) {
	var a *Audit
	a.Denied(Denial{})
	a.LoggedIn(LogIn{})
	a.LogInRefused(LogIn{})
	a.HandshakeFailed("", "", nil)
	a.HTTPRefused("", "", "", "")
}
