package config

import (
	"slices"
	"sync"
)

// key is one row of the tables: name, default text, rule, the field it fills.
type key struct {
	name string
	def  string
	rule rule
	bind func(*Broker) any // pointer to the field; nil for keys that special.go reads
	doc  string
	// alias says that this key only fills the field when the key named here is absent,
	// multiplied by unit (log.retention.hours → log.retention.ms).
	alias string
	unit  int64
	// Sensitive values never leave the process.
	sensitive bool
	own       bool // not a key of Kafka's
}

// tables lists all keys, group by group.
var tables = sync.OnceValue(func() []key {
	return slices.Concat(keysNode(), keysNet(), keysSecurity(), keysTopic(), keysLog(), keysFetch(), keysReplica(), keysTxn(), keysGroup(), keysMirror())
})

// keyIndex gives the tables by name.
var keyIndex = sync.OnceValue(func() map[string]key {
	m := make(map[string]key)
	for _, k := range tables() {
		m[k.name] = k
	}
	return m
})
