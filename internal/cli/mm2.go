package cli

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tidemark/internal/broker/mirror"
)

// What becomes of a line of a MirrorMaker 2 configuration.
const (
	mm2Carried  = "CARRIED"
	mm2Needless = "NEEDLESS" // there is nothing that it would have to say here
	mm2Lost     = "LOST"     // it means something, and there is no counterpart
	mm2Other    = "OTHER"    // it is about another flow, or the target cluster
)

// mm2Line is one property of the file and what became of it.
type mm2Line struct {
	Line int    `json:"line"` // 0: a default of MirrorMaker's that the file doesn't say
	Key  string `json:"key"`
	Fate string `json:"fate"`
	Why  string `json:"why"`

	value string
}

// mm2Import is a MirrorMaker 2 flow as a mirror.
type mm2Import struct {
	Flow  string      `json:"flow"`
	Spec  mirror.Spec `json:"spec"`
	Lines []mm2Line   `json:"lines"`
}

// parseProperties reads a Java properties file with the number of the line that each property begins on; later ones win.
func parseProperties(text string) []mm2Line {
	var out []mm2Line
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		number := i + 1
		line := strings.TrimLeft(strings.TrimSuffix(lines[i], "\r"), " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		for oddBackslashes(line) && i+1 < len(lines) {
			i++
			line = line[:len(line)-1] + strings.TrimLeft(strings.TrimSuffix(lines[i], "\r"), " \t\f")
		}
		key, value := splitProperty(line)
		out = append(out, mm2Line{Line: number, Key: key, value: strings.TrimSpace(value)})
	}
	return out
}

func oddBackslashes(s string) bool {
	return (len(s)-len(strings.TrimRight(s, `\`)))%2 == 1
}

// splitProperty splits at the first unescaped =, : or blank, and takes escapes away.
func splitProperty(line string) (key, value string) {
	end := len(line)
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
			continue
		}
		if strings.IndexByte("=: \t\f", line[i]) >= 0 {
			end = i
			break
		}
	}
	rest := strings.TrimLeft(line[end:], " \t\f")
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = strings.TrimLeft(rest[1:], " \t\f")
	}
	return unescape(line[:end]), unescape(rest)
}

func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'r':
			b.WriteByte('\r')
		case 'u':
			if n, err := strconv.ParseUint(s[i+1:min(i+5, len(s))], 16, 32); err == nil {
				b.WriteRune(rune(n))
				i += 4
				continue
			}
			b.WriteByte('u')
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// mm2File is a configuration at work.
type mm2File struct {
	props    []mm2Line
	clusters []string
	from, to string // aliases of the flow
	spec     mirror.Spec
	err      error
}

// importMM2 makes a mirror of one flow ("a->b") of a configuration; an empty flow means the only one that is enabled.
func importMM2(file, flow, name string) (*mm2Import, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	f := &mm2File{props: parseProperties(string(text))}
	f.clusters = list(f.value("clusters"))
	if err := f.choose(flow); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	f.spec = mirror.Spec{Name: cmp.Or(name, f.from), ClientConfig: map[string]string{}, Settings: map[string]string{}}
	for i := range f.props {
		f.props[i].Fate, f.props[i].Why = f.fate(&f.props[i])
	}
	f.defaults()
	if f.err != nil {
		return nil, fmt.Errorf("%s: %w", file, f.err)
	}
	if len(f.spec.Bootstrap) == 0 {
		return nil, fmt.Errorf("%s: there is no %s.bootstrap.servers", file, f.from)
	}
	return &mm2Import{Flow: f.from + "->" + f.to, Spec: f.spec, Lines: f.props}, nil
}

// value gives a property, the last one if it is there more than once.
func (f *mm2File) value(key string) string {
	for _, p := range slices.Backward(f.props) {
		if p.Key == key {
			return p.value
		}
	}
	return ""
}

func list(s string) []string {
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// choose finds the flow.
func (f *mm2File) choose(flow string) error {
	var enabled []string
	for _, p := range f.props {
		if name, ok := strings.CutSuffix(p.Key, ".enabled"); ok && strings.Contains(name, "->") && strings.EqualFold(f.value(p.Key), "true") && !slices.Contains(enabled, name) {
			enabled = append(enabled, name)
		}
	}
	switch {
	case flow == "" && len(enabled) == 1:
		flow = enabled[0]
	case flow == "" && len(enabled) == 0:
		return fmt.Errorf("%w: no flow is enabled (a->b.enabled = true): name one with --flow", errUsage)
	case flow == "":
		return fmt.Errorf("%w: several flows are enabled, a mirror is one of them: choose with --flow among %s", errUsage, strings.Join(enabled, ", "))
	}
	from, to, ok := strings.Cut(flow, "->")
	if !ok || !slices.Contains(f.clusters, from) || !slices.Contains(f.clusters, to) {
		return fmt.Errorf("%w: flow %q: want A->B of the clusters %s", errUsage, flow, strings.Join(f.clusters, ", "))
	}
	f.from, f.to = from, to
	return nil
}

// defaults says what MirrorMaker does without being told, where a mirror does otherwise.
func (f *mm2File) defaults() {
	tell := func(key, fate, why string) {
		f.props = append(f.props, mm2Line{Key: key, Fate: fate, Why: why})
	}
	has := func(keys ...string) bool {
		return slices.ContainsFunc(f.props, func(p mm2Line) bool {
			return p.Line > 0 && slices.Contains(keys, strings.TrimPrefix(p.Key, f.from+"->"+f.to+"."))
		})
	}
	if !has("topics.exclude", "topics.blacklist") {
		f.spec.Exclude = `.*[\-.]internal|.*\.replica`
		tell("topics.exclude", mm2Carried, "MirrorMaker leaves out *.internal, *-internal and *.replica by default; topics beginning with __ are never mirrored")
	}
	if !has("groups.exclude", "groups.blacklist") {
		tell("groups.exclude", mm2Lost, "MirrorMaker leaves out console-consumer-*, connect-* and __* by default; a mirror has no list of groups to leave out, their offsets are copied too")
	}
	if !has("replication.policy.class") {
		tell("replication.policy.class", mm2Lost, "MirrorMaker renames topics to "+f.from+".TOPIC by default; a mirror keeps names, ids and offsets")
	}
	if !has("sync.topic.acls.enabled") {
		tell("sync.topic.acls.enabled", mm2Carried, "ACLs are copied by default, of groups too")
	}
}

// expression joins MirrorMaker's list of Java expressions into one in RE2.
func (f *mm2File) expression(p *mm2Line) (string, error) {
	parts := list(p.value)
	for i, part := range parts {
		if _, err := regexp.Compile(part); err != nil {
			return "", fmt.Errorf("line %d: %s: %q is a Java expression that RE2 doesn't know: %w; say it otherwise with --topics, --exclude or --groups", p.Line, p.Key, part, err)
		}
		if len(parts) > 1 {
			parts[i] = "(?:" + part + ")"
		}
	}
	return strings.Join(parts, "|"), nil
}
