package consumer

import (
	"maps"
	"regexp"
	"slices"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// patterns are compiled expressions. RE2's syntax is that of KIP-848; a match is one of the whole name.
type patterns map[string]*regexp.Regexp

func compile(expression string) (*regexp.Regexp, *Refusal) {
	// Compiled by itself first: "a)(b" is no expression, though it would be one within brackets.
	re, err := regexp.Compile(expression)
	if err == nil {
		re, err = regexp.Compile(`\A(?:` + expression + `)\z`)
	}
	if err != nil {
		return nil, refuse(errcode.InvalidRegularExpression, "SubscribedTopicRegex `%s` is not a valid regular expression: %v.", expression, err)
	}
	return re, nil
}

// topicsOf gives the names that a member subscribes to, by name and by expression.
func (g *Group) topicsOf(m *Member) []string {
	r := g.regexes[m.Regex]
	if m.Regex == "" || r == nil || len(r.Topics) == 0 {
		return m.Topics
	}
	if len(m.Topics) == 0 {
		return r.Topics
	}
	all := slices.Concat(m.Topics, r.Topics)
	slices.Sort(all)
	return slices.Compact(all)
}

// Subscribes reports whether a member may read a topic.
func (g *Group) Subscribes(topic string) bool {
	for _, m := range g.members {
		if _, found := slices.BinarySearch(m.Topics, topic); found {
			return true
		}
	}
	for _, r := range g.regexes {
		if _, found := slices.BinarySearch(r.Topics, topic); found {
			return true
		}
	}
	return false
}

// subscribed gives the topics of all members that exist, in the order of their names.
func (g *Group) subscribed(topics Topics) []Topic {
	names := map[string]struct{}{}
	for _, m := range g.members {
		for _, name := range g.topicsOf(m) {
			names[name] = struct{}{}
		}
	}
	var all []Topic
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if t, ok := topics.ByName(name); ok {
			all = append(all, t)
		}
	}
	return all
}

// dropRegexes forgets expressions that no member has any more.
func (g *Group) dropRegexes() {
	used := map[string]bool{}
	for _, m := range g.members {
		used[m.Regex] = true
	}
	for _, regex := range sortedKeys(g.regexes) {
		if !used[regex] {
			g.write(RegexRecord{Regex: regex})
			delete(g.patterns, regex)
		}
	}
}

// regexRefresh is how long an expression stands for what it stood for, in milliseconds,
// if no topic comes or goes: permissions may have changed. As Kafka's.
const regexRefresh types.Millis = 600_000

// resolvesAgain reports whether a member with an expression finds the group's looked at too long ago.
func (g *Group) resolvesAgain(env Env, regex string) bool {
	return regex != "" && env.Now-g.resolvedAt >= regexRefresh
}

// resolve matches the members' expressions with the topics that there are and that the
// sender of the heartbeat may know of, as Kafka does: the permissions of whoever asks
// first when there is something new count for all of the group.
func (g *Group) resolve(env Env, sees func(topic string) bool) {
	g.resolvedAt = env.Now
	used := map[string]bool{}
	for _, m := range g.members {
		if m.Regex != "" {
			used[m.Regex] = true
		}
	}
	for _, regex := range sortedKeys(used) {
		re := g.patterns[regex]
		if re == nil {
			var refused *Refusal
			if re, refused = compile(regex); refused != nil {
				continue // it was taken by another program: it stands for what that one found
			}
			if g.patterns == nil {
				g.patterns = patterns{}
			}
			g.patterns[regex] = re
		}
		names := []string{}
		for t := range env.Topics.All() {
			if re.MatchString(t.Name) && (sees == nil || sees(t.Name)) {
				names = append(names, t.Name)
			}
		}
		if was := g.regexes[regex]; was == nil || !slices.Equal(was.Topics, names) {
			g.write(RegexRecord{Regex: regex, Value: &Resolved{Topics: names, Version: env.Topics.Version(), At: env.Wall}})
		}
	}
}
