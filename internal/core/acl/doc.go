// Package acl decides who may do what: Kafka's access control lists.
//
// It owns the binding (who, from where, what, on which resource, allowed or
// denied), the filter that DescribeAcls and DeleteAcls take, and the decision,
// as Kafka's StandardAuthorizer makes it: a denial goes over every
// permission, literal, prefixed and wildcard patterns all count, super users may
// do everything, and a resource without bindings is closed unless the rules say otherwise.
//
// A decision is a bounded number of look-ups, however many bindings there are:
// bindings are ordered by all of their fields (Compare), and each pattern that can
// match is looked up by itself. It never talks to anybody, keeps no cache, and
// knows nothing of connections: who asks comes in as a principal and a host.
//
// Tests: a table of cases, and a random comparison with a plain walk over all bindings.
package acl
