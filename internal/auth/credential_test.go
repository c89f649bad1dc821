package auth

import "testing"

// TestNewCredential: a client of another's making logs in by what is made here.
func TestNewCredential(t *testing.T) {
	for _, mechanism := range []string{ScramSHA256, ScramSHA512} {
		c, err := NewCredential(mechanism, "secret")
		if err != nil {
			t.Fatal(err)
		}
		v := NewVerifier(Options{Mechanisms: Mechanisms(), Lookup: func(string, string) (Credential, bool) { return c, true }})
		if err := logIn(t, v.NewLogin(false), mechanism, "alice", "secret", ""); err != nil {
			t.Errorf("%s: %v", mechanism, err)
		}
		if !c.IsPassword(mechanism, "secret") || c.IsPassword(mechanism, "Secret") {
			t.Errorf("%s: the password isn't told from another", mechanism)
		}
		if other, _ := NewCredential(mechanism, "secret"); string(other.StoredKey) == string(c.StoredKey) {
			t.Errorf("%s: two credentials have one salt", mechanism)
		}
	}
	for _, f := range []func() (Credential, error){
		func() (Credential, error) { return NewCredential(Plain, "secret") },
		func() (Credential, error) { return NewCredential(ScramSHA256, "") },
	} {
		if c, err := f(); err == nil {
			t.Errorf("made %+v", c)
		}
	}
}

// TestAttempt: what a client said of itself is to be had for the log, whatever became of it.
func TestAttempt(t *testing.T) {
	v := newTestVerifier(t, Options{})
	f := func(mechanism, user, password string) {
		t.Helper()
		l := v.NewLogin(true)
		_ = logIn(t, l, mechanism, user, password, "")
		if m, u := l.Attempt(); m != mechanism || u != user {
			t.Errorf("%s %s: %q %q", mechanism, user, m, u)
		}
	}
	f(ScramSHA256, "alice", "secret")
	f(ScramSHA512, "alice", "wrong")
	f(ScramSHA256, "mallory", "x")
	l := v.NewLogin(true)
	_ = l.Begin("GSSAPI")
	if m, u := l.Attempt(); m != "" || u != "" {
		t.Errorf("a mechanism that isn't taken: %q %q", m, u)
	}
}
