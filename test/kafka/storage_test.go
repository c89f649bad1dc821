//go:build kafka

package kafka_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tidemark/internal/compare"
	"tidemark/test/kafka/cluster"
)

// TestKafkaReadsOurFolders lets Kafka's own tool dump our segments and indexes, and Kafka's own broker serve a copy of our partition.
func TestKafkaReadsOurFolders(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	kafka := cluster.Start(t, cluster.Options{})
	cl := client(t, kafka.Bootstrap())
	createTopic(ctx, t, cl, "files", 1, 1, "segment.bytes", "1048576")
	javaLoad(ctx, t, kafka.Bootstrap(), "topic=files,count=20000,codec=lz4,headers=2,nulls=5,keys=50,min=50,max=600,seed=3")
	javaLoad(ctx, t, kafka.Bootstrap(), "topic=files,count=500,txn=mix,perTxn=20,codec=none,seed=4")
	standby := startStandby(t, kafka.Bootstrap())
	standby.waitCaughtUp(time.Minute, ends(ctx, t, cl, "files"))
	standby.stop()
	ours := partitionFolder(t, standby.dir, "files-0")

	segments, err := filepath.Glob(filepath.Join(ours, "*.log"))
	if err != nil || len(segments) < 3 {
		t.Fatalf("%d segments, want several: %v", len(segments), err)
	}
	for _, pattern := range []string{"*.log", "*.index", "*.timeindex", "*.txnindex", "*.snapshot"} {
		files, _ := filepath.Glob(filepath.Join(ours, pattern))
		for _, f := range files {
			args := []string{"--files", f}
			if pattern == "*.log" {
				args = append(args, "--deep-iteration", "--print-data-log")
			} else if pattern == "*.index" || pattern == "*.timeindex" {
				args = append(args, "--index-sanity-check")
			}
			out, err := kafka.Tool(ctx, "org.apache.kafka.tools.DumpLogSegments", args...)
			low := strings.ToLower(out)
			if err != nil || strings.Contains(low, "exception") || strings.Contains(low, "mismatch") || strings.Contains(low, "isvalid: false") {
				t.Errorf("DumpLogSegments %s: %v\n%.2000s", filepath.Base(f), err, out)
			}
		}
	}

	// Kafka serves our copy: same topic id, same offsets, same bytes.
	kafka.Stop(1)
	theirs := filepath.Join(kafka.Node(1).DataDir(), "files-0")
	if err := os.Rename(theirs, filepath.Join(t.TempDir(), "kept")); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-r", ours, theirs).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	kafka.Restart(1)
	standby.start()
	standby.waitReady()
	again := client(t, kafka.Bootstrap())
	eventually(t, time.Minute, "Kafka serves the copy", func() error {
		_, err := compare.Partitions(ctx, compare.Side{Name: "Kafka on our copy", Client: again}, compare.Side{Name: "standby", Client: client(t, standby.kafka)}, []string{"files"}, compare.Options{})
		return err
	})
	batches, _ := mustBeEqual(ctx, t, again, client(t, standby.kafka), []string{"files"}, compare.Options{})
	if batches < 100 {
		t.Errorf("only %d batches", batches)
	}
}

// TestWeReadKafkasFolders verifies and lists a folder that Apache Kafka wrote.
func TestWeReadKafkasFolders(t *testing.T) {
	ctx := testContext(t, 3*time.Minute)
	kafka := cluster.Start(t, cluster.Options{})
	cl := client(t, kafka.Bootstrap())
	createTopic(ctx, t, cl, "files", 1, 1, "segment.bytes", "1048576")
	javaLoad(ctx, t, kafka.Bootstrap(), "topic=files,count=20000,codec=zstd,keys=50,min=50,max=900,seed=3",
		"topic=files,count=300,txn=mix,perTxn=20,seed=4")
	kafka.Stop(1)
	folder := filepath.Join(kafka.Node(1).DataDir(), "files-0")
	run := func(args ...string) (int, string) {
		t.Helper()
		out, err := exec.Command(binary(t), args...).CombinedOutput()
		if err != nil && out == nil {
			t.Fatal(err)
		}
		code := 0
		if err != nil {
			code = 1
		}
		return code, string(out)
	}
	if code, out := run("log", "verify", folder); code != 0 {
		t.Errorf("log verify: exit %d\n%s", code, out)
	}
	if code, out := run("log", "epochs", folder); code != 0 || !strings.Contains(out, "0") {
		t.Errorf("log epochs: exit %d\n%s", code, out)
	}
	code, out := run("log", "dump", folder)
	if code != 0 || strings.Count(out, "\n") < 100 {
		t.Errorf("log dump: exit %d\n%.2000s", code, out)
	}
}

// partitionFolder finds a partition's folder below a data folder.
func partitionFolder(t *testing.T, dir, name string) string {
	t.Helper()
	var found string
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == name && !strings.Contains(path, "vault") {
			found = path
		}
		return nil
	})
	if found == "" {
		t.Fatalf("no folder %s below %s", name, dir)
	}
	return found
}
