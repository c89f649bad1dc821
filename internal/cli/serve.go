package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"tidemark/internal/broker"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/config"
	"tidemark/internal/console"
	tidenet "tidemark/internal/net"
	"tidemark/internal/source"
	"tidemark/internal/telemetry"
)

// shutdownWait bounds an orderly end; what isn't done by then is left to recovery.
const shutdownWait = 30 * time.Second

// standbyMirror is the name of the mirror that `tidemark standby` makes.
const standbyMirror = "standby"

// nodeFlags are the flags of a node.
type nodeFlags struct {
	DataDir   string   `help:"Folder for everything that the node keeps." placeholder:"DIR"`
	Listen    string   `help:"Where Kafka clients connect (default 127.0.0.1:9092)." placeholder:"HOST:PORT"`
	Advertise string   `help:"What clients are told to connect to (default: --listen)." placeholder:"HOST:PORT"`
	HTTP      string   `help:"Where the HTTP API listens (default 127.0.0.1:9644; anyone who reaches it can change the node)." placeholder:"HOST:PORT"`
	NodeID    *int32   `help:"The node's id, 0 or more (default 1)." placeholder:"N"`
	Join      string   `help:"HTTP address of a node whose cluster this one joins at its first start." placeholder:"HOST:PORT"`
	Config    string   `help:"A server.properties file." type:"existingfile" placeholder:"FILE"`
	Set       []string `help:"A setting, as in server.properties; repeatable." placeholder:"KEY=VALUE" sep:"none"`
}

// resolve lays flags over --set over the file over the defaults.
func (f *nodeFlags) resolve() (*config.Broker, []config.Warning, error) {
	var settings []config.Setting
	if f.Config != "" {
		fromFile, err := config.FromFile(f.Config)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", errUsage, err)
		}
		settings = append(settings, fromFile...)
	}
	for _, arg := range f.Set {
		one, err := config.ParseSet(arg)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", errUsage, err)
		}
		settings = append(settings, one)
	}
	flags := []struct{ flag, key, value string }{
		{"--data-dir", "log.dirs", f.DataDir},
		{"--http", "http.listener", f.HTTP},
		{"--join", "metadata.join", f.Join},
	}
	if _, _, err := net.SplitHostPort(f.Join); f.Join != "" && err != nil {
		return nil, nil, fmt.Errorf("%w: --join %q: want HOST:PORT, the HTTP API (default port 9644) of a node that runs", errUsage, f.Join)
	}
	for _, addr := range []struct{ flag, key, value string }{{"--listen", "listeners", f.Listen}, {"--advertise", "advertised.listeners", f.Advertise}} {
		if addr.value == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(addr.value); err != nil {
			return nil, nil, fmt.Errorf("%w: %s %q: want HOST:PORT", errUsage, addr.flag, addr.value)
		}
		flags = append(flags, struct{ flag, key, value string }{addr.flag, addr.key, "PLAINTEXT://" + addr.value})
	}
	if f.NodeID != nil {
		flags = append(flags, struct{ flag, key, value string }{"--node-id", "node.id", fmt.Sprint(*f.NodeID)})
	}
	for _, fl := range flags {
		if fl.value != "" {
			settings = append(settings, config.Flag(fl.flag, fl.key, fl.value))
		}
	}
	cfg, warnings, err := config.Resolve(settings)
	if err != nil {
		return nil, warnings, fmt.Errorf("%w: %w", errUsage, err)
	}
	return cfg, warnings, nil
}

// node is a running broker with its HTTP API.
type node struct {
	broker *broker.Broker
	api    *console.Server
	log    *slog.Logger
}

// startNode brings a node up; the error names what is in the way.
func startNode(ctx context.Context, f *nodeFlags, s Streams) (*node, error) {
	cfg, warnings, err := f.resolve()
	if err != nil {
		return nil, err
	}
	logger, err := telemetry.NewLogger(s.Err, cfg.LogLevel, cfg.LogFormat)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	for _, w := range warnings {
		logger.Warn("setting has no effect", "setting", w.String())
	}
	opts := broker.Options{Logger: logger, Version: s.Version, Features: s.Features}
	if err := harm(&opts); err != nil {
		return nil, err
	}
	access := console.Access{CertFile: cfg.HTTPSSLKeystoreLocation, KeyFile: cfg.HTTPSSLKeyLocation}
	if cfg.HTTPTokenFile != "" {
		if access.Token, err = tidenet.ReadToken(cfg.HTTPTokenFile); err != nil {
			return nil, fmt.Errorf("http.token.file: %w", err)
		}
	}
	if cfg.HTTPReadTokenFile != "" {
		if access.ReadToken, err = tidenet.ReadToken(cfg.HTTPReadTokenFile); err != nil {
			return nil, fmt.Errorf("http.read.token.file: %w", err)
		}
		if access.ReadToken == access.Token {
			return nil, errors.New("http.read.token.file and http.token.file hold the same token: who has the one may do everything; `openssl rand -hex 32` makes another")
		}
	}
	var ln net.Listener
	if cfg.HTTPListener != "" {
		if ln, err = console.Listen(cfg.HTTPListener); err != nil {
			return nil, err
		}
		opts.HTTPAddr = ln.Addr().String()
	}
	n := &node{log: logger}
	if n.broker, err = broker.Open(ctx, cfg, opts); err != nil {
		if ln != nil {
			err = errors.Join(err, ln.Close())
		}
		return nil, err
	}
	access.Audit = n.broker.Audit()
	if ln != nil {
		if n.api, err = console.Serve(ln, consoleNode{n.broker}, access, logger); err != nil {
			return nil, errors.Join(err, ln.Close(), n.close())
		}
		logger.Info("HTTP API is up", "addr", n.api.Addr())
	}
	return n, nil
}

// close ends the node in order: no new requests, then the broker.
func (n *node) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownWait)
	defer cancel()
	var err error
	if n.api != nil {
		err = n.api.Close(ctx)
	}
	return errors.Join(err, n.broker.Close(ctx))
}

// run serves until ctx ends or the broker fails.
func (n *node) run(ctx context.Context) error {
	var failed error
	select {
	case <-ctx.Done():
		n.log.Info("node is shutting down")
	case <-n.broker.Done():
		failed = n.broker.Health()
	}
	return errors.Join(failed, n.close())
}

type serveCmd struct{ nodeFlags }

func (c *serveCmd) Run(ctx context.Context, s Streams) error {
	n, err := startNode(ctx, &c.nodeFlags, s)
	if err != nil {
		return err
	}
	return n.run(ctx)
}

type standbyCmd struct {
	nodeFlags
	Source
}

func (c *standbyCmd) Run(ctx context.Context, s Streams) error {
	spec, err := c.spec(standbyMirror, nil)
	if err != nil {
		return err
	}
	var live *liveLine
	if s.OutTerminal {
		live = &liveLine{w: s.Err}
		s.Err = live
	}
	n, err := startNode(ctx, &c.nodeFlags, s)
	if err != nil {
		return err
	}
	if err := n.ensureMirror(ctx, spec); err != nil {
		return errors.Join(err, n.close())
	}
	return n.runStandby(ctx, live)
}

// runStandby serves and tells of the first copy meanwhile.
func (n *node) runStandby(ctx context.Context, live *liveLine) error {
	told, end := context.WithCancel(ctx)
	var work sync.WaitGroup
	w := &copyWatch{log: n.log, line: live, status: func(ctx context.Context) (mirror.Status, error) {
		return n.broker.Mirrors().StatusEverywhere(ctx, standbyMirror)
	}}
	work.Go(func() { w.run(told) })
	defer work.Wait()
	defer end()
	return n.run(ctx)
}

// ensureMirror creates and starts the mirror unless an earlier run of the same
// command did: a restarted standby goes on with what it has, also after a
// failover, when it is a standby no more.
func (n *node) ensureMirror(ctx context.Context, spec mirror.Spec) error {
	mirrors := n.broker.Mirrors()
	st, err := mirrors.Status(ctx, spec.Name)
	switch {
	case err == nil:
		n.log.Info("mirror goes on as it was", "mirror", spec.Name, "state", st.State)
		words, err := mirrors.Reconnect(ctx, spec)
		for _, w := range words {
			n.log.Warn("flags differ from the mirror's record", "mirror", spec.Name, "so", w)
		}
		return err
	case !errors.Is(err, mirror.ErrUnknownMirror):
		return err
	}
	if err := mirrors.Create(ctx, spec); err != nil {
		return err
	}
	return mirrors.Start(ctx, spec.Name)
}

// spec reads the source's properties file and checks it before anything is started.
func (f *Source) spec(name string, settings map[string]string) (mirror.Spec, error) {
	spec := mirror.Spec{Name: name, Bootstrap: f.Source, Topics: f.Topics, Exclude: f.Exclude, Groups: f.Groups, Settings: settings}
	if f.SourceConfig != "" {
		props, err := source.LoadProperties(f.SourceConfig)
		if err != nil {
			return spec, fmt.Errorf("%w: --source-config: %w", errUsage, err)
		}
		spec.ClientConfig = props
	}
	if err := spec.Check(config.Default().Mirror); err != nil {
		return spec, fmt.Errorf("%w: %w", errUsage, err)
	}
	return spec, nil
}

// consoleNode shows a broker to the HTTP API.
type consoleNode struct{ *broker.Broker }

// Healthy is the broker's own view of its health.
func (n consoleNode) Healthy() error { return n.Health() }

// Mirrors are the broker's mirrors.
func (n consoleNode) Mirrors() console.Mirrors { return n.Broker.Mirrors() }

// Membership is the broker's cluster.
func (n consoleNode) Membership() console.Membership { return n.Broker }

// Vault is the broker's vault.
func (n consoleNode) Vault() console.Vault { return n.Broker.Vault() }
