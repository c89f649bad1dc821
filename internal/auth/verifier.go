package auth

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"hash"
	"runtime"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/xdg-go/scram"
)

// The mechanisms of log-ins.
const (
	ScramSHA256 = "SCRAM-SHA-256"
	ScramSHA512 = "SCRAM-SHA-512"
	Plain       = "PLAIN"
)

// Mechanisms lists those that a Verifier can be asked for, the strongest first.
func Mechanisms() []string { return []string{ScramSHA512, ScramSHA256, Plain} }

// Credential is what is kept of a user's password for one SCRAM mechanism.
type Credential struct {
	Salt, StoredKey, ServerKey []byte
	Iterations                 int
}

// Options say how a Verifier works.
type Options struct {
	// Mechanisms are those that clients may choose; PLAIN only over TLS, also if it is listed.
	Mechanisms []string
	// Lookup finds a user's credential for a SCRAM mechanism.
	Lookup func(user, mechanism string) (Credential, bool)
	// Lifetime ends a log-in that isn't renewed (connections.max.reauth.ms); 0: it lasts as long as its connection.
	Lifetime time.Duration
	// FailureDelay holds a refusal back, so that passwords can't be tried quickly
	// (connection.failed.authentication.delay.ms).
	FailureDelay time.Duration
}

// Verifier checks log-ins. It is safe for concurrent use.
type Verifier struct {
	opts Options
	// secret makes up credentials of users that don't exist, the same ones each time.
	secret []byte
	// guesses bounds the passwords that are hashed at a time: each takes a core some milliseconds.
	guesses chan struct{}
}

// NewVerifier makes a Verifier.
func NewVerifier(o Options) *Verifier {
	v := &Verifier{opts: o, secret: make([]byte, 32), guesses: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
	_, _ = rand.Read(v.secret) // crypto/rand never fails (Go 1.24)
	return v
}

// offered lists the mechanisms for a connection.
func (v *Verifier) offered(secure bool) []string {
	return slices.DeleteFunc(slices.Clone(v.opts.Mechanisms), func(m string) bool { return m == Plain && !secure })
}

func algorithmOf(mechanism string) func() hash.Hash {
	if mechanism == ScramSHA512 {
		return sha512.New
	}
	return sha256.New
}

// scramConversation begins a SCRAM log-in.
func (v *Verifier) scramConversation(mechanism string) (*scram.ServerConversation, error) {
	server, err := scram.HashGeneratorFcn(algorithmOf(mechanism)).NewServer(func(user string) (scram.StoredCredentials, error) {
		c, ok := v.opts.Lookup(user, mechanism)
		if !ok {
			c = v.madeUp(user, mechanism)
		}
		return scram.StoredCredentials{
			KeyFactors: scram.KeyFactors{Salt: string(c.Salt), Iters: c.Iterations}, StoredKey: c.StoredKey, ServerKey: c.ServerKey,
		}, nil
	})
	if err != nil {
		return nil, err
	}
	return server.NewConversation(), nil
}

// madeUp is a credential that nobody has the password of, so that an unknown user
// looks like any other.
func (v *Verifier) madeUp(user, mechanism string) Credential {
	part := func(what string) []byte {
		return keyed(algorithmOf(mechanism), v.secret, what+mechanism+"\x00"+user)
	}
	return Credential{Salt: part("salt")[:20], StoredKey: part("stored"), ServerKey: part("server"), Iterations: 4096}
}

// plainPassword checks a password against the user's SCRAM credentials; there is no other store of passwords.
func (v *Verifier) plainPassword(ctx context.Context, user, password string) bool {
	if !utf8.ValidString(user) || len(password) > passwordBytesMax {
		return false
	}
	select {
	case v.guesses <- struct{}{}:
		defer func() { <-v.guesses }()
	case <-ctx.Done():
		return false
	}
	found, equal := false, false
	for _, mechanism := range []string{ScramSHA512, ScramSHA256} {
		if c, ok := v.opts.Lookup(user, mechanism); ok {
			found, equal = true, equal || isPassword(mechanism, c, password)
		}
	}
	if !found {
		isPassword(ScramSHA256, v.madeUp(user, ScramSHA256), password) // takes as long
	}
	return equal
}

// passwordBytesMax bounds what is hashed for anybody.
const passwordBytesMax = 4096

func isPassword(mechanism string, c Credential, password string) bool {
	algorithm := algorithmOf(mechanism)
	salted, err := pbkdf2.Key(algorithm, password, c.Salt, c.Iterations, algorithm().Size())
	if err != nil {
		return false
	}
	h := algorithm()
	h.Write(keyed(algorithm, salted, "Client Key"))
	return subtle.ConstantTimeCompare(h.Sum(nil), c.StoredKey) == 1
}

func keyed(algorithm func() hash.Hash, key []byte, text string) []byte {
	h := hmac.New(algorithm, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
