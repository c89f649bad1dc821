package source

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
)

// Options are the parts of a Client that no properties file names.
type Options struct {
	Logger *slog.Logger
	// SoftwareVersion is told to the source in ApiVersions.
	SoftwareVersion string
	// Budget bounds the memory of fetch answers; nil makes one of 64 MiB for this client.
	Budget *Budget
	// ClusterID, if not empty, is the only cluster that is talked to (R26); see Client.Pin.
	ClusterID string
}

// budgetBytes is the default budget of one client.
const budgetBytes = 64 << 20

// Client holds connections to the brokers of one source cluster: one for
// requests and one for fetches per broker. It is safe for concurrent use.
type Client struct {
	cfg    *Config
	log    *slog.Logger
	budget *Budget
	agent  string
	// over, if not nil, takes the place of connections: the simulator's network.
	over func(types.BrokerID) Exchange

	mu sync.Mutex
	// guards the following
	clusterID    string // pinned, or empty
	brokers      map[types.BrokerID]Broker
	links        map[linkKey]*link
	coordinators map[string]types.BrokerID // by group
	rotation     int                       // where the next search for any broker begins
	closed       bool
}

// purpose keeps long polls and requests on connections of their own: 0 is for
// requests, each number above for one lane of fetches.
type purpose int

const (
	purposeRequests purpose = iota
	purposeFetches
)

type linkKey struct {
	address string
	purpose purpose
}

// link is the place of one connection; whoever dials holds the turn.
type link struct {
	turn chan struct{} // one token
	c    *conn         // guarded by turn
}

// Open makes a client. It connects when first asked.
func Open(cfg *Config, o Options) *Client {
	c := &Client{
		cfg: cfg, log: o.Logger, budget: o.Budget, clusterID: o.ClusterID, agent: cleanVersion(o.SoftwareVersion),
		brokers: map[types.BrokerID]Broker{}, links: map[linkKey]*link{}, coordinators: map[string]types.BrokerID{},
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.budget == nil {
		c.budget = NewBudget(budgetBytes)
	}
	return c
}

// unfitVersion matches what KIP-511 doesn't allow in a software version.
var unfitVersion = regexp.MustCompile(`[^a-zA-Z0-9.-]+`)

func cleanVersion(v string) string {
	v = strings.Trim(unfitVersion.ReplaceAllString(v, "-"), "-.")
	if v == "" {
		return "unknown"
	}
	return v
}

// Config gives the client's settings.
func (c *Client) Config() *Config { return c.cfg }

// Budget gives the budget of fetch answers.
func (c *Client) Budget() *Budget { return c.budget }

// Pin sets the only cluster id that is accepted from now on: a broker that says
// another one is ErrOtherCluster and is not asked anything more (R26).
// Connections that exist are closed, so that each is checked.
func (c *Client) Pin(clusterID string) {
	c.mu.Lock()
	if c.clusterID == clusterID {
		c.mu.Unlock()
		return
	}
	c.clusterID = clusterID
	old := c.links
	c.links = map[linkKey]*link{}
	c.mu.Unlock()
	closeLinks(old)
}

// Close ends all connections; calls under way fail.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	old := c.links
	c.links = map[linkKey]*link{}
	c.mu.Unlock()
	closeLinks(old)
}

func closeLinks(links map[linkKey]*link) {
	for _, l := range links {
		l.turn <- struct{}{}
		if l.c != nil {
			l.c.close()
			l.c = nil
		}
		<-l.turn
	}
}

var errClosed = &Error{Kind: ErrClosed, Sentence: "the source client is closed"}

// connection gives a usable connection to address, making one if there is none.
func (c *Client) connection(ctx context.Context, address string, p purpose) (*conn, error) {
	for {
		l, err := c.link(address, p)
		if err != nil {
			return nil, err
		}
		select {
		case l.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, ioError(address, "connect", ctx.Err())
		}
		if again, err := c.link(address, p); err != nil || again != l { // closed or pinned meanwhile
			<-l.turn
			if err != nil {
				return nil, err
			}
			continue
		}
		cn, err := c.refill(ctx, l, address, p)
		<-l.turn
		return cn, err
	}
}

func (c *Client) link(address string, p purpose) (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	key := linkKey{address, p}
	l := c.links[key]
	if l == nil {
		l = &link{turn: make(chan struct{}, 1)}
		c.links[key] = l
	}
	return l, nil
}

// refill connects if the link's connection can't be used any more. The caller holds the turn.
func (c *Client) refill(ctx context.Context, l *link, address string, p purpose) (*conn, error) {
	if l.c != nil {
		if l.c.usable(time.Now()) {
			return l.c, nil
		}
		l.c.retire()
		l.c = nil
	}
	cn, err := connect(ctx, c.cfg, c.agent, address, p)
	if err != nil {
		return nil, err
	}
	if err := c.identify(ctx, cn); err != nil {
		cn.close()
		return nil, err
	}
	l.c = cn
	return cn, nil
}

// identify checks on every connect that the broker belongs to the pinned cluster (R26).
func (c *Client) identify(ctx context.Context, cn *conn) error {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	kr, err := cn.ask(ctx, req)
	if err != nil {
		if errors.Is(err, ErrUnreachable) && c.cfg.SASL == nil {
			return &Error{Kind: ErrAuth, Broker: cn.address, Op: "Metadata", Cause: err,
				Sentence: "the broker closed the connection at the first request; the port may want SASL (security.protocol=SASL_PLAINTEXT or SASL_SSL)"}
		}
		return err
	}
	return c.checkCluster(cn.address, kr.(*kmsg.MetadataResponse))
}

func (c *Client) checkCluster(address string, resp *kmsg.MetadataResponse) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clusterID == "" {
		return nil
	}
	got := ""
	if resp.ClusterID != nil {
		got = *resp.ClusterID
	}
	if got != c.clusterID {
		return &Error{Kind: ErrOtherCluster, Broker: address, ClusterID: got,
			Sentence: "cluster " + strconv.Quote(got) + " answers at this address; the mirror's source is cluster " + strconv.Quote(c.clusterID)}
	}
	return nil
}

// askAt sends a request to a live broker of the source, and gives its address.
func (c *Client) askAt(ctx context.Context, id types.BrokerID, req kmsg.Request) (kr kmsg.Response, address string, err error) {
	cn, err := c.brokerConn(ctx, id, purposeRequests)
	if err != nil {
		return nil, "", err
	}
	kr, err = cn.ask(ctx, req)
	return kr, cn.address, err
}

// brokerConn gives a connection to a broker that metadata has named.
func (c *Client) brokerConn(ctx context.Context, id types.BrokerID, p purpose) (*conn, error) {
	c.mu.Lock()
	b, ok := c.brokers[id]
	c.mu.Unlock()
	if !ok {
		return nil, &Error{Kind: ErrUnreachable, Sentence: "broker " + strconv.Itoa(int(id)) + " is not among the source's live brokers"}
	}
	return c.connection(ctx, b.Address(), p)
}

// anyBroker calls f with connections to broker after broker until one isn't unreachable.
func (c *Client) anyBroker(ctx context.Context, f func(*conn) error) error {
	var failures []string
	var last error
	for _, address := range c.candidates() {
		cn, err := c.connection(ctx, address, purposeRequests)
		if err == nil {
			err = f(cn)
		}
		if err == nil || ctx.Err() != nil || !(errors.Is(err, ErrUnreachable) || errors.Is(err, ErrTimeout)) {
			return err
		}
		c.mu.Lock()
		c.rotation++
		c.mu.Unlock()
		failures = append(failures, err.Error())
		last = err
	}
	if len(failures) <= 1 {
		return last
	}
	return &Error{Kind: ErrUnreachable, Sentence: "no broker of the source can be reached: " + strings.Join(failures, "; ")}
}

// candidates lists the known brokers from a moving start, then the bootstrap addresses.
func (c *Client) candidates() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var known []string
	for _, b := range c.brokers {
		known = append(known, b.Address())
	}
	slices.Sort(known)
	var out []string
	add := func(list []string) {
		for i := range list {
			if a := list[(i+c.rotation)%len(list)]; !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	add(known)
	add(c.cfg.Bootstrap)
	return out
}

// Broker is one broker of the source as its metadata names it.
type Broker struct {
	ID   types.BrokerID
	Host string
	Port int32
	Rack string
}

// Address gives host:port.
func (b Broker) Address() string { return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))) }
