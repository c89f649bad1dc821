package source

import (
	"bufio"
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/xdg-go/scram"

	"tidemark/internal/wire"
)

// connect dials, does TLS, ApiVersions and the log-in, within cfg.ConnectTimeout.
func connect(ctx context.Context, cfg *Config, softwareVersion, address string, p purpose) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.ConnectTimeout)
	defer cancel()
	c, err := dial(ctx, cfg, address, p)
	if err != nil {
		return nil, err
	}
	err = c.negotiate(ctx, softwareVersion)
	if errors.Is(err, ErrUnreachable) {
		// A broker that doesn't know ApiVersions 3 may close instead of falling back (before KIP-511).
		c.close()
		if c, err = dial(ctx, cfg, address, p); err != nil {
			return nil, err
		}
		if err = c.negotiateAt(ctx, 0, softwareVersion); errors.Is(err, ErrUnreachable) {
			err = &Error{Kind: ErrUnreachable, Broker: address, Cause: err,
				Sentence: "the broker closed the connection at the first request; does security.protocol fit the port?"}
		}
	}
	if err == nil && cfg.SASL != nil {
		err = c.logIn(ctx)
	}
	if err == nil {
		err = c.versions.checkRequired(address)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

func dial(ctx context.Context, cfg *Config, address string, p purpose) (*conn, error) {
	open := cfg.Dial
	if open == nil {
		open = dialTCP
	}
	nc, err := open(ctx, address)
	if err != nil {
		return nil, ioError(address, "connect", err)
	}
	if cfg.TLS != nil {
		tc, err := handshakeTLS(ctx, nc, cfg.TLS, address)
		if err != nil {
			_ = nc.Close()
			return nil, err
		}
		nc = tc
	}
	c := &conn{
		address: address, nc: nc, in: bufio.NewReaderSize(nc, readBytes), cfg: cfg, slots: make(chan struct{}, pipelineMax), lastUsed: time.Now(),
		formatter: kmsg.NewRequestFormatter(kmsg.FormatterClientID(cfg.ClientID)),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if p >= purposeFetches {
		c.turn = make(chan struct{}, 1)
		return c, nil
	}
	c.reader.Add(1)
	go c.read()
	return c, nil
}

// negotiate asks for the API versions, falling back to version 0 where the broker says so (KIP-511).
func (c *conn) negotiate(ctx context.Context, softwareVersion string) error {
	err := c.negotiateAt(ctx, apiOf(18).max, softwareVersion)
	var se *Error
	if errors.As(err, &se) && se.Code == CodeUnsupportedVersion {
		return c.negotiateAt(ctx, 0, softwareVersion)
	}
	return err
}

func (c *conn) negotiateAt(ctx context.Context, version int16, softwareVersion string) error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.SetVersion(version)
	// For this name (KIP-511) a Tidemark source lists its own APIs too.
	req.ClientSoftwareName, req.ClientSoftwareVersion = wire.SoftwareName, softwareVersion
	kr, err := c.askAt(ctx, &apiVersionsRequest{req}, c.cfg.ConnectTimeout)
	if err != nil {
		return err
	}
	resp := kr.(*apiVersionsResponse)
	if resp.ErrorCode != 0 {
		return answerError(c.address, "ApiVersions", Code(resp.ErrorCode), "")
	}
	c.versions = tableFrom(resp.ApiKeys)
	return nil
}

// apiVersionsRequest decodes an UNSUPPORTED_VERSION answer, which comes in version 0 (KIP-511).
type apiVersionsRequest struct{ *kmsg.ApiVersionsRequest }

func (r *apiVersionsRequest) ResponseKind() kmsg.Response {
	return &apiVersionsResponse{r.ApiVersionsRequest.ResponseKind().(*kmsg.ApiVersionsResponse)}
}

type apiVersionsResponse struct{ *kmsg.ApiVersionsResponse }

// ReadFrom reads version 0 if the answer begins with UNSUPPORTED_VERSION.
func (r *apiVersionsResponse) ReadFrom(b []byte) error {
	if len(b) >= 2 && b[0] == 0 && b[1] == byte(CodeUnsupportedVersion) {
		r.SetVersion(0)
	}
	return r.ApiVersionsResponse.ReadFrom(b)
}

// logIn does SASL over Kafka frames (KIP-43, KIP-152).
func (c *conn) logIn(ctx context.Context) error {
	s := c.cfg.SASL
	hs := kmsg.NewPtrSASLHandshakeRequest()
	hs.Mechanism = s.Mechanism
	kr, err := c.ask(ctx, hs)
	if err != nil {
		return c.saslClosed(err)
	}
	if resp := kr.(*kmsg.SASLHandshakeResponse); resp.ErrorCode != 0 {
		sentence := fmt.Sprintf("the broker doesn't offer %s; it offers %s (%s)", s.Mechanism, strings.Join(resp.SupportedMechanisms, ", "), s.OtherAdvice)
		return &Error{Kind: ErrAuth, Broker: c.address, Op: "SASL handshake", Sentence: sentence, Code: Code(resp.ErrorCode)}
	}
	if s.Mechanism == "PLAIN" {
		_, err := c.saslStep(ctx, []byte("\x00"+s.Username+"\x00"+s.Password))
		return err
	}
	return c.logInSCRAM(ctx)
}

func (c *conn) logInSCRAM(ctx context.Context) error {
	s := c.cfg.SASL
	hash := scram.SHA256
	if s.Mechanism == "SCRAM-SHA-512" {
		hash = scram.HashGeneratorFcn(sha512.New)
	}
	client, err := hash.NewClient(s.Username, s.Password, "")
	if err != nil {
		return &Error{Kind: ErrAuth, Broker: c.address, Op: s.Mechanism, Sentence: "user or password can't be used", Cause: err}
	}
	talk := client.NewConversation()
	challenge := ""
	for !talk.Done() {
		answer, err := talk.Step(challenge)
		if err != nil {
			return &Error{Kind: ErrAuth, Broker: c.address, Op: s.Mechanism, Sentence: "the broker couldn't prove that it knows the password", Cause: err}
		}
		if talk.Done() {
			break
		}
		reply, err := c.saslStep(ctx, []byte(answer))
		if err != nil {
			return err
		}
		challenge = string(reply)
	}
	if !talk.Valid() {
		return &Error{Kind: ErrAuth, Broker: c.address, Op: s.Mechanism, Sentence: "the broker couldn't prove that it knows the password"}
	}
	return nil
}

// saslStep sends one SASL message and gives the broker's.
func (c *conn) saslStep(ctx context.Context, message []byte) ([]byte, error) {
	req := kmsg.NewPtrSASLAuthenticateRequest()
	req.SASLAuthBytes = message
	kr, err := c.ask(ctx, req)
	if err != nil {
		return nil, c.saslClosed(err)
	}
	resp := kr.(*kmsg.SASLAuthenticateResponse)
	if resp.ErrorCode != 0 {
		sentence := fmt.Sprintf("user %q was refused by %s", c.cfg.SASL.Username, c.cfg.SASL.Mechanism)
		if resp.ErrorMessage != nil && *resp.ErrorMessage != "" {
			sentence += ": " + *resp.ErrorMessage
		}
		sentence += " (" + c.cfg.SASL.Advice + ")"
		return nil, &Error{Kind: ErrAuth, Broker: c.address, Op: "SASL", Sentence: sentence, Code: Code(resp.ErrorCode)}
	}
	if ms := resp.SessionLifetimeMillis; ms > 0 {
		// A new connection is made before the log-in ends (KIP-368), instead of logging in again on this one.
		lifetime := time.Duration(min(ms, 1<<40)) * time.Millisecond
		c.mu.Lock()
		c.expiresAt = time.Now().Add(lifetime / 10 * 8)
		c.mu.Unlock()
	}
	return resp.SASLAuthBytes, nil
}

// saslClosed says what a connection closed during the log-in most likely means.
func (c *conn) saslClosed(err error) error {
	if !errors.Is(err, ErrUnreachable) {
		return err
	}
	sentence := fmt.Sprintf("the broker closed the connection during the log-in of user %q; check the password and that the port wants SASL", c.cfg.SASL.Username)
	return &Error{Kind: ErrAuth, Broker: c.address, Op: "SASL", Sentence: sentence, Cause: err}
}
