//go:build chaos && linux

package chaos_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"tidemark/internal/core/types"
	"tidemark/internal/history"
	"tidemark/test/chaos/links"
)

// produceJava is produce with Java's own producer, where its jars are: it runs
// in a process of its own, at the place of the clients.
func (c *clients) produceJava(stop context.Context, name string) {
	libs := os.Getenv("TIDEMARK_KAFKA_LIBS")
	if libs == "" {
		c.t.Log("no TIDEMARK_KAFKA_LIBS: without Java's producer")
		return
	}
	cmd := exec.Command("java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", filepath.Join(libs, "*"), "java/Sender.java",
		strings.Join(c.seeds, ","), name, fmt.Sprint(c.seed), strings.Join(c.topics, ","), "3", fmt.Sprint(c.every.Milliseconds()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.net.Start(links.Clients, cmd); err != nil {
		c.t.Fatal(err)
	}
	ended := make(chan struct{})
	c.producers.Go(func() {
		defer close(ended)
		sends := map[string]int{} // by the sender's number
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			c.javaSaid(name, strings.SplitN(lines.Text(), " ", 5), sends)
		}
		if err := cmd.Wait(); err != nil {
			c.t.Errorf("Java's producer: %v", err)
		}
	})
	c.producers.Go(func() {
		<-stop.Done()
		_, _ = in.Write([]byte("stop\n")) // a process that has ended says so itself
		<-ended
	})
	c.t.Cleanup(func() { _ = cmd.Process.Kill() }) // of a failed run
}

// javaSaid writes down one line of the sender.
func (c *clients) javaSaid(name string, words []string, sends map[string]int) {
	switch {
	case len(words) == 5 && words[0] == "send":
		partition, err := strconv.ParseInt(words[2], 10, 32)
		if err != nil {
			c.t.Errorf("Java's producer said %q", words)
			return
		}
		tp := types.TopicPartition{Topic: words[1], Partition: int32(partition)}
		sends[words[3]] = c.rec.sending(history.Send{Producer: name, Partition: tp, Value: words[4]})
	case len(words) == 3 && words[0] == "acked":
		at, err := strconv.ParseInt(words[2], 10, 64)
		if err != nil {
			c.t.Errorf("Java's producer said %q", words)
			return
		}
		c.rec.ackedAt(sends[words[1]], at)
	case len(words) >= 3 && words[0] == "failed":
		c.rec.failed(name, fmt.Errorf("%s", strings.Join(words[2:], " ")))
	}
}
