package config

import "slices"

// EntrySource is where a described value comes from, with DescribeConfigs' numbers (KIP-226).
type EntrySource int8

// The sources that this broker has.
const (
	EntryTopic          EntrySource = 1
	EntryDynamicBroker  EntrySource = 2
	EntryDynamicDefault EntrySource = 3
	EntryStaticBroker   EntrySource = 4
	EntryDefault        EntrySource = 5
)

// Entry is one config as DescribeConfigs shows it.
type Entry struct {
	Name      string
	Value     string // empty for sensitive ones
	Source    EntrySource
	Kind      Kind
	ReadOnly  bool
	Sensitive bool
	Doc       string
	Synonyms  []Synonym // the value's origins, the one that counts first
}

// Synonym is one place that gives a value to a config.
type Synonym struct {
	Name   string
	Value  string
	Source EntrySource
}

// DescribeTopic lists all configs of a topic, by name, with their sources.
func (b *Broker) DescribeTopic(configs map[string]string) []Entry {
	index := keyIndex()
	var out []Entry
	for _, k := range topicKeys() {
		e := Entry{Name: k.name, Kind: k.rule.kind, Doc: k.doc}
		if v, ok := configs[k.name]; ok {
			e.Synonyms = append(e.Synonyms, Synonym{Name: k.name, Value: v, Source: EntryTopic})
		}
		if k.broker != "" {
			e.Synonyms = append(e.Synonyms, b.synonyms(index[k.broker])...)
		} else {
			e.Synonyms = append(e.Synonyms, Synonym{Name: k.name, Value: k.def, Source: EntryDefault})
		}
		e.Value, e.Source = e.Synonyms[0].Value, e.Synonyms[0].Source
		out = append(out, e)
	}
	slices.SortFunc(out, byName)
	return out
}

// DescribeBroker lists the node's keys, by name. None can be changed at run time, so all are read-only.
func (b *Broker) DescribeBroker() []Entry {
	var out []Entry
	for _, k := range tables() {
		if k.alias != "" {
			if _, set := b.settings[k.name]; !set {
				continue
			}
		}
		e := Entry{Name: k.name, Kind: k.rule.kind, Doc: k.doc, ReadOnly: true, Sensitive: k.sensitive, Synonyms: b.synonyms(k)}
		e.Value, e.Source = e.Synonyms[0].Value, e.Synonyms[0].Source
		if k.sensitive {
			e.Value, e.Synonyms = "", nil
		}
		out = append(out, e)
	}
	slices.SortFunc(out, byName)
	return out
}

func byName(a, b Entry) int {
	if a.Name < b.Name {
		return -1
	}
	if a.Name > b.Name {
		return 1
	}
	return 0
}

// synonyms lists what gives a broker key its value: the setting or its alias, then the default.
func (b *Broker) synonyms(k key) []Synonym {
	var out []Synonym
	if s := b.text(k); s.Source != SourceDefault {
		out = append(out, Synonym{Name: s.Key, Value: s.Value, Source: EntryStaticBroker})
	}
	if k.def != "" || len(out) == 0 {
		out = append(out, Synonym{Name: k.name, Value: k.def, Source: EntryDefault})
	}
	return out
}
