package net

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tidemark/internal/assert"
	"tidemark/internal/wire"
)

// anonymous is whose a connection is that has not said.
const anonymous = "User:ANONYMOUS"

const (
	// loginFrameBytes bounds a frame before the log-in is done: a message of SCRAM or PLAIN
	// has some hundred bytes, a kerberos ticket, which Kafka leaves room for, isn't taken.
	loginFrameBytes = 16 << 10
	// loginStepsMax bounds the requests before the log-in is done: SCRAM takes four.
	loginStepsMax = 16
)

// errLogin is matched by what ends a connection for its log-in.
var errLogin = errors.New("log-in")

// loginGate keeps a connection to its log-in until that is done: requests of three
// kinds, small ones, few, one at a time. A nil gate lets everything through.
//
// The reader looks at it before each frame, the worker after each answer. While the
// log-in is pending the reader reads nothing ahead, so that no request is taken in under one
// principal and answered under another (I-327).
type loginGate struct {
	login wire.Login
	// steps is the reader's.
	steps int
	// answered tells the reader that a step was.
	answered chan struct{}
}

func newLoginGate(l wire.Login) *loginGate {
	return &loginGate{login: l, answered: make(chan struct{}, 1)}
}

// isPending reports whether the log-in is still to be done.
func (g *loginGate) isPending() bool {
	if g == nil {
		return false
	}
	_, done := g.login.Principal()
	return !done
}

// principal is whose the connection is.
func (g *loginGate) principal() string {
	if p, done := g.login.Principal(); done {
		return p
	}
	return anonymous
}

// limits are those of a frame.
func (g *loginGate) limits(usual wire.Limits, isStep bool) wire.Limits {
	if !isStep {
		return usual
	}
	return wire.Limits{Frame: min(usual.Frame, loginFrameBytes), Control: min(usual.Control, loginFrameBytes)}
}

// patience is how long the connection may be silent.
func (g *loginGate) patience(o Options) time.Duration {
	if g.isPending() {
		return min(o.IdleTimeout, o.StallTimeout)
	}
	return o.IdleTimeout
}

// admit judges a request that comes before the log-in is done.
func (g *loginGate) admit(p wire.Prefix) error {
	if g.steps++; g.steps > loginStepsMax {
		return fmt.Errorf("%w: not done after %d requests", errLogin, loginStepsMax)
	}
	if !isLoginKey(p.Key) && p.Key != wire.KeyApiVersions {
		return fmt.Errorf("%w: %s comes before it", errLogin, p.Key)
	}
	return nil
}

func isLoginKey(k wire.Key) bool { return k == wire.KeySaslHandshake || k == wire.KeySaslAuthenticate }

// awaitStep has the reader wait until a step is answered.
func (g *loginGate) awaitStep(ctx context.Context, isStep bool) error {
	if !isStep {
		return nil
	}
	select {
	case <-g.answered:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stepDone tells the reader that a step was answered, and ends a connection whose log-in failed.
func (g *loginGate) stepDone(isStep bool) error {
	if g == nil {
		return nil
	}
	if g.login.Failed() {
		return fmt.Errorf("%w: refused", errLogin)
	}
	if isStep {
		g.answered <- struct{}{} // has room: the reader awaits each step
	}
	return nil
}

// mayHandle refuses what comes without a log-in, or after its end (KIP-368).
func (g *loginGate) mayHandle(k wire.Key) error {
	if g == nil {
		return nil
	}
	// Invariant I-327: nothing but the log-in is answered to who isn't logged in.
	assert.That(!g.isPending() || isLoginKey(k) || k == wire.KeyApiVersions, "I-327: %s without a log-in", k)
	if g.login.Expired() && !isLoginKey(k) {
		return fmt.Errorf("%w: it has ended and was not renewed", errLogin)
	}
	return nil
}
