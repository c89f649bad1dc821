package meta

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"strings"
	"unicode/utf8"

	"tidemark/internal/core/acl"
)

// Versions of the records that this program writes and reads.
const (
	ACLVersion   = 1
	ScramVersion = 1
)

// LevelSecurity is the level of FeatureMetadata from which ACLs and SCRAM
// credentials are written: a program below it reads neither, and would leave open what they close.
const LevelSecurity = 2

// ACLRecord is one access control entry. Its key names it by what it says (acl.Binding.ID).
type ACLRecord struct {
	V          int              `json:"v" level:"2"`
	Resource   acl.ResourceType `json:"resource"`
	Pattern    acl.PatternType  `json:"pattern"`
	Name       string           `json:"name"`
	Principal  string           `json:"principal"`
	Host       string           `json:"host"`
	Operation  acl.Operation    `json:"operation"`
	Permission acl.Permission   `json:"permission"`
	// Mirror names the mirror that copied the entry, and takes it away again once
	// its source has it no more; empty: somebody here wrote it, and no mirror touches it.
	Mirror string `json:"mirror,omitempty"`
}

// NewACLRecord makes the record of a binding, owned by a mirror if that isn't empty.
func NewACLRecord(b acl.Binding, mirror string) ACLRecord {
	return ACLRecord{Resource: b.Resource, Pattern: b.Pattern, Name: b.Name, Principal: b.Principal, Host: b.Host,
		Operation: b.Operation, Permission: b.Permission, Mirror: mirror}
}

// Binding is what the record says.
func (r *ACLRecord) Binding() acl.Binding {
	return acl.Binding{Resource: r.Resource, Pattern: r.Pattern, Name: r.Name, Principal: r.Principal, Host: r.Host,
		Operation: r.Operation, Permission: r.Permission}
}

func (r *ACLRecord) check() error { return r.Binding().Validate() }

// The SCRAM mechanisms (RFC 5802, RFC 7677).
const (
	ScramSHA256 = "SCRAM-SHA-256"
	ScramSHA512 = "SCRAM-SHA-512"
)

// ScramKeyBytes is the size of a mechanism's keys in bytes; 0 for an unknown mechanism.
func ScramKeyBytes(mechanism string) int {
	switch mechanism {
	case ScramSHA256:
		return 32
	case ScramSHA512:
		return 64
	}
	return 0
}

// Bounds of SCRAM credentials: Kafka's for iterations; ours for the rest.
const (
	ScramIterationsMin = 4096
	ScramIterationsMax = 16384
	ScramUserBytesMax  = 1024
	ScramSaltBytesMax  = 1024
)

// ScramID names a credential.
type ScramID struct{ User, Mechanism string }

func compareScramID(a, b ScramID) int {
	return cmp.Or(strings.Compare(a.User, b.User), strings.Compare(a.Mechanism, b.Mechanism))
}

// ScramRecord is a user's credential for one mechanism. It is a secret: with it a
// server can be impersonated, and a password be guessed at leisure.
type ScramRecord struct {
	V          int    `json:"v" level:"2"`
	User       string `json:"user"`
	Mechanism  string `json:"mechanism"`
	Salt       []byte `json:"salt"`
	StoredKey  []byte `json:"storedKey"`
	ServerKey  []byte `json:"serverKey"`
	Iterations int32  `json:"iterations"`
	// Mirror names the mirror that copied the credential; empty: it was made here.
	Mirror string `json:"mirror,omitempty"`
}

// ID names the credential.
func (r *ScramRecord) ID() ScramID { return ScramID{User: r.User, Mechanism: r.Mechanism} }

// Equal reports whether two credentials are the same.
func (r *ScramRecord) Equal(o *ScramRecord) bool {
	return r.User == o.User && r.Mechanism == o.Mechanism && r.Iterations == o.Iterations && r.Mirror == o.Mirror &&
		bytes.Equal(r.Salt, o.Salt) && bytes.Equal(r.StoredKey, o.StoredKey) && bytes.Equal(r.ServerKey, o.ServerKey)
}

// Check says what is wrong with a credential; nil if it may be written.
func (r *ScramRecord) Check() error { return r.check() }

func (r *ScramRecord) check() error {
	size := ScramKeyBytes(r.Mechanism)
	switch {
	case size == 0:
		return fmt.Errorf("mechanism %q", r.Mechanism)
	case r.User == "" || len(r.User) > ScramUserBytesMax || !utf8.ValidString(r.User):
		return fmt.Errorf("user name %q: 1 to %d bytes of UTF-8", r.User, ScramUserBytesMax)
	case len(r.StoredKey) != size || len(r.ServerKey) != size:
		return fmt.Errorf("keys of %d and %d bytes; %s has %d", len(r.StoredKey), len(r.ServerKey), r.Mechanism, size)
	case len(r.Salt) == 0 || len(r.Salt) > ScramSaltBytesMax:
		return fmt.Errorf("a salt of %d bytes", len(r.Salt))
	case r.Iterations < ScramIterationsMin || r.Iterations > ScramIterationsMax:
		return fmt.Errorf("%d iterations; %d to %d are possible", r.Iterations, ScramIterationsMin, ScramIterationsMax)
	}
	return nil
}

// ACL is the key of the ACLRecord of a binding.
func (k Keys) ACL(b acl.Binding) string { return k.ACLByID(b.ID()) }

// ACLByID is the key of the ACLRecord whose binding has this id.
func (k Keys) ACLByID(id string) string { return k.root + "acls/" + id }

// Scram is the key of a ScramRecord: the user's name in URL-safe base64, so that
// any name will do.
func (k Keys) Scram(id ScramID) string {
	return k.root + "scram/" + base64.RawURLEncoding.EncodeToString([]byte(id.User)) + "/" + id.Mechanism
}

func parseScramKey(key, arg string) (Key, error) {
	user, mechanism, _ := strings.Cut(arg, "/")
	name, err := base64.RawURLEncoding.Strict().DecodeString(user)
	if err != nil || len(name) == 0 || ScramKeyBytes(mechanism) == 0 {
		return Key{}, fmt.Errorf("%q: want scram/<user in base64>/<mechanism>: %w", key, ErrKey)
	}
	return Key{Kind: KeyScram, Scram: ScramID{User: string(name), Mechanism: mechanism}}, nil
}

// Encode writes the record in its current version.
func (r ACLRecord) Encode() []byte { r.V = ACLVersion; return encode(r) }

// Encode writes the record in its current version.
func (r ScramRecord) Encode() []byte { r.V = ScramVersion; return encode(r) }

// DecodeACL reads the value of an ACL key.
func DecodeACL(key string, data []byte) (*ACLRecord, error) {
	rec, err := decode[ACLRecord](key, data, ACLVersion)
	if err == nil && !strings.HasSuffix(key, "/"+rec.Binding().ID()) {
		return nil, &ValueError{Key: key, Err: fmt.Errorf("%w: it holds another entry, %s", ErrValue, rec.Binding())}
	}
	return rec, err
}

// DecodeScram reads the value of a SCRAM key.
func DecodeScram(key string, data []byte) (*ScramRecord, error) {
	rec, err := decode[ScramRecord](key, data, ScramVersion)
	if err != nil {
		return nil, err
	}
	if tail := KeysOf("").Scram(rec.ID()); !strings.HasSuffix(key, strings.TrimPrefix(tail, KeysOf("").Root())) {
		return nil, &ValueError{Key: key, Err: fmt.Errorf("%w: it holds the credential of user %q for %s", ErrValue, rec.User, rec.Mechanism)}
	}
	return rec, nil
}

// The security entries of an image.
type (
	ACL   = Entry[string, ACLRecord] // by the id of its binding
	Scram = Entry[ScramID, ScramRecord]
)

// security is the part of an image that says who may do what.
type security struct {
	acls     tree[string, *ACL]
	bindings tree[acl.Binding, *ACL]
	scram    tree[ScramID, *Scram]
	// unreadable counts ACLs whose value could never be read.
	unreadable int
	// revision is the last that changed an ACL.
	revision Revision
}

func emptySecurity() security {
	return security{
		acls: newTree[string, *ACL](strings.Compare), bindings: newTree[acl.Binding, *ACL](acl.Compare),
		scram: newTree[ScramID, *Scram](compareScramID),
	}
}

// securityEdit builds the next security part of an image.
type securityEdit struct {
	acls     *edit[string, *ACL]
	bindings *edit[acl.Binding, *ACL]
	scram    *edit[ScramID, *Scram]
	// unreadable is security.unreadable; touched: an ACL changed.
	unreadable int
	touched    bool
}

func (s security) edit() *securityEdit {
	return &securityEdit{acls: s.acls.edit(), bindings: s.bindings.edit(), scram: s.scram.edit(), unreadable: s.unreadable}
}

func (e *securityEdit) done(old security, at Revision) security {
	next := security{acls: e.acls.done(), bindings: e.bindings.done(), scram: e.scram.done(), unreadable: e.unreadable, revision: old.revision}
	if e.touched {
		next.revision = at
	}
	return next
}

func (e *securityEdit) putACL(id string, kv KV) error {
	e.removeBinding(id)
	err := putEntry(e.acls, id, kv, DecodeACL)
	if now, _ := e.acls.get(id); now.Record == nil {
		e.unreadable++
	} else {
		e.bindings.set(now.Record.Binding(), now)
	}
	return err
}

func (e *securityEdit) deleteACL(id string) {
	e.removeBinding(id)
	e.acls.remove(id)
}

// removeBinding takes what an id stood for out of the index.
func (e *securityEdit) removeBinding(id string) {
	e.touched = true
	old, ok := e.acls.get(id)
	switch {
	case !ok:
	case old.Record == nil:
		e.unreadable--
	default:
		e.bindings.remove(old.Record.Binding())
	}
}

// ACLs are the access control entries of an image, in the order of acl.Compare.
// They implement acl.Index.
type ACLs struct{ s *security }

// ACLs gives the access control entries.
func (i *Image) ACLs() ACLs { return ACLs{&i.security} }

// Has implements acl.Index.
func (a ACLs) Has(b acl.Binding) bool { _, ok := a.s.bindings.get(b); return ok }

// From implements acl.Index.
func (a ACLs) From(b acl.Binding) iter.Seq[acl.Binding] {
	return func(yield func(acl.Binding) bool) {
		for found := range a.s.bindings.from(b) {
			if !yield(found) {
				return
			}
		}
	}
}

// Entry finds the key of a binding whether or not its value can be read: its Record may be nil.
func (a ACLs) Entry(b acl.Binding) (*ACL, bool) { return a.s.acls.get(b.ID()) }

// All walks the entries in order.
func (a ACLs) All() iter.Seq[*ACL] {
	return func(yield func(*ACL) bool) {
		for _, e := range a.s.bindings.all() {
			if !yield(e) {
				return
			}
		}
	}
}

// Len is the number of entries that can be read.
func (a ACLs) Len() int { return a.s.bindings.len() }

// Revision is the last revision that changed an entry: what was decided by an
// image of the same one is still so.
func (a ACLs) Revision() Revision { return a.s.revision }

// ErrUnreadableACL is matched by the fault of Err.
var ErrUnreadableACL = errors.New("an ACL can't be read")

// Err is not nil while there is an entry that nobody here could ever read: it may
// deny anything to anybody.
func (a ACLs) Err() error {
	if a.s.unreadable == 0 {
		return nil
	}
	for id, e := range a.s.acls.all() {
		if e.Record == nil {
			return fmt.Errorf("%w: %s: %w", ErrUnreadableACL, id, e.Fault)
		}
	}
	return ErrUnreadableACL
}

// Scram finds a user's credential.
func (i *Image) Scram(id ScramID) (*Scram, bool) {
	e, ok := i.security.scram.get(id)
	return e, ok && e.Record != nil
}

// ScramEntry finds a credential's key whether or not its value can be read: its Record may be nil.
func (i *Image) ScramEntry(id ScramID) (*Scram, bool) { return i.security.scram.get(id) }

// Scrams walks the credentials by user and mechanism.
func (i *Image) Scrams() iter.Seq[*Scram] { return readable(i.security.scram) }

// ScramsFrom walks the credentials behind that of a user and mechanism, which need not exist.
func (i *Image) ScramsFrom(user, mechanism string) iter.Seq[*Scram] {
	after := ScramID{User: user, Mechanism: mechanism}
	return func(yield func(*Scram) bool) {
		for id, e := range i.security.scram.from(after) {
			if id != after && e.Record != nil && !yield(e) {
				return
			}
		}
	}
}

// ScramsOf walks one user's credentials by mechanism.
func (i *Image) ScramsOf(user string) iter.Seq[*Scram] {
	return func(yield func(*Scram) bool) {
		for id, e := range i.security.scram.from(ScramID{User: user}) {
			if id.User != user || e.Record != nil && !yield(e) {
				return
			}
		}
	}
}

func summarizeACL(r *ACLRecord) string {
	s := r.Binding().String()
	if r.Mirror != "" {
		s += ", copied by mirror " + r.Mirror
	}
	return s
}

func summarizeScram(r *ScramRecord) string {
	s := fmt.Sprintf("user %s, %s, %d iterations", r.User, r.Mechanism, r.Iterations)
	if r.Mirror != "" {
		s += ", copied by mirror " + r.Mirror
	}
	return s
}

// withoutKeys is the record as it may be shown.
func (r *ScramRecord) withoutKeys() any {
	return struct {
		V          int    `json:"v"`
		User       string `json:"user"`
		Mechanism  string `json:"mechanism"`
		Iterations int32  `json:"iterations"`
		Keys       string `json:"keys"`
		Mirror     string `json:"mirror,omitempty"`
	}{ScramVersion, r.User, r.Mechanism, r.Iterations, Hidden, r.Mirror}
}
