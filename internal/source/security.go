package source

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/wire"
)

// ACL is one access control entry of the source, by Kafka's codes.
type ACL struct {
	Resource, Pattern, Operation, Permission int8
	Name, Principal, Host                    string
}

// aclAny is the code of a filter's field that matches everything (KIP-140, KIP-290).
const aclAny = 1

// ACLs asks for all access control entries of the source. A source without an
// authorizer, or one that refuses, is an error: nothing follows from it for the entries here.
func (c *Client) ACLs(ctx context.Context) ([]ACL, error) {
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType, req.ResourcePatternType, req.Operation, req.PermissionType = aclAny, aclAny, aclAny, aclAny
	var out []ACL
	err := c.anyBroker(ctx, func(cn *conn) error {
		kr, err := cn.ask(ctx, req)
		if err != nil {
			return err
		}
		resp := kr.(*kmsg.DescribeACLsResponse)
		if resp.ErrorCode != 0 {
			return answerError(cn.address, "DescribeAcls", Code(resp.ErrorCode), text(resp.ErrorMessage))
		}
		out = nil
		for _, r := range resp.Resources {
			for _, a := range r.ACLs {
				out = append(out, ACL{Resource: int8(r.ResourceType), Pattern: int8(r.ResourcePatternType), Name: r.ResourceName,
					Principal: a.Principal, Host: a.Host, Operation: int8(a.Operation), Permission: int8(a.PermissionType)})
			}
		}
		return nil
	})
	return out, err
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// ScramUser is a user's credential as any source tells it (KIP-554): without keys.
type ScramUser struct {
	User       string
	Mechanism  int8 // 1: SCRAM-SHA-256, 2: SCRAM-SHA-512
	Iterations int32
}

// ScramUsers asks who has a SCRAM credential at the source.
func (c *Client) ScramUsers(ctx context.Context) ([]ScramUser, error) {
	var out []ScramUser
	err := c.anyBroker(ctx, func(cn *conn) error {
		kr, err := cn.ask(ctx, kmsg.NewPtrDescribeUserSCRAMCredentialsRequest())
		if err != nil {
			return err
		}
		resp := kr.(*kmsg.DescribeUserSCRAMCredentialsResponse)
		if resp.ErrorCode != 0 {
			return answerError(cn.address, "DescribeUserScramCredentials", Code(resp.ErrorCode), text(resp.ErrorMessage))
		}
		out = nil
		for _, r := range resp.Results {
			for _, info := range r.CredentialInfos {
				out = append(out, ScramUser{User: r.User, Mechanism: info.Mechanism, Iterations: info.Iterations})
			}
		}
		return nil
	})
	return out, err
}

// errNoKeys: the source isn't Tidemark, or too old to give keys.
var errNoKeys = errors.New("the source doesn't give keys")

// ScramKeys asks a Tidemark source for its users' credentials with their keys; nil and
// no error from a source that has no such API.
func (c *Client) ScramKeys(ctx context.Context) ([]wire.ScramCredential, error) {
	var out []wire.ScramCredential
	err := c.anyBroker(ctx, func(cn *conn) error {
		if _, offered := cn.versions[int16(wire.KeyDescribeScramKeys)]; !offered {
			return errNoKeys
		}
		out = []wire.ScramCredential{}
		req := &wire.ScramKeysRequest{}
		for more := true; more; {
			kr, err := cn.ask(ctx, req)
			if err != nil {
				return err
			}
			resp := kr.(*wire.ScramKeysResponse)
			if resp.ErrorCode != 0 {
				return answerError(cn.address, "DescribeScramKeys", Code(resp.ErrorCode), resp.Message)
			}
			out = append(out, resp.Credentials...)
			if more = resp.More && len(resp.Credentials) > 0; more {
				last := resp.Credentials[len(resp.Credentials)-1]
				req = &wire.ScramKeysRequest{AfterUser: last.User, AfterMechanism: last.Mechanism}
			}
		}
		return nil
	})
	if errors.Is(err, errNoKeys) {
		return nil, nil
	}
	return out, err
}
