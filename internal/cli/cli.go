// Package cli is the command line: the grammar, what each command prints, and its exit code.
//
// Commands that change a running node speak to it as anyone could: topic and
// group, user and acl through Kafka's protocol (--bootstrap), mirror, meta, vault and events
// through the HTTP API (--api). serve and standby start a node in this
// process; log reads a folder. Nothing here decides anything about data.
//
// Exit codes: 0 done, 1 failed, 2 usage, 3 a condition wasn't met in time
// (wait, verify). Results go to standard output, everything else to standard
// error. The tests run commands through Main and through scripts in testdata.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"tidemark/internal/core/meta"
	"tidemark/internal/sim"
)

// Exit codes of the program.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
	exitUnmet  = 3
)

// errUnmet marks a condition that wasn't met in time: exit code 3.
var errUnmet = errors.New("condition not met")

// errUsage marks a call that can't be understood: exit code 2.
var errUsage = errors.New("usage")

// Streams are where a command reads and writes, and what it knows of the terminal.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
	// InTerminal and OutTerminal say whether a person is at the other end.
	InTerminal, OutTerminal bool
	// Version is the program's version.
	Version string
	// Features are the levels that the node of serve and standby supports; nil: the
	// program's. Tests give those of an older program.
	Features meta.Features
}

// Target chooses the node that a command speaks to and how its answer is printed.
type Target struct {
	API           string `help:"A node's HTTP API." default:"http://127.0.0.1:9644" env:"TIDEMARK_API" placeholder:"http://HOST:PORT"`
	Bootstrap     string `help:"Kafka address of the cluster." default:"127.0.0.1:9092" env:"TIDEMARK_BOOTSTRAP" placeholder:"HOST:PORT"`
	CommandConfig string `help:"Java properties file with what the Kafka address wants: security.protocol, sasl.*, ssl.*, as Kafka's own tools take it." env:"TIDEMARK_COMMAND_CONFIG" type:"path" placeholder:"FILE"`
	TokenFile     string `help:"File with the token that the HTTP API asks for." env:"TIDEMARK_TOKEN_FILE" type:"path" placeholder:"FILE"`
	CAFile        string `name:"ca-file" help:"PEM file with the authorities that sign nodes' certificates (https://). Default: the system's." env:"TIDEMARK_CA_FILE" type:"path" placeholder:"FILE"`
	Output        string `short:"o" help:"How to print: table, wide, json or yaml." enum:"table,wide,json,yaml" default:"table"`
}

// grammar is the whole command line.
type grammar struct {
	Version kong.VersionFlag `help:"Print the version and end."`

	Serve   serveCmd   `cmd:"" help:"Run a node."`
	Standby standbyCmd `cmd:"" help:"Run a node that mirrors a Kafka cluster and can take over from it."`
	Mirror  mirrorCmd  `cmd:"" help:"Mirrors: create, watch, fail over."`
	Topic   topicCmd   `cmd:"" help:"Topics: create, list, describe, alter, delete."`
	Group   groupCmd   `cmd:"" help:"Consumer groups: list, describe, reset offsets, delete."`
	User    userCmd    `cmd:"" help:"Users that log in by SCRAM or PLAIN: list, add, passwd, remove."`
	ACL     aclCmd     `cmd:"" name:"acl" help:"Who may do what: list, add, remove."`
	Cluster clusterCmd `cmd:"" help:"The cluster: status, members, decommissioning."`
	Vault   vaultCmd   `cmd:"" help:"Records that a cut removed: list, show, export."`
	Events  eventsCmd  `cmd:"" help:"What happened: every cut, promotion, failure and alarm, also from before the last start."`
	Log     logCmd     `cmd:"" help:"Read a partition's folder: dump, verify, epochs."`
	Config  configCmd  `cmd:"" help:"Settings: list the keys that there are."`
	Meta    metaCmd    `cmd:"" help:"Show the cluster's metadata, read-only."`
	Sim     simCmd     `cmd:"" help:"Run the product's own code in a simulated world: replay a seed, or search for one that fails."`
	Demo    demoCmd    `cmd:"" help:"A source and a standby in one process: mirror, unclean election, failover, proof."`
}

// Main runs one command line (without the program's name) and gives its exit code.
func Main(args []string, s Streams) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, args, s)
}

// exitCode carries an exit out of kong, which calls Exit after --help and --version.
type exitCode int

func run(ctx context.Context, args []string, s Streams) (code int) {
	defer func() {
		if r := recover(); r != nil {
			c, ok := r.(exitCode)
			if !ok {
				panic(r)
			}
			code = int(c)
		}
	}()
	var g grammar
	parser, err := kong.New(&g,
		kong.Name("tidemark"),
		kong.Description("A Kafka-compatible broker in one binary, and a byte-exact, failover-ready standby for any Kafka cluster.\n\n"+
			"Exit codes: 0 done, 1 failed, 2 the call can't be understood, 3 a condition was not met in time (wait, verify, decommission, add --wait)."),
		kong.Writers(s.Out, s.Err),
		kong.Vars{"version": s.Version, "sim_profiles": strings.Join(sim.Profiles(), ", ")},
		kong.Exit(func(c int) { panic(exitCode(c)) }),
		kong.UsageOnError(),
		kong.NamedMapper("existingfile", kong.MapperFunc(existingFile)),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(s),
	)
	if err != nil {
		fmt.Fprintln(s.Err, "tidemark:", err)
		return exitFailed
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintln(s.Err, "tidemark:", err)
		fmt.Fprintln(s.Err, "Run tidemark --help, or tidemark COMMAND --help.")
		return exitUsage
	}
	return report(parsed.Run(), s)
}

// report says what went wrong, once, and chooses the exit code.
func report(err error, s Streams) int {
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errUsage):
		fmt.Fprintln(s.Err, "tidemark:", strings.TrimPrefix(err.Error(), errUsage.Error()+": "))
		return exitUsage
	case errors.Is(err, errUnmet):
		fmt.Fprintln(s.Err, "tidemark:", err)
		return exitUnmet
	default:
		fmt.Fprintln(s.Err, "tidemark:", err)
		return exitFailed
	}
}
