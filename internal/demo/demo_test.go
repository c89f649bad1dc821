package demo

import (
	"context"
	"strings"
	"testing"
	"time"

	"tidemark/internal/await"
)

func TestMain(m *testing.M) { await.NoLeaks(m) }

// TestStory tells the story once; every claim must hold.
func TestStory(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	var out strings.Builder
	report, err := Run(ctx, Options{Out: &out, Dir: t.TempDir()})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if len(report.Claims) != 7 || report.Batches < 1000 {
		t.Errorf("%d claims, %d batches compared\n%s", len(report.Claims), report.Batches, out.String())
	}
}

// TestClaimsCanFail shows that a claim that doesn't hold fails the run.
func TestClaimsCanFail(t *testing.T) {
	var out strings.Builder
	s := &story{out: &out}
	s.claim(nil, "water is wet")
	if err := s.verdict(); err != nil {
		t.Errorf("a claim that holds: %v", err)
	}
	s.claim(context.Canceled, "the moon is cheese")
	if err := s.verdict(); err == nil || !strings.Contains(err.Error(), "the moon is cheese") {
		t.Errorf("a claim that doesn't hold: %v", err)
	}
	if !strings.Contains(out.String(), "NOT the moon is cheese") {
		t.Errorf("said %q", out.String())
	}
}
