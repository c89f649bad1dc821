package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/meta"
	"tidemark/internal/wire"
)

// DescribeUserScramCredentials (key 50): who has a SCRAM credential (KIP-554).
//
// Behaviour
//   - Null users are all. Mechanism and iterations are told, salts and keys never.
//   - A user without a credential is RESOURCE_NOT_FOUND; one that is named twice DUPLICATE_RESOURCE.
//
// Versions
//   - 0.
func (c *Call) describeUserScramCredentials(in *kmsg.DescribeUserSCRAMCredentialsRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrDescribeUserSCRAMCredentialsResponse()
	if in.Users == nil {
		for e := range c.Image.Scrams() {
			last := len(out.Results) - 1
			if last < 0 || out.Results[last].User != e.Record.User {
				out.Results = append(out.Results, kmsg.DescribeUserSCRAMCredentialsResponseResult{User: e.Record.User})
				last++
			}
			out.Results[last].CredentialInfos = append(out.Results[last].CredentialInfos, credentialInfo(e.Record))
		}
		return out, nil
	}
	twice := repeated(in.Users, func(u kmsg.DescribeUserSCRAMCredentialsRequestUser) string { return u.Name })
	answered := make(map[string]bool)
	for _, u := range in.Users {
		if answered[u.Name] {
			continue
		}
		answered[u.Name] = true
		r := kmsg.DescribeUserSCRAMCredentialsResponseResult{User: u.Name}
		for e := range c.Image.ScramsOf(u.Name) {
			r.CredentialInfos = append(r.CredentialInfos, credentialInfo(e.Record))
		}
		var err error
		switch {
		case twice[u.Name]:
			r.CredentialInfos, err = nil, wire.Errorf(wire.ErrDuplicateResource, "User %s is named more than once.", u.Name)
		case len(r.CredentialInfos) == 0:
			err = wire.Errorf(wire.ErrResourceNotFound, "User %s has no SCRAM credential.", u.Name)
		}
		r.ErrorCode, r.ErrorMessage = int16(CodeOf(err)), MessageOf(err)
		out.Results = append(out.Results, r)
	}
	return out, nil
}

func credentialInfo(r *meta.ScramRecord) kmsg.DescribeUserSCRAMCredentialsResponseResultCredentialInfo {
	return kmsg.DescribeUserSCRAMCredentialsResponseResultCredentialInfo{Mechanism: mechanismCode(r.Mechanism), Iterations: r.Iterations}
}

// The mechanisms of KIP-554 by code.
var scramMechanisms = map[int8]string{1: meta.ScramSHA256, 2: meta.ScramSHA512}

func mechanismCode(mechanism string) int8 {
	for code, name := range scramMechanisms {
		if name == mechanism {
			return code
		}
	}
	return 0
}
