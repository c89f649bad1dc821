package config

import "fmt"

// Documented is one key as the reference lists it.
type Documented struct {
	Name    string `json:"name"`
	Default string `json:"default"` // what counts without a setting; empty: nothing
	Allowed string `json:"allowed"` // in words
	Doc     string `json:"doc"`
	Own     bool   `json:"own"`   // not a key of Kafka's
	Topic   bool   `json:"topic"` // a topic's, not a node's
}

// Reference lists all keys of a node, then those of a topic, in the tables' order.
func Reference() []Documented {
	var all []Documented
	from := func(key string) string { return "of " + key }
	for _, k := range tables() {
		d := Documented{Name: k.name, Default: k.def, Allowed: k.rule.allowed(), Doc: k.doc, Own: k.own}
		if k.alias != "" {
			d.Default = from(k.alias)
		}
		all = append(all, d)
	}
	for _, k := range topicKeys() {
		d := Documented{Name: k.name, Default: k.def, Allowed: k.rule.allowed(), Doc: k.doc, Topic: true}
		if k.broker != "" {
			d.Default = from(k.broker)
		}
		all = append(all, d)
	}
	return all
}

// notThere is the end of an error about a key that there isn't: the nearest one, if
// any, and where all are listed.
func notThere(nearest string) string {
	if nearest == "" {
		return "; tidemark config keys lists them all"
	}
	return fmt.Sprintf(": did you mean %s? tidemark config keys lists them all", nearest)
}
