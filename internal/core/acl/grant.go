package acl

// Grant is a set of operations on one resource.
type Grant struct {
	Resource   ResourceType
	Name       string
	Operations []Operation
}

// ProducerGrants are what a producer needs, as kafka-acls --producer gives it: to write and
// make topics, its transactional ids, and with idempotent, for clusters older than
// KIP-679, idempotent writes.
func ProducerGrants(topics, transactionalIDs []string, idempotent bool) []Grant {
	out := grantsOn(Topic, topics, Write, Describe, Create)
	out = append(out, grantsOn(TransactionalID, transactionalIDs, Write, Describe)...)
	if idempotent {
		out = append(out, Grant{Resource: Cluster, Name: ClusterName, Operations: []Operation{IdempotentWrite}})
	}
	return out
}

// ConsumerGrants are what a consumer needs, as kafka-acls --consumer gives it.
func ConsumerGrants(topics, groups []string) []Grant {
	return append(grantsOn(Topic, topics, Read, Describe), grantsOn(Group, groups, Read)...)
}

func grantsOn(resource ResourceType, names []string, ops ...Operation) []Grant {
	var out []Grant
	for _, name := range names {
		out = append(out, Grant{Resource: resource, Name: name, Operations: ops})
	}
	return out
}

// applicable lists the operations that mean something for a resource beside All.
var applicable = map[ResourceType][]Operation{
	Topic:           {Read, Write, Create, Delete, Alter, Describe, DescribeConfigs, AlterConfigs},
	Group:           {Read, Describe, Delete, DescribeConfigs, AlterConfigs},
	Cluster:         {Create, Alter, Describe, ClusterAction, DescribeConfigs, AlterConfigs, IdempotentWrite},
	TransactionalID: {Write, Describe, TwoPhaseCommit},
	DelegationToken: {Describe},
	User:            {CreateTokens, DescribeTokens},
}

// Applicable lists the operations that an entry about a resource can be of any use with.
// Kafka's brokers take others too; kafka-acls doesn't make them.
func Applicable(resource ResourceType) []Operation {
	return append([]Operation{All}, applicable[resource]...)
}
