package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/wire"
)

// DescribeScramKeys (key 32002, Tidemark's own): users' SCRAM credentials with salts
// and keys, for a mirror of this cluster, so that users log in after a failover as
// before (docs/format/scram-keys-api.md). Kafka tells names alone (KIP-554).
//
// Behaviour
//   - Only where an authorizer says so (CLUSTER_ACTION or ALTER on the cluster), and never
//     to ANONYMOUS; without an authorizer SECURITY_DISABLED: nobody could be told from anybody.
//   - Only over TLS, else SECURITY_DISABLED: whoever reads the keys on the way can pretend to be this cluster.
//   - At most ScramKeysPerAnswer at a time, in order; the client asks on from the last one.
//
// Versions
//   - 0: all of it.
func (c *Call) describeScramKeys(in *wire.ScramKeysRequest) (kmsg.Response, error) {
	out := &wire.ScramKeysResponse{}
	if c.Access == nil {
		out.ErrorCode, out.Message = wire.ErrSecurityDisabled, "users' keys are given only where an authorizer says to whom: set authorizer=acl at this cluster"
		return out, nil
	}
	if !c.Req.Secure {
		out.ErrorCode, out.Message = wire.ErrSecurityDisabled, "users' keys are given over TLS alone: mirror this cluster by a listener of protocol SASL_SSL or SSL"
		return out, nil
	}
	for e := range c.Image.ScramsFrom(in.AfterUser, in.AfterMechanism) {
		if len(out.Credentials) == wire.ScramKeysPerAnswer {
			out.More = true
			break
		}
		r := e.Record
		out.Credentials = append(out.Credentials, wire.ScramCredential{User: r.User, Mechanism: r.Mechanism,
			Salt: r.Salt, StoredKey: r.StoredKey, ServerKey: r.ServerKey, Iterations: r.Iterations})
	}
	c.Logger.Info("users' keys were given away", "principal", c.Req.Principal, "remote", c.Req.Remote, "credentials", len(out.Credentials))
	return out, nil
}
