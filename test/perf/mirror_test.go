//go:build kafka

package perf_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// operate runs one command of the binary against a system's first node and gives how long it took.
func (s *system) operate(args ...string) time.Duration {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	begin := time.Now()
	out, err := exec.CommandContext(ctx, os.Getenv("TIDEMARK_BIN"), append(args, "--api", "http://"+s.http[0])...).CombinedOutput()
	if err != nil {
		s.tb.Fatalf("tidemark %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return time.Since(begin)
}

// waitMirroring waits until n partitions of a mirror have all that its source had when last asked, and gives how long that took. It
// asks rarely where there are many: each answer lists them all.
func (s *system) waitMirroring(mirror string, n int) time.Duration {
	s.tb.Helper()
	begin := time.Now()
	rest := time.NewTicker(time.Duration(max(100, n)) * 200 * time.Microsecond)
	defer rest.Stop()
	eventually(s.tb, patience, fmt.Sprintf("%d partitions mirror", n), func() error {
		<-rest.C
		resp, err := http.Get("http://" + s.http[0] + "/api/v1/mirrors/" + mirror)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		var st struct {
			Partitions []struct {
				State           string
				End, LagRecords int64
				Reason          string
			}
		}
		if err := json.NewDecoder(resp.Body).Decode(&st); err != nil {
			return err
		}
		there, other := 0, ""
		for _, p := range st.Partitions {
			if p.State == "MIRRORING" && p.End > 0 && p.LagRecords == 0 {
				there++
			} else {
				other = p.State + " " + p.Reason
			}
		}
		if there != n {
			return fmt.Errorf("%d of %d, another one is %s", there, n, other)
		}
		return nil
	})
	return time.Since(begin)
}

// TestFigureChangeOfSides: how long failover, failback and switchover of many partitions take, by the command line, with a cluster of
// TIDEMARK_PERF_NODES nodes (1) on each side. A failover's end is a record written to every partition.
func TestFigureChangeOfSides(t *testing.T) {
	sizes := []int{1000, 5000}
	if n := option(t, "PARTITIONS", 0); n > 0 {
		sizes = []int{n}
	}
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			nodes := option(t, "NODES", 1)
			a, b := startTidemark(t, nodes), startTidemark(t, nodes)
			topics := a.many(n, 0)
			b.operate("mirror", "create", "m", "--source", a.bootstrap[0])
			t.Logf("%d partitions: all mirror after %v", n, b.waitMirroring("m", n))

			begin := time.Now()
			command := b.operate("mirror", "failover", "m", "--yes")
			b.writeEach(topics, n)
			t.Logf("failover: command %v, all written to after %v", command, time.Since(begin))

			a.writeEach(topics, n) // each partition has forked by one record
			a.operate("mirror", "create", "m", "--source", b.bootstrap[0])
			preview := a.operate("mirror", "preview", "m")
			begin = time.Now()
			command = a.operate("mirror", "failback", "m", "--yes")
			a.waitMirroring("m", n)
			t.Logf("failback: preview %v, command with its own preview %v, all cut and mirroring after %v", preview, command, time.Since(begin))

			begin = time.Now()
			command = a.operate("mirror", "switchover", "m", "--reverse", "--yes")
			a.writeEach(topics, n)
			t.Logf("switchover: command %v, all written to after %v (load %s)", command, time.Since(begin), loadAverage())
		})
	}
}

// TestFigureOutage: what a mirror of 1,000 partitions that catches up after an outage does to those who write to the standby's own
// topics. The bytes stand for six hours of 100 kB/s.
func TestFigureOutage(t *testing.T) {
	const n, rate, lone = 1000, 1000, 10 * time.Second
	mib := option(t, "MIB", 2048)
	a, b := startTidemark(t, 1), startTidemark(t, 1)
	topics := a.many(n, 0)
	b.operate("mirror", "create", "m", "--source", a.bootstrap[0])
	b.waitMirroring("m", n)
	b.createTopic("own", loadPartitions, 1, nil)
	quiet := steady(t, b, "own", rate, 0, lone)
	b.operate("mirror", "pause", "m")
	flood(t, a, topics[0], mib<<20/valueBytes)
	stopped, during := make(chan struct{}), make(chan latencies, 1)
	go func() { during <- steadyUntil(t, b, "own", rate, stopped) }()
	b.operate("mirror", "resume", "m")
	took := b.waitMirroring("m", n)
	close(stopped)
	l := <-during
	t.Logf("%d MiB over %d partitions in %v (%.0f MiB/s); produce at %d records/s without: p50 %.2f, p99 %.2f ms; during: p50 %.2f, p99 %.2f, largest %.2f ms (load %s)",
		mib, n, took, float64(mib)/took.Seconds(), rate, quiet.at(.5), quiet.at(.99), l.at(.5), l.at(.99), l.at(1), loadAverage())
}

// TestFigureGroupAge: how old a group's offsets are at the standby: from a commit at the source until the standby has it.
func TestFigureGroupAge(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	a, b := startTidemark(t, 1), startTidemark(t, 1)
	a.createTopic("read", 1, 1, nil)
	flood(t, a, "read", 1000)
	b.operate("mirror", "create", "m", "--source", a.bootstrap[0])
	b.waitMirroring("m", 1)
	var ages latencies
	for i := range option(t, "RUNS", 30) {
		at := int64(i + 1)
		var offsets kadm.Offsets
		offsets.Add(kadm.Offset{Topic: "read", At: at, LeaderEpoch: -1})
		if err := a.adm.CommitAllOffsets(ctx, "readers", offsets); err != nil {
			t.Fatal(err)
		}
		committed := time.Now()
		eventually(t, patience, "the standby has the offset", func() error {
			got, err := b.adm.FetchOffsets(ctx, "readers")
			if err == nil && got["read"][0].At != at {
				err = fmt.Errorf("it has %d, not %d", got["read"][0].At, at)
			}
			return err
		})
		ages = append(ages, float64(time.Since(committed))/float64(time.Millisecond))
	}
	slices.Sort(ages)
	t.Logf("from a commit until the standby has it, %d times: p50 %.0f ms, largest %.0f ms (load %s)", len(ages), ages.at(.5), ages.at(1), loadAverage())
}
