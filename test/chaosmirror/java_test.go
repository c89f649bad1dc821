//go:build chaos && linux

package chaosmirror_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"tidemark/internal/core/types"
	"tidemark/test/chaos/links"
)

// jvm is the process in which Java's producers write; each generation of writers has one.
type jvm struct {
	w *world

	mu      sync.Mutex // guards the following
	in      io.Writer
	writers map[string]*javaWriter
}

// javaWriter is one of them.
type javaWriter struct {
	g     *generation
	sends map[string]int // by the writer's number
	ended chan struct{}
}

// startJava starts the process at the place of the clients.
func (w *world) startJava(net links.Network) {
	libs := os.Getenv("TIDEMARK_KAFKA_LIBS")
	cmd := exec.Command("java", "-Xmx160m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", filepath.Join(libs, "*"), "java/Writer.java")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := net.Start(links.Clients, cmd); err != nil {
		w.t.Fatal(err)
	}
	w.java = &jvm{w: w, in: in, writers: map[string]*javaWriter{}}
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			w.java.said(strings.SplitN(lines.Text(), " ", 6))
		}
	}()
	w.t.Cleanup(func() {
		_ = in.Close() // it ends with its input
		<-read
		if err := cmd.Wait(); err != nil {
			w.t.Errorf("Java's writers: %v", err)
		}
	})
}

// begin has Java write beside a generation's other writers.
func (j *jvm) begin(g *generation) {
	var list []string
	for _, tp := range slices.SortedFunc(maps.Keys(g.timelines), byName) {
		list = append(list, fmt.Sprintf("%s/%d", tp.Topic, tp.Partition))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	name := g.name + ".java"
	j.writers[name] = &javaWriter{g: g, sends: map[string]int{}, ended: make(chan struct{})}
	if _, err := fmt.Fprintf(j.in, "begin %s %s %d %s\n", name, strings.Join(g.c.seeds, ","), sendEvery.Milliseconds(), strings.Join(list, ",")); err != nil {
		j.w.t.Errorf("Java's writers: %v", err)
	}
}

// end stops a generation's writer, which waits so long at most for what has no outcome yet.
func (j *jvm) end(g *generation, patience time.Duration) {
	j.mu.Lock()
	name := g.name + ".java"
	one := j.writers[name]
	if one != nil {
		_, _ = fmt.Fprintf(j.in, "end %s %d\n", name, patience.Milliseconds())
	}
	j.mu.Unlock()
	if one == nil {
		return
	}
	limit := time.NewTimer(patience + healLimit)
	defer limit.Stop()
	select {
	case <-one.ended:
	case <-limit.C:
		j.w.t.Errorf("Java's writer %s doesn't end", name)
	}
}

// said writes down one line.
func (j *jvm) said(words []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	one := (*javaWriter)(nil)
	if len(words) > 1 {
		one = j.writers[words[1]]
	}
	if one == nil {
		j.w.t.Errorf("Java's writers said %q", words)
		return
	}
	cluster := one.g.c.name
	switch {
	case words[0] == "send" && len(words) == 6:
		p, err := strconv.ParseInt(words[3], 10, 32)
		if err != nil {
			j.w.t.Errorf("Java's writer said %q", words)
		}
		tp := types.TopicPartition{Topic: words[2], Partition: int32(p)}
		one.sends[words[4]] = j.w.book.writing(cluster, one.g.timelines[tp], tp, words[5])
	case words[0] == "acked" && len(words) == 4:
		at, err := strconv.ParseInt(words[3], 10, 64)
		if err != nil {
			j.w.t.Errorf("Java's writer said %q", words)
		}
		j.w.book.acked(cluster, one.sends[words[2]], at)
		j.w.saw("records acknowledged to Java's producers", 1)
	case words[0] == "failed" && len(words) > 3:
		reason, _, _ := strings.Cut(strings.Join(words[3:], " "), ":")
		j.w.book.failed(cluster, fmt.Errorf("java: %s", reason))
	case words[0] == "ended":
		delete(j.writers, words[1])
		close(one.ended)
	}
}

func byName(a, b types.TopicPartition) int { return strings.Compare(a.String(), b.String()) }
