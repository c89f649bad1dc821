package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"hash"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/meta"
	"tidemark/internal/wire"
)

// AlterUserScramCredentials (key 51): sets and deletes SCRAM credentials (KIP-554).
//
// Behaviour
//   - The password doesn't come here: the client sends it salted. Kept are the
//     stored and the server key (RFC 5802), of which no password can be read back.
//   - Each user has one result. A user's changes are made together or not at all.
//   - UNSUPPORTED_SASL_MECHANISM; UNACCEPTABLE_CREDENTIAL for an empty name, 4096
//     iterations not reached or 16384 exceeded, no salt; RESOURCE_NOT_FOUND for a
//     deletion of what isn't there; DUPLICATE_RESOURCE for a credential that is named twice.
//   - Connections that are logged in stay so, as in Kafka; see connections.max.reauth.ms.
//
// Versions
//   - 0.
func (c *Call) alterUserScramCredentials(in *kmsg.AlterUserSCRAMCredentialsRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrAlterUserSCRAMCredentialsResponse()
	for _, user := range alteredUsers(in) {
		set, remove, err := alterationOf(in, user)
		if err == nil {
			err = c.Security.ChangeCredentials(c.Ctx, set, remove)
			if err != nil {
				c.failed(wire.KeyAlterUserScramCredentials, err)
			}
		}
		out.Results = append(out.Results, kmsg.AlterUserSCRAMCredentialsResponseResult{User: user, ErrorCode: int16(CodeOf(err)), ErrorMessage: MessageOf(err)})
	}
	return out, nil
}

// alteredUsers lists the users of a request, each once, in its order.
func alteredUsers(in *kmsg.AlterUserSCRAMCredentialsRequest) []string {
	var users []string
	seen := make(map[string]bool)
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			users = append(users, name)
		}
	}
	for _, d := range in.Deletions {
		add(d.Name)
	}
	for _, u := range in.Upsertions {
		add(u.Name)
	}
	return users
}

// alterationOf gives what a request wants of one user, checked.
func alterationOf(in *kmsg.AlterUserSCRAMCredentialsRequest, user string) (set []meta.ScramRecord, remove []meta.ScramID, err error) {
	if user == "" {
		return nil, nil, wire.Errorf(wire.ErrUnacceptableCredential, "A user's name must not be empty.")
	}
	var named []int8
	mechanism := func(code int8) (string, error) {
		name, ok := scramMechanisms[code]
		switch {
		case !ok:
			return "", wire.Errorf(wire.ErrUnsupportedSaslMechanism, "SCRAM mechanism %d is unknown.", code)
		case slices.Contains(named, code):
			return "", wire.Errorf(wire.ErrDuplicateResource, "A user's credential can't be altered twice in one request.")
		}
		named = append(named, code)
		return name, nil
	}
	for _, d := range in.Deletions {
		if d.Name != user {
			continue
		}
		m, err := mechanism(d.Mechanism)
		if err != nil {
			return nil, nil, err
		}
		remove = append(remove, meta.ScramID{User: user, Mechanism: m})
	}
	for i := range in.Upsertions {
		u := &in.Upsertions[i]
		if u.Name != user {
			continue
		}
		m, err := mechanism(u.Mechanism)
		if err != nil {
			return nil, nil, err
		}
		r, err := credentialOf(u, m)
		if err != nil {
			return nil, nil, err
		}
		set = append(set, r)
	}
	return set, remove, nil
}

// credentialOf makes what is kept of a salted password (RFC 5802 §3).
func credentialOf(u *kmsg.AlterUserSCRAMCredentialsRequestUpsertion, mechanism string) (meta.ScramRecord, error) {
	algorithm := sha256.New
	if mechanism == meta.ScramSHA512 {
		algorithm = sha512.New
	}
	r := meta.ScramRecord{
		User: u.Name, Mechanism: mechanism, Salt: slices.Clone(u.Salt), Iterations: u.Iterations,
		StoredKey: digest(algorithm, keyed(algorithm, u.SaltedPassword, "Client Key")),
		ServerKey: keyed(algorithm, u.SaltedPassword, "Server Key"),
	}
	switch {
	case u.Iterations < meta.ScramIterationsMin:
		return r, wire.Errorf(wire.ErrUnacceptableCredential, "Too few iterations: %d; the least is %d.", u.Iterations, meta.ScramIterationsMin)
	case u.Iterations > meta.ScramIterationsMax:
		return r, wire.Errorf(wire.ErrUnacceptableCredential, "Too many iterations: %d; the most is %d.", u.Iterations, meta.ScramIterationsMax)
	case len(u.SaltedPassword) != meta.ScramKeyBytes(mechanism):
		return r, wire.Errorf(wire.ErrUnacceptableCredential, "A salted password of %s has %d bytes, not %d.", mechanism, meta.ScramKeyBytes(mechanism), len(u.SaltedPassword))
	}
	if err := r.Check(); err != nil {
		return r, wire.Errorf(wire.ErrUnacceptableCredential, "The credential can't be used: %s.", err)
	}
	return r, nil
}

func keyed(algorithm func() hash.Hash, key []byte, text string) []byte {
	h := hmac.New(algorithm, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func digest(algorithm func() hash.Hash, b []byte) []byte {
	h := algorithm()
	h.Write(b)
	return h.Sum(nil)
}
