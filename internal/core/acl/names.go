package acl

import "fmt"

var (
	resourceNames = map[ResourceType]string{AnyResource: "ANY", Topic: "TOPIC", Group: "GROUP", Cluster: "CLUSTER",
		TransactionalID: "TRANSACTIONAL_ID", DelegationToken: "DELEGATION_TOKEN", User: "USER"}
	patternNames   = map[PatternType]string{AnyPattern: "ANY", Match: "MATCH", Literal: "LITERAL", Prefixed: "PREFIXED"}
	operationNames = map[Operation]string{AnyOperation: "ANY", All: "ALL", Read: "READ", Write: "WRITE", Create: "CREATE",
		Delete: "DELETE", Alter: "ALTER", Describe: "DESCRIBE", ClusterAction: "CLUSTER_ACTION",
		DescribeConfigs: "DESCRIBE_CONFIGS", AlterConfigs: "ALTER_CONFIGS", IdempotentWrite: "IDEMPOTENT_WRITE",
		CreateTokens: "CREATE_TOKENS", DescribeTokens: "DESCRIBE_TOKENS", TwoPhaseCommit: "TWO_PHASE_COMMIT"}
	permissionNames = map[Permission]string{AnyPermission: "ANY", Deny: "DENY", Allow: "ALLOW"}
)

// String gives Kafka's name.
func (r ResourceType) String() string { return nameOf(resourceNames, r) }

// String gives Kafka's name.
func (p PatternType) String() string { return nameOf(patternNames, p) }

// String gives Kafka's name.
func (o Operation) String() string { return nameOf(operationNames, o) }

// String gives Kafka's name.
func (p Permission) String() string { return nameOf(permissionNames, p) }

func nameOf[T ~int8](names map[T]string, code T) string {
	if name, ok := names[code]; ok {
		return name
	}
	return fmt.Sprintf("UNKNOWN(%d)", int8(code))
}

// MarshalText writes Kafka's name.
func (r ResourceType) MarshalText() ([]byte, error) { return marshal(resourceNames, r) }

// MarshalText writes Kafka's name.
func (p PatternType) MarshalText() ([]byte, error) { return marshal(patternNames, p) }

// MarshalText writes Kafka's name.
func (o Operation) MarshalText() ([]byte, error) { return marshal(operationNames, o) }

// MarshalText writes Kafka's name.
func (p Permission) MarshalText() ([]byte, error) { return marshal(permissionNames, p) }

func marshal[T ~int8](names map[T]string, code T) ([]byte, error) {
	name, ok := names[code]
	if !ok {
		return nil, fmt.Errorf("%w: code %d has no name", ErrBinding, int8(code))
	}
	return []byte(name), nil
}

// UnmarshalText reads Kafka's name.
func (r *ResourceType) UnmarshalText(b []byte) error { return unmarshal(resourceNames, b, r) }

// UnmarshalText reads Kafka's name.
func (p *PatternType) UnmarshalText(b []byte) error { return unmarshal(patternNames, b, p) }

// UnmarshalText reads Kafka's name.
func (o *Operation) UnmarshalText(b []byte) error { return unmarshal(operationNames, b, o) }

// UnmarshalText reads Kafka's name.
func (p *Permission) UnmarshalText(b []byte) error { return unmarshal(permissionNames, b, p) }

func unmarshal[T ~int8](names map[T]string, b []byte, to *T) error {
	for code, name := range names {
		if name == string(b) {
			*to = code
			return nil
		}
	}
	return fmt.Errorf("%w: %q is unknown", ErrBinding, b)
}
