package embed_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"tidemark/internal/await"
	"tidemark/internal/core/meta"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/embed"
)

// counterEnv makes the test binary a process that counts in the folder it names until it is killed.
const counterEnv = "TIDEMARK_TEST_COUNTER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(counterEnv); dir != "" {
		fmt.Fprintln(os.Stderr, countForever(dir))
		os.Exit(1)
	}
	if dir := os.Getenv(fillerEnv); dir != "" {
		fmt.Fprintln(os.Stderr, fillUp(dir))
		os.Exit(1)
	}
	// Members keep idle HTTP connections to each other for a while after their end.
	await.NoLeaks(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"), goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"))
}

// countForever prints each number once the store has acknowledged it.
func countForever(dir string) error {
	ctx := context.Background()
	s, err := embed.Start(ctx, embed.Options{Dir: dir, Name: "node-1"})
	if err != nil {
		return err
	}
	kv, _, err := s.Store().Get(ctx, "/n")
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(string(kv.Value))
	at := kv.ModRevision
	for {
		n++
		at, err = metastore.Commit(ctx, s.Store(), meta.Plan{Why: "count", If: []meta.Compare{meta.ModRevisionIs("/n", at)}, Then: []meta.Op{meta.Put("/n", []byte(strconv.Itoa(n)))}})
		if err != nil {
			return err
		}
		fmt.Println(n)
	}
}

// TestKilled: kill -9 in the midst of writing loses nothing that was acknowledged, and the folder opens again.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	acknowledged := 0
	for range 4 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), counterEnv+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for i := 0; lines.Scan(); i++ {
			n, err := strconv.Atoi(lines.Text())
			if err != nil || n <= acknowledged || i == 0 && n > acknowledged+2 {
				t.Fatalf("it went on with %q after %d", lines.Text(), acknowledged)
			}
			acknowledged = n
			if i == 50 {
				cmd.Process.Kill() // what is in the pipe still counts
			}
		}
		cmd.Wait()
	}
	s := start(t, embed.Options{Dir: dir, Name: "node-1"})
	kv, _, err := s.Store().Get(context.Background(), "/n")
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := strconv.Atoi(string(kv.Value)); n < acknowledged || n > acknowledged+1 {
		t.Fatalf("%d is there, %d was acknowledged", n, acknowledged)
	}
}
