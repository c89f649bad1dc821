package net

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/wire"
)

// fakeLogin is done by the message "open", and fails by any other.
type fakeLogin struct {
	done, failed, expired atomic.Bool
}

func (l *fakeLogin) Mechanisms() []string      { return []string{"X"} }
func (l *fakeLogin) Begin(string) error        { return nil }
func (l *fakeLogin) Failed() bool              { return l.failed.Load() }
func (l *fakeLogin) Lifetime() time.Duration   { return 0 }
func (l *fakeLogin) Attempt() (string, string) { return "", "" }
func (l *fakeLogin) Expired() bool             { return l.expired.Load() }

func (l *fakeLogin) Principal() (string, bool) { return "User:alice", l.done.Load() }

func (l *fakeLogin) Step(_ context.Context, message []byte) ([]byte, error) {
	if string(message) == "open" {
		l.done.Store(true)
		return nil, nil
	}
	l.failed.Store(true)
	return nil, errors.New("wrong")
}

// asked is what reached the handler.
type asked struct {
	key       wire.Key
	principal string
}

// saslServer is a server with a log-in, and what its handler sees.
func saslServer(t *testing.T, o Options) (addr string, seen func() []asked, logins func() []*fakeLogin) {
	var mu sync.Mutex
	var all []asked
	var made []*fakeLogin
	o.Handler = handlerFunc(func(ctx context.Context, req *wire.Request) (*wire.Response, error) {
		mu.Lock()
		all = append(all, asked{req.Key, req.Principal})
		mu.Unlock()
		if req.Key == wire.KeySaslAuthenticate {
			in, err := req.Decode()
			if err != nil {
				return nil, err
			}
			_, _ = req.Login.Step(ctx, in.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes)
		}
		return echo(ctx, req)
	})
	_, addr = start(t, o, Listener{Login: func(bool) wire.Login {
		l := &fakeLogin{}
		mu.Lock()
		made = append(made, l)
		mu.Unlock()
		return l
	}})
	return addr, func() []asked { mu.Lock(); defer mu.Unlock(); return slices.Clone(all) },
		func() []*fakeLogin { mu.Lock(); defer mu.Unlock(); return slices.Clone(made) }
}

func saslMessage(correlation int32, message string) []byte {
	return frame(wire.KeySaslAuthenticate, 0, correlation, append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...))
}

func apiVersions(correlation int32) []byte { return frame(wire.KeyApiVersions, 0, correlation, nil) }

// TestNothingBeforeTheLogIn (I-327): a request that comes before the log-in is done
// never reaches the handler, also if the log-in stands right in front of it, or behind.
func TestNothingBeforeTheLogIn(t *testing.T) {
	f := func(name string, frames ...[]byte) {
		t.Helper()
		addr, seen, _ := saslServer(t, Options{})
		c := dial(t, addr)
		send(t, c, frames[0])
		for _, b := range frames[1:] {
			if _, err := c.Write(b); err != nil {
				break // the server has hung up already
			}
		}
		for {
			if _, _, err := receive(c); err != nil {
				break
			}
		}
		for _, a := range seen() {
			if !isLoginKey(a.key) && a.key != wire.KeyApiVersions {
				t.Errorf("%s: %s was answered as %s", name, a.key, a.principal)
			}
		}
	}
	f("at once", heartbeat(1))
	f("after ApiVersions", apiVersions(1), heartbeat(2))
	f("before the log-in", apiVersions(1), heartbeat(2), saslMessage(3, "open"))
	f("after one that failed", saslMessage(1, "wrong"), heartbeat(2))
	f("after one that failed, and another", saslMessage(1, "wrong"), saslMessage(2, "open"), heartbeat(3))
	f("a produce", frame(wire.KeyProduce, 3, 1, make([]byte, 100)))
	f("of our own", frame(wire.KeyMirrorVerb, 0, 1, make([]byte, 10)))
	var many [][]byte
	for i := range int32(loginStepsMax + 5) {
		many = append(many, apiVersions(i))
	}
	f("many", append(many, saslMessage(100, "open"), heartbeat(101))...)
}

// TestAfterTheLogIn: requests are the user's, also if they were sent before the log-in was answered.
func TestAfterTheLogIn(t *testing.T) {
	addr, seen, logins := saslServer(t, Options{})
	c := dial(t, addr)
	send(t, c, slices.Concat(apiVersions(1), saslMessage(2, "open"), heartbeat(3), heartbeat(4)))
	for i := range int32(4) {
		wantAnswer(t, c, i+1)
	}
	want := []asked{{wire.KeyApiVersions, anonymous}, {wire.KeySaslAuthenticate, anonymous}, {wire.KeyHeartbeat, "User:alice"}, {wire.KeyHeartbeat, "User:alice"}}
	if got := seen(); !slices.Equal(got, want) {
		t.Errorf("the handler saw %v, want %v", got, want)
	}
	logins()[0].expired.Store(true)
	send(t, c, saslMessage(5, "open"))
	wantAnswer(t, c, 5) // renewing is always possible
	send(t, c, heartbeat(6))
	wantClosed(t, c) // KIP-368: the log-in has ended
	if n := len(seen()); n != 5 {
		t.Errorf("%d requests reached the handler, want 5", n)
	}
}

// TestFramesBeforeTheLogIn: large ones are refused before they are read.
func TestFramesBeforeTheLogIn(t *testing.T) {
	addr, seen, _ := saslServer(t, Options{})
	c := dial(t, addr)
	send(t, c, frame(wire.KeySaslAuthenticate, 0, 1, make([]byte, loginFrameBytes))[:64])
	wantClosed(t, c)
	c = dial(t, addr)
	send(t, c, saslMessage(1, "open"))
	wantAnswer(t, c, 1)
	send(t, c, frame(wire.KeyHeartbeat, 0, 2, make([]byte, 2*loginFrameBytes)))
	wantAnswer(t, c, 2)
	if n := len(seen()); n != 2 {
		t.Errorf("%d requests reached the handler, want 2", n)
	}
}

// TestSilenceBeforeTheLogIn: whoever doesn't log in soon makes room for others.
func TestSilenceBeforeTheLogIn(t *testing.T) {
	addr, _, _ := saslServer(t, Options{StallTimeout: time.Second}) // the request below comes sooner
	c := dial(t, addr)
	wantClosed(t, c)
	c = dial(t, addr)
	send(t, c, apiVersions(1))
	wantAnswer(t, c, 1)
	wantClosed(t, c)
}
