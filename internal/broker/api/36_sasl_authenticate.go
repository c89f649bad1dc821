package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/telemetry"
	"tidemark/internal/wire"
)

// SaslAuthenticate (key 36): a message of the log-in, and the server's (KIP-152).
//
// Behaviour
//   - A refusal is SASL_AUTHENTICATION_FAILED with one sentence for all reasons, after
//     connection.failed.authentication.delay.ms; the connection ends with it.
//   - With connections.max.reauth.ms the answer says how long the log-in lasts. Past that,
//     any other request ends the connection; renewing it may not change the user.
//
// Versions
//   - 1: session lifetime (KIP-368). 2: flexible.
func (c *Call) saslAuthenticate(in *kmsg.SASLAuthenticateRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrSASLAuthenticateResponse()
	login := c.Req.Login
	if login == nil {
		err := wire.Errorf(wire.ErrIllegalSaslState, "This listener takes no log-ins.")
		out.ErrorCode, out.ErrorMessage = int16(CodeOf(err)), MessageOf(err)
		return out, nil
	}
	reply, err := login.Step(c.Ctx, in.SASLAuthBytes)
	if err != nil {
		c.Audit.LogInRefused(c.logIn(err))
		out.ErrorCode, out.ErrorMessage = int16(CodeOf(err)), MessageOf(err)
		return out, nil
	}
	out.SASLAuthBytes = reply
	if _, done := login.Principal(); done {
		out.SessionLifetimeMillis = login.Lifetime().Milliseconds()
		c.Audit.LoggedIn(c.logIn(nil))
	}
	return out, nil
}

// logIn is what the audit is told of this connection's log-in.
func (c *Call) logIn(err error) telemetry.LogIn {
	mechanism, user := c.Req.Login.Attempt()
	l := telemetry.LogIn{Mechanism: mechanism, User: user, Host: c.host(), Listener: c.Req.Listener, Client: c.Req.ClientID}
	if err != nil {
		l.Reason = CodeOf(err).String()
	}
	return l
}
