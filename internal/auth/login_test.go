package auth

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/xdg-go/scram"

	"tidemark/internal/wire"
)

// credentialOf is what a server keeps of a password.
func credentialOf(t *testing.T, mechanism, user, password string) Credential {
	t.Helper()
	client, err := scram.HashGeneratorFcn(algorithmOf(mechanism)).NewClientUnprepped(user, password, "")
	if err != nil {
		t.Fatal(err)
	}
	stored, err := client.GetStoredCredentialsWithError(scram.KeyFactors{Salt: "salt of " + user, Iters: 4096})
	if err != nil {
		t.Fatal(err)
	}
	return Credential{Salt: []byte(stored.Salt), StoredKey: stored.StoredKey, ServerKey: stored.ServerKey, Iterations: stored.Iters}
}

// newTestVerifier knows alice, password "secret", by both mechanisms, and bob by SHA-256 alone.
func newTestVerifier(t *testing.T, o Options) *Verifier {
	users := map[[2]string]Credential{
		{"alice", ScramSHA256}: credentialOf(t, ScramSHA256, "alice", "secret"),
		{"alice", ScramSHA512}: credentialOf(t, ScramSHA512, "alice", "secret"),
		{"bob", ScramSHA256}:   credentialOf(t, ScramSHA256, "bob", "hidden"),
	}
	if o.Mechanisms == nil {
		o.Mechanisms = Mechanisms()
	}
	o.Lookup = func(user, mechanism string) (Credential, bool) {
		c, ok := users[[2]string{user, mechanism}]
		return c, ok
	}
	return NewVerifier(o)
}

// logIn goes through a SCRAM log-in, with the client's side of it.
func logIn(t *testing.T, l *Login, mechanism, user, password, authorized string) error {
	t.Helper()
	if err := l.Begin(mechanism); err != nil {
		return err
	}
	client, err := scram.HashGeneratorFcn(algorithmOf(mechanism)).NewClientUnprepped(user, password, authorized)
	if err != nil {
		t.Fatal(err)
	}
	talk, reply := client.NewConversation(), ""
	for !talk.Done() {
		message, err := talk.Step(reply)
		if err != nil {
			return err
		}
		if talk.Done() {
			break
		}
		answer, err := l.Step(context.Background(), []byte(message))
		if err != nil {
			return err
		}
		reply = string(answer)
	}
	if !talk.Valid() {
		t.Error("the server didn't prove that it knows the password")
	}
	return nil
}

func TestScram(t *testing.T) {
	v := newTestVerifier(t, Options{})
	f := func(name, mechanism, user, password, authorized string, want bool) {
		t.Helper()
		l := v.NewLogin(false)
		err := logIn(t, l, mechanism, user, password, authorized)
		principal, done := l.Principal()
		if (err == nil) != want || done != want || l.Failed() == want || want && principal != "User:"+user {
			t.Errorf("%s: %v, %q %v, failed %v", name, err, principal, done, l.Failed())
		}
		if !want && !errors.Is(err, wire.ErrSaslAuthenticationFailed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f("right", ScramSHA256, "alice", "secret", "", true)
	f("right", ScramSHA512, "alice", "secret", "", true)
	f("as oneself", ScramSHA512, "alice", "secret", "alice", true)
	f("as another one", ScramSHA512, "alice", "secret", "bob", false)
	f("wrong password", ScramSHA256, "alice", "Secret", "", false)
	f("another one's password", ScramSHA256, "bob", "secret", "", false)
	f("unknown user", ScramSHA256, "carol", "secret", "", false)
	f("no credential for the mechanism", ScramSHA512, "bob", "hidden", "", false)
}

// TestUnknownUsersLookLikeOthers: the first answer is of the same form, and the same each time.
func TestUnknownUsersLookLikeOthers(t *testing.T) {
	v := newTestVerifier(t, Options{})
	salt := func(user string) string {
		t.Helper()
		l := v.NewLogin(false)
		if err := l.Begin(ScramSHA256); err != nil {
			t.Fatal(err)
		}
		answer, err := l.Step(context.Background(), []byte("n,,n="+user+",r=nonce"))
		if err != nil {
			t.Fatalf("%s: %v", user, err)
		}
		_, rest, _ := strings.Cut(string(answer), ",s=")
		return rest
	}
	if a, b := salt("carol"), salt("carol"); a != b || a == salt("dave") || !strings.HasSuffix(a, ",i=4096") {
		t.Errorf("salts %q, %q, %q", a, b, salt("dave"))
	}
}

func TestPlain(t *testing.T) {
	v := newTestVerifier(t, Options{})
	f := func(name, message string, want bool) {
		t.Helper()
		l := v.NewLogin(true)
		if err := l.Begin(Plain); err != nil {
			t.Fatal(err)
		}
		_, err := l.Step(context.Background(), []byte(message))
		if _, done := l.Principal(); (err == nil) != want || done != want {
			t.Errorf("%s: %v, done %v", name, err, done)
		}
	}
	f("right", "\x00alice\x00secret", true)
	f("by the only credential", "\x00bob\x00hidden", true)
	f("as oneself", "alice\x00alice\x00secret", true)
	f("as another one", "bob\x00alice\x00secret", false)
	f("wrong", "\x00alice\x00Secret", false)
	f("empty password", "\x00alice\x00", false)
	f("empty user", "\x00\x00secret", false)
	f("unknown user", "\x00carol\x00secret", false)
	f("no separators", "alice secret", false)
	f("too many parts", "\x00alice\x00secret\x00", false)
	f("not text", "\x00ali\xff\x00secret", false)
	f("long", "\x00alice\x00"+strings.Repeat("x", 1<<20), false)
	f("nothing", "", false)
}

// TestPlainTakesTLS: in the clear a password is never taken, whatever is configured.
func TestPlainTakesTLS(t *testing.T) {
	l := newTestVerifier(t, Options{Mechanisms: []string{Plain}}).NewLogin(false)
	if err := l.Begin(Plain); !errors.Is(err, wire.ErrUnsupportedSaslMechanism) || len(l.Mechanisms()) != 0 {
		t.Errorf("%v, offered %v", err, l.Mechanisms())
	}
	if _, err := l.Step(context.Background(), []byte("\x00alice\x00secret")); err == nil {
		t.Error("a password is taken in the clear")
	}
}

// TestLoginsOutOfOrder: what comes out of order ends the log-in for ever.
func TestLoginsOutOfOrder(t *testing.T) {
	v := newTestVerifier(t, Options{})
	f := func(name string, want wire.ErrCode, do func(l *Login) error) {
		t.Helper()
		l := v.NewLogin(true)
		if err := do(l); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if err := logIn(t, l, ScramSHA256, "alice", "secret", ""); err == nil {
			t.Errorf("%s: it goes on after that", name)
		}
		if _, done := l.Principal(); done {
			t.Errorf("%s: it is done", name)
		}
	}
	step := func(l *Login, message string) error {
		_, err := l.Step(context.Background(), []byte(message))
		return err
	}
	f("a message first", wire.ErrIllegalSaslState, func(l *Login) error { return step(l, "n,,n=alice,r=x") })
	f("two handshakes", wire.ErrIllegalSaslState, func(l *Login) error {
		_ = l.Begin(ScramSHA256)
		return l.Begin(ScramSHA256)
	})
	f("an unknown mechanism", wire.ErrUnsupportedSaslMechanism, func(l *Login) error { return l.Begin("GSSAPI") })
	f("the final message first", wire.ErrSaslAuthenticationFailed, func(l *Login) error {
		_ = l.Begin(ScramSHA256)
		return step(l, "c=biws,r=x,p=AAAA")
	})
	f("no proof", wire.ErrSaslAuthenticationFailed, func(l *Login) error {
		_ = l.Begin(ScramSHA256)
		if err := step(l, "n,,n=alice,r=x"); err != nil {
			return err
		}
		return step(l, "c=biws,r=x")
	})
	f("channel binding", wire.ErrSaslAuthenticationFailed, func(l *Login) error {
		_ = l.Begin(ScramSHA256)
		return step(l, "p=tls-unique,,n=alice,r=x")
	})
	f("an empty user", wire.ErrSaslAuthenticationFailed, func(l *Login) error {
		_ = l.Begin(ScramSHA256)
		return step(l, "n,,n=,r=x")
	})
}

// TestRenewal: a log-in may be renewed by the same user alone, and ends otherwise (KIP-368).
func TestRenewal(t *testing.T) {
	v := newTestVerifier(t, Options{Lifetime: time.Nanosecond})
	l := v.NewLogin(false)
	if err := logIn(t, l, ScramSHA256, "alice", "secret", ""); err != nil {
		t.Fatal(err)
	}
	if !l.Expired() {
		t.Error("a log-in of a nanosecond goes on")
	}
	if err := logIn(t, l, ScramSHA512, "alice", "secret", ""); err != nil {
		t.Errorf("the same user: %v", err)
	}
	if err := logIn(t, l, ScramSHA256, "bob", "hidden", ""); err == nil || !l.Failed() {
		t.Errorf("another user: %v", err)
	}
	if _, done := l.Principal(); done {
		t.Error("a renewal that failed leaves the log-in as it was")
	}
	if endless := newTestVerifier(t, Options{}).NewLogin(false); endless.Expired() {
		t.Error("a log-in without a lifetime ends")
	}
}

// TestRefusalsTakeTheirTime: the delay ends with the connection.
func TestRefusalsTakeTheirTime(t *testing.T) {
	l := newTestVerifier(t, Options{FailureDelay: time.Hour}).NewLogin(true)
	if err := l.Begin(Plain); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.Step(ctx, []byte("\x00alice\x00wrong")); err == nil {
		t.Error("a wrong password is taken")
	}
}

func TestCertificatePrincipal(t *testing.T) {
	rdn := func(parts ...pkix.AttributeTypeAndValue) pkix.RelativeDistinguishedNameSET { return parts }
	cn, ou, o, c := asn1.ObjectIdentifier{2, 5, 4, 3}, asn1.ObjectIdentifier{2, 5, 4, 11}, asn1.ObjectIdentifier{2, 5, 4, 10}, asn1.ObjectIdentifier{2, 5, 4, 6}
	serial := asn1.ObjectIdentifier{2, 5, 4, 5}
	at := func(id asn1.ObjectIdentifier, v any) pkix.AttributeTypeAndValue {
		return pkix.AttributeTypeAndValue{Type: id, Value: v}
	}
	f := func(name string, seq pkix.RDNSequence, want string) {
		t.Helper()
		der, err := asn1.Marshal(seq)
		if err != nil {
			t.Fatal(err)
		}
		if got := CertificatePrincipal(&x509.Certificate{RawSubject: der}); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	f("usual", pkix.RDNSequence{rdn(at(c, "DE")), rdn(at(o, "Acme")), rdn(at(ou, "Data")), rdn(at(cn, "broker1.example"))}, "User:CN=broker1.example,OU=Data,O=Acme,C=DE")
	f("none", pkix.RDNSequence{}, "User:")
	f("a value that plays a name", pkix.RDNSequence{rdn(at(o, "Acme")), rdn(at(cn, "a,O=Acme"))}, `User:CN=a\,O=Acme,O=Acme`)
	f("special signs", pkix.RDNSequence{rdn(at(cn, ` #a+b"c\<d>;e `))}, `User:CN=\ #a\+b\"c\\\<d\>\;e\ `)
	f("a hash in front", pkix.RDNSequence{rdn(at(cn, "#1"))}, `User:CN=\#1`)
	f("several in one", pkix.RDNSequence{rdn(at(cn, "a"), at(ou, "b"))}, "User:CN=a+OU=b")
	f("one that RFC 2253 doesn't name", pkix.RDNSequence{rdn(at(serial, "7")), rdn(at(cn, "a"))}, "User:CN=a,2.5.4.5=#130137")
	f("beyond ASCII", pkix.RDNSequence{rdn(at(cn, "Jürgen"))}, "User:CN=Jürgen")
}
