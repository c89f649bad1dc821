package config

import (
	"slices"
	"strings"
)

// topicKeyOf finds a topic config by name.
func topicKeyOf(name string) (topicKey, bool) {
	i := slices.IndexFunc(topicKeys(), func(k topicKey) bool { return k.name == name })
	if i < 0 {
		return topicKey{}, false
	}
	return topicKeys()[i], true
}

// IsTopicConfig reports whether a topic can have this config.
func IsTopicConfig(name string) bool {
	_, ok := topicKeyOf(name)
	return ok
}

// IsTopicList reports whether the topic config is a list, to which
// IncrementalAlterConfigs can append and from which it can subtract.
func IsTopicList(name string) bool {
	k, ok := topicKeyOf(name)
	return ok && (k.rule.kind == KindList || strings.HasSuffix(name, ".throttled.replicas"))
}

// TopicText gives the effective text of one topic config: the topic's own or the broker's default.
func (b *Broker) TopicText(configs map[string]string, name string) string {
	if v, ok := configs[name]; ok {
		return v
	}
	k, ok := topicKeyOf(name)
	switch {
	case !ok:
		return ""
	case k.broker != "":
		return b.text(keyIndex()[k.broker]).Value
	default:
		return k.def
	}
}

// EditList adds members to a list's text, or takes them out, each once.
func EditList(list, members string, add bool) string {
	out := splitList(list)
	for _, m := range splitList(members) {
		switch i := slices.Index(out, m); {
		case add && i < 0:
			out = append(out, m)
		case !add && i >= 0:
			out = slices.Delete(out, i, i+1)
		}
	}
	return strings.Join(out, ",")
}
