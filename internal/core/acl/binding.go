package acl

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ResourceType is what a binding is about, by Kafka's codes.
type ResourceType int8

// The types of resources. Any is for filters alone.
const (
	AnyResource     ResourceType = 1
	Topic           ResourceType = 2
	Group           ResourceType = 3
	Cluster         ResourceType = 4
	TransactionalID ResourceType = 5
	DelegationToken ResourceType = 6
	User            ResourceType = 7
)

// PatternType says how a binding's resource name matches, by Kafka's codes.
type PatternType int8

// The types of patterns. AnyPattern and Match are for filters alone: Match finds
// every binding that concerns a resource of the name.
const (
	AnyPattern PatternType = 1
	Match      PatternType = 2
	Literal    PatternType = 3
	Prefixed   PatternType = 4
)

// Operation is what somebody does, by Kafka's codes.
type Operation int8

// The operations. AnyOperation is for filters alone; All in a binding stands for every one.
const (
	AnyOperation    Operation = 1
	All             Operation = 2
	Read            Operation = 3
	Write           Operation = 4
	Create          Operation = 5
	Delete          Operation = 6
	Alter           Operation = 7
	Describe        Operation = 8
	ClusterAction   Operation = 9
	DescribeConfigs Operation = 10
	AlterConfigs    Operation = 11
	IdempotentWrite Operation = 12
	CreateTokens    Operation = 13
	DescribeTokens  Operation = 14
	TwoPhaseCommit  Operation = 15
)

// Permission says whether a binding allows or denies, by Kafka's codes.
type Permission int8

// The permissions. AnyPermission is for filters alone.
const (
	AnyPermission Permission = 1
	Deny          Permission = 2
	Allow         Permission = 3
)

const (
	// Wildcard as a literal name stands for every resource of its type, as a host for every host.
	Wildcard = "*"
	// Everyone is the principal that stands for all.
	Everyone = "User:*"
	// Anonymous is who has not said who it is.
	Anonymous = "User:ANONYMOUS"
	// ClusterName is the name of the only resource of type Cluster.
	ClusterName = "kafka-cluster"
)

// textBytesMax bounds name, principal and host: what a Kafka string held before compact ones.
const textBytesMax = 1<<15 - 1

// Binding is one access control entry. It is comparable: two bindings that say the same are equal.
type Binding struct {
	Resource ResourceType
	Pattern  PatternType
	Name     string
	// Principal is TYPE:NAME, such as User:alice.
	Principal string
	// Host is an IP address, or Wildcard.
	Host       string
	Operation  Operation
	Permission Permission
}

// ErrBinding is matched by the error of a binding that can't be.
var ErrBinding = errors.New("invalid ACL")

// Validate says what is wrong with a binding; nil if it may be written.
func (b Binding) Validate() error {
	fault := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrBinding, fmt.Sprintf(format, args...))
	}
	switch {
	case b.Resource < Topic || b.Resource > User:
		return fault("resource type %d", b.Resource)
	case b.Pattern != Literal && b.Pattern != Prefixed:
		return fault("pattern type %d: a binding is literal or prefixed", b.Pattern)
	case b.Operation < All || b.Operation > TwoPhaseCommit:
		return fault("operation %d", b.Operation)
	case b.Permission != Deny && b.Permission != Allow:
		return fault("permission %d: a binding allows or denies", b.Permission)
	case b.Name == "":
		return fault("the resource name is empty")
	case b.Resource == Cluster && (b.Name != ClusterName || b.Pattern != Literal):
		return fault("the only resource of type CLUSTER is %s, literally", ClusterName)
	case b.Host == "":
		return fault("the host is empty")
	}
	if kind, name, ok := strings.Cut(b.Principal, ":"); !ok || kind == "" || name == "" {
		return fault("principal %q: it must be TYPE:NAME, such as User:alice", b.Principal)
	}
	for _, s := range []string{b.Name, b.Principal, b.Host} {
		// JSON would write another text in place of bytes that aren't UTF-8.
		if !utf8.ValidString(s) {
			return fault("%q is not UTF-8", s)
		}
		if len(s) > textBytesMax {
			return fault("a text of %d bytes; %d is the limit", len(s), textBytesMax)
		}
	}
	return nil
}

// Compare orders bindings: by resource type, pattern and name first, so that
// those of one pattern lie together, then by all else.
func Compare(a, b Binding) int {
	return cmp.Or(
		cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Pattern, b.Pattern), strings.Compare(a.Name, b.Name),
		strings.Compare(a.Principal, b.Principal), strings.Compare(a.Host, b.Host),
		cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Permission, b.Permission),
	)
}

// ID names a binding by what it says, in 43 characters of URL-safe base64: equal
// bindings have one id, whatever bytes are in them.
func (b Binding) ID() string {
	text := []byte{byte(b.Resource), byte(b.Pattern), byte(b.Operation), byte(b.Permission)}
	for _, s := range []string{b.Name, b.Principal, b.Host} {
		text = binary.AppendUvarint(text, uint64(len(s)))
		text = append(text, s...)
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// String gives a binding in one line, for logs and people.
func (b Binding) String() string {
	return fmt.Sprintf("%s %s %s on %s %s %q from %s", b.Permission, b.Principal, b.Operation, b.Pattern, b.Resource, b.Name, b.Host)
}
