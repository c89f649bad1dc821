// Tidemark: a Kafka-compatible broker, and a byte-exact, failover-ready standby for any Kafka cluster.
package main

import (
	"os"

	"golang.org/x/term"

	"tidemark/internal/cli"
)

// version is set by the linker.
var version = "dev"

func main() {
	os.Exit(cli.Main(os.Args[1:], cli.Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		InTerminal:  term.IsTerminal(int(os.Stdin.Fd())),
		OutTerminal: term.IsTerminal(int(os.Stdout.Fd())) && term.IsTerminal(int(os.Stderr.Fd())),
		Version:     version,
	}))
}
