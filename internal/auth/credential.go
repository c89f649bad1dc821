package auth

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"fmt"
)

const (
	// newIterations is how often a password is hashed of which a credential is made here.
	newIterations = 8192
	newSaltBytes  = 24
)

// NewCredential makes what is kept of a password for a SCRAM mechanism.
func NewCredential(mechanism, password string) (Credential, error) {
	if mechanism != ScramSHA256 && mechanism != ScramSHA512 {
		return Credential{}, fmt.Errorf("mechanism %q keeps no passwords; %s and %s do", mechanism, ScramSHA256, ScramSHA512)
	}
	if password == "" || len(password) > passwordBytesMax {
		return Credential{}, fmt.Errorf("a password of %d bytes; 1 to %d are possible", len(password), passwordBytesMax)
	}
	c := Credential{Salt: make([]byte, newSaltBytes), Iterations: newIterations}
	_, _ = rand.Read(c.Salt) // crypto/rand never fails (Go 1.24)
	algorithm := algorithmOf(mechanism)
	salted, err := pbkdf2.Key(algorithm, password, c.Salt, c.Iterations, algorithm().Size())
	if err != nil {
		return Credential{}, err
	}
	h := algorithm()
	h.Write(keyed(algorithm, salted, "Client Key"))
	c.StoredKey, c.ServerKey = h.Sum(nil), keyed(algorithm, salted, "Server Key")
	return c, nil
}

// IsPassword reports whether a credential for a mechanism is this password's. It
// takes some milliseconds.
func (c Credential) IsPassword(mechanism, password string) bool {
	return isPassword(mechanism, c, password)
}
