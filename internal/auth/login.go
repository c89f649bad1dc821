package auth

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/xdg-go/scram"

	"tidemark/internal/wire"
)

// Login is the log-in of one connection; it implements wire.Login. One goroutine
// steps it; whether it is done, and whose it is, anybody may ask.
type Login struct {
	v       *Verifier
	offered []string

	mechanism string
	talk      *scram.ServerConversation // of SCRAM
	first     bool                      // no message of the conversation was seen yet
	attempt   struct{ mechanism, user string }

	// principal is set once, with the first success, and never changes.
	principal atomic.Pointer[string]
	// until is when the log-in ends, in ns of the Unix clock; 0: it doesn't.
	until  atomic.Int64
	failed atomic.Bool
}

var _ wire.Login = (*Login)(nil)

// NewLogin begins the log-in of a connection; secure is one over TLS.
func (v *Verifier) NewLogin(secure bool) *Login { return &Login{v: v, offered: v.offered(secure)} }

// Mechanisms implements wire.Login.
func (l *Login) Mechanisms() []string { return l.offered }

// Principal implements wire.Login.
func (l *Login) Principal() (string, bool) {
	p := l.principal.Load()
	if p == nil || l.failed.Load() {
		return "", false
	}
	return *p, true
}

// Attempt implements wire.Login.
func (l *Login) Attempt() (mechanism, user string) { return l.attempt.mechanism, l.attempt.user }

// Failed implements wire.Login.
func (l *Login) Failed() bool { return l.failed.Load() }

// Expired implements wire.Login.
func (l *Login) Expired() bool {
	until := l.until.Load()
	return until > 0 && time.Now().UnixNano() >= until
}

// Lifetime implements wire.Login.
func (l *Login) Lifetime() time.Duration { return l.v.opts.Lifetime }

// Begin implements wire.Login.
func (l *Login) Begin(mechanism string) error {
	switch {
	case l.failed.Load(), l.mechanism != "":
		return l.fail(wire.Errorf(wire.ErrIllegalSaslState, "A handshake comes before the log-in, and once."))
	case !slices.Contains(l.offered, mechanism):
		// The connection may not go on: the client learns what there is and connects anew.
		return l.fail(wire.Errorf(wire.ErrUnsupportedSaslMechanism, "Mechanism %q isn't taken here; %s is.", mechanism, strings.Join(l.offered, ", ")))
	}
	l.mechanism, l.first = mechanism, true
	l.attempt.mechanism, l.attempt.user = mechanism, ""
	if mechanism == Plain {
		return nil
	}
	talk, err := l.v.scramConversation(mechanism)
	if err != nil {
		return l.fail(err)
	}
	l.talk = talk
	return nil
}

// fail ends the log-in for ever.
func (l *Login) fail(err error) error {
	l.failed.Store(true)
	return err
}

// errRefused is said of every log-in that fails, whatever the reason.
var errRefused = wire.Errorf(wire.ErrSaslAuthenticationFailed, "Authentication failed: user or password is wrong.")

// messageBytesMax bounds one message of a log-in.
const messageBytesMax = 16 << 10

// Step implements wire.Login.
func (l *Login) Step(ctx context.Context, message []byte) ([]byte, error) {
	if l.failed.Load() || l.mechanism == "" {
		return nil, l.fail(wire.Errorf(wire.ErrIllegalSaslState, "SaslHandshake comes first."))
	}
	if len(message) > messageBytesMax {
		return nil, l.refuse(ctx)
	}
	if l.mechanism == Plain {
		return l.plain(ctx, message)
	}
	return l.scram(ctx, message)
}

// plain takes the one message of PLAIN (RFC 4616): authorization id, user, password, with a zero byte between.
func (l *Login) plain(ctx context.Context, message []byte) ([]byte, error) {
	parts := bytes.Split(message, []byte{0})
	if len(parts) != 3 || len(parts[1]) == 0 || len(parts[2]) == 0 {
		return nil, l.refuse(ctx)
	}
	authorized, user := string(parts[0]), string(parts[1])
	l.attempt.user = user
	if authorized != "" && authorized != user || !l.v.plainPassword(ctx, user, string(parts[2])) {
		return nil, l.refuse(ctx)
	}
	return nil, l.succeed(ctx, user)
}

func (l *Login) scram(ctx context.Context, message []byte) ([]byte, error) {
	reply, err := l.talk.Step(string(message))
	user := l.talk.Username()
	l.attempt.user = user
	if err != nil || user == "" || l.talk.AuthzID() != "" && l.talk.AuthzID() != user {
		return nil, l.refuse(ctx)
	}
	if l.first {
		l.first = false
		return []byte(reply), nil
	}
	if !l.talk.Done() || !l.talk.Valid() {
		return nil, l.refuse(ctx)
	}
	return []byte(reply), l.succeed(ctx, user)
}

// succeed notes who it is. A renewal may not change that (KIP-368).
func (l *Login) succeed(ctx context.Context, user string) error {
	principal := "User:" + user
	if before := l.principal.Load(); before != nil && *before != principal {
		return l.refuse(ctx)
	}
	l.principal.Store(&principal)
	if life := l.v.opts.Lifetime; life > 0 {
		l.until.Store(time.Now().Add(life).UnixNano())
	}
	l.mechanism, l.talk = "", nil
	return nil
}

// refuse ends the log-in after a while.
func (l *Login) refuse(ctx context.Context) error {
	l.failed.Store(true)
	t := time.NewTimer(l.v.opts.FailureDelay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return errRefused
}
