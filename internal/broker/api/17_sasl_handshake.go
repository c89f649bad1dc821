package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/wire"
)

// SaslHandshake (key 17): the client chooses a mechanism (KIP-43).
//
// Behaviour
//   - The answer lists the mechanisms of this connection: PLAIN over TLS alone.
//   - Another mechanism is UNSUPPORTED_SASL_MECHANISM, and the connection ends.
//   - On a listener without SASL, or in the middle of a log-in: ILLEGAL_SASL_STATE.
//   - A logged-in connection may begin anew, to renew its log-in (KIP-368).
//
// Versions
//   - 0: the log-in's messages would follow without frames of their own;
//     UNSUPPORTED_VERSION. 1: they come in SaslAuthenticate (KIP-152).
func (c *Call) saslHandshake(in *kmsg.SASLHandshakeRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrSASLHandshakeResponse()
	switch login := c.Req.Login; {
	case login == nil:
		out.ErrorCode = int16(wire.ErrIllegalSaslState)
	case in.Version == 0:
		out.ErrorCode, out.SupportedMechanisms = int16(wire.ErrUnsupportedVersion), login.Mechanisms()
	default:
		err := login.Begin(in.Mechanism)
		if err != nil {
			c.Audit.LogInRefused(c.logIn(err))
		}
		out.ErrorCode, out.SupportedMechanisms = int16(CodeOf(err)), login.Mechanisms()
	}
	return out, nil
}
