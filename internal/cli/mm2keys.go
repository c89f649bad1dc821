package cli

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"tidemark/internal/config"
	"tidemark/internal/source"
)

// fate decides what becomes of one property, and takes over what it says.
func (f *mm2File) fate(p *mm2Line) (fate, why string) {
	key := p.Key
	if key == "clusters" || strings.HasSuffix(key, ".enabled") && strings.Contains(key, "->") {
		if key != "clusters" && !strings.HasPrefix(key, f.from+"->"+f.to+".") {
			return mm2Other, "of another flow: a mirror on that flow's target cluster"
		}
		return mm2Carried, "chooses the flow"
	}
	if flow, rest, ok := strings.Cut(key, "."); ok && strings.Contains(flow, "->") {
		if flow != f.from+"->"+f.to {
			return mm2Other, "of another flow"
		}
		return f.flowKey(p, rest)
	}
	for _, alias := range f.clusters {
		if rest, ok := strings.CutPrefix(key, alias+"."); ok {
			return f.clusterKey(p, alias, rest)
		}
	}
	if f.value(f.from+"->"+f.to+"."+key) != "" {
		return mm2Other, "the flow says it for itself"
	}
	return f.flowKey(p, key)
}

// clusterKey is a property of a cluster: the source's client's, or the target's.
func (f *mm2File) clusterKey(p *mm2Line, alias, key string) (fate, why string) {
	if alias != f.from {
		return mm2Needless, "the target is this cluster itself"
	}
	if key == "bootstrap.servers" {
		f.spec.Bootstrap = list(p.value)
		return mm2Carried, "the source's addresses"
	}
	role := ""
	for _, r := range []string{"producer.", "consumer.", "admin."} {
		if rest, ok := strings.CutPrefix(key, r); ok {
			role, key = r, rest
		}
	}
	if role == "producer." {
		return mm2Needless, "a mirror never writes to its source"
	}
	return f.clientKey(p, key)
}

// clientKey is a property of the source's client.
func (f *mm2File) clientKey(p *mm2Line, key string) (fate, why string) {
	cfg, err := source.NewConfig([]string{"placeholder:9092"}, map[string]string{key: p.value})
	known := strings.HasPrefix(key, "sasl.") || strings.HasPrefix(key, "ssl.") || key == "security.protocol"
	switch {
	case err == nil && len(cfg.Unused) > 0:
		return mm2Lost, "the client of a mirror has no such property"
	case err != nil && !known:
		return mm2Lost, err.Error()
	}
	f.spec.ClientConfig[key] = p.value // what belongs together is checked at the end
	return mm2Carried, "client property " + key
}

// mm2Seconds are intervals in seconds that become settings in milliseconds.
var mm2Seconds = map[string]string{
	"refresh.topics.interval.seconds":     "mirror.metadata.refresh.ms",
	"sync.group.offsets.interval.seconds": "mirror.group.sync.ms",
	"sync.topic.configs.interval.seconds": "mirror.config.sync.ms",
}

// mm2Prefixes are properties that mean nothing to a mirror, by how they begin.
var mm2Prefixes = []struct{ prefix, fate, why string }{
	{"emit.heartbeats", mm2Needless, "no heartbeats: lag and health are in mirror status and metrics"},
	{"heartbeats.", mm2Needless, "no heartbeats: lag and health are in mirror status and metrics"},
	{"emit.checkpoints", mm2Needless, "offsets are the same on both sides: nothing is translated"},
	{"checkpoints.", mm2Needless, "offsets are the same on both sides: nothing is translated"},
	{"offset-syncs.", mm2Needless, "offsets are the same on both sides: nothing is translated"},
	{"offset.lag.max", mm2Needless, "offsets are the same on both sides: nothing is translated"},
	{"emit.offset-syncs", mm2Needless, "offsets are the same on both sides: nothing is translated"},
	{"refresh.groups", mm2Needless, "groups are looked for with every sync of offsets"},
	{"refresh.topics.enabled", mm2Lost, "a mirror always looks for new topics and partitions"},
	{"replication.policy.separator", mm2Needless, "names stay as they are"},
	{"replication.policy.internal", mm2Needless, "names stay as they are"},
	{"tasks.max", mm2Needless, "every node copies the partitions that it leads; mirror.fetchers.per.source.broker is the nearest"},
	{"dedicated.mode", mm2Needless, "there is no Connect"},
	{"exactly.once", mm2Needless, "batches are copied as they are, once"},
	{"header.converter", mm2Needless, "records aren't converted"},
	{"key.converter", mm2Needless, "records aren't converted"},
	{"value.converter", mm2Needless, "records aren't converted"},
	{"transforms", mm2Lost, "records are copied byte for byte and can't be transformed"},
	{"predicates", mm2Lost, "records are copied byte for byte and can't be filtered"},
	{"config.storage", mm2Needless, "there is no Connect"},
	{"offset.storage", mm2Needless, "there is no Connect"},
	{"status.storage", mm2Needless, "there is no Connect"},
	{"offset.flush", mm2Needless, "there is no Connect"},
	{"listeners", mm2Needless, "there is no Connect"},
	{"rest.", mm2Needless, "there is no Connect"},
	{"plugin.", mm2Needless, "there is no Connect"},
	{"connector.", mm2Needless, "there is no Connect"},
	{"name", mm2Needless, "there is no Connect"},
	{"metric", mm2Needless, "metrics are at /metrics"},
	{"producer.", mm2Needless, "the target is this cluster itself"},
	{"target.", mm2Needless, "the target is this cluster itself"},
}

// flowKey is a property of the flow, or of all flows.
func (f *mm2File) flowKey(p *mm2Line, key string) (fate, why string) {
	if to, ok := mm2Seconds[key]; ok {
		return f.seconds(p, to)
	}
	switch key {
	case "topics":
		return f.expressionKey(p, &f.spec.Topics)
	case "topics.exclude", "topics.blacklist":
		return f.expressionKey(p, &f.spec.Exclude)
	case "groups":
		if f.spec.Groups != "" {
			return mm2Needless, "no group's offsets are copied"
		}
		return f.expressionKey(p, &f.spec.Groups)
	case "groups.exclude", "groups.blacklist":
		return mm2Lost, "a mirror has no list of groups to leave out: narrow --groups instead"
	case "replication.factor":
		if p.value == "-1" {
			return mm2Needless, "the target's default is one replica on each live broker, at most three"
		}
		return f.setting("mirror.replication.factor", p.value)
	case "config.properties.exclude", "config.properties.blacklist":
		return f.setting("mirror.config.exclude", strings.Join(append(list(p.value), config.Default().Mirror.ConfigExclude...), ","))
	case "replication.policy.class":
		if strings.HasSuffix(p.value, "IdentityReplicationPolicy") {
			return mm2Carried, "names stay as they are"
		}
		return mm2Lost, "topics aren't renamed: a mirror keeps names, ids and offsets, so its cluster can't have others of these names"
	case "sync.group.offsets.enabled":
		if strings.EqualFold(p.value, "false") {
			f.spec.Groups = `[^\s\S]`
			return mm2Carried, "no group's offsets are copied"
		}
		return mm2Carried, "group offsets are copied into groups without members here"
	case "sync.topic.configs.enabled":
		if strings.EqualFold(p.value, "false") {
			return mm2Lost, "topic configs are always copied; mirror.config.exclude leaves some out"
		}
		return mm2Carried, "topic configs are copied"
	case "sync.topic.acls.enabled":
		if strings.EqualFold(p.value, "false") {
			return f.setting("mirror.acl.sync.ms", "-1")
		}
		return mm2Carried, "ACLs are copied, of groups too, and WRITE as it is: mirrored topics are read-only until the failover"
	}
	for _, known := range mm2Prefixes {
		if strings.HasPrefix(key, known.prefix) {
			return known.fate, known.why
		}
	}
	for _, prefix := range []string{"source.consumer.", "source.admin.", "source.", "consumer.", "admin."} {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			if rest == "cluster.alias" {
				return mm2Needless, "names stay as they are"
			}
			return f.clientKey(p, rest)
		}
	}
	if strings.HasPrefix(key, "security.") || strings.HasPrefix(key, "sasl.") || strings.HasPrefix(key, "ssl.") {
		return f.clientKey(p, key)
	}
	return mm2Lost, "unknown to a mirror"
}

func (f *mm2File) expressionKey(p *mm2Line, to *string) (fate, why string) {
	e, err := f.expression(p)
	if err != nil {
		if f.err == nil {
			f.err = err
		}
		return mm2Lost, err.Error()
	}
	*to = e
	return mm2Carried, "as " + e
}

func (f *mm2File) setting(key, value string) (fate, why string) {
	f.spec.Settings[key] = value
	return mm2Carried, key + "=" + value
}

// seconds takes an interval over; MirrorMaker's "never" (below 0) has no counterpart.
func (f *mm2File) seconds(p *mm2Line, to string) (fate, why string) {
	n, err := strconv.ParseInt(p.value, 10, 64)
	switch {
	case err != nil:
		return mm2Lost, "not a number"
	case n <= 0:
		return mm2Lost, to + " can't be switched off"
	}
	return f.setting(to, strconv.FormatInt(n*1000, 10))
}

type mirrorImportMM2Cmd struct {
	Target
	File    string  `arg:"" help:"MirrorMaker 2's properties file (connect-mirror-maker.properties)." type:"existingfile"`
	Flow    string  `help:"The flow, A->B, whose target this cluster is; default: the only one that is enabled." placeholder:"A->B"`
	Name    string  `help:"The mirror's name; default: the source's alias." placeholder:"NAME"`
	Topics  *string `help:"Instead of the file's topics." placeholder:"RE"`
	Exclude *string `help:"Instead of the file's topics.exclude." placeholder:"RE"`
	Groups  *string `help:"Instead of the file's groups." placeholder:"RE"`
	Start   bool    `help:"Start the mirror too."`
	DryRun  bool    `help:"Only show the mirror and what can't carry over."`
	Yes     bool    `short:"y" help:"Don't ask."`
}

// Run shows what becomes of each line, and makes the mirror.
func (c *mirrorImportMM2Cmd) Run(ctx context.Context, s Streams) error {
	if err := askable(s, c.Yes || c.DryRun); err != nil {
		return err
	}
	imp, err := importMM2(c.File, c.Flow, c.Name)
	if err != nil {
		return err
	}
	for _, o := range []struct {
		given *string
		to    *string
	}{{c.Topics, &imp.Spec.Topics}, {c.Exclude, &imp.Spec.Exclude}, {c.Groups, &imp.Spec.Groups}} {
		if o.given != nil {
			*o.to = *o.given
		}
	}
	shown := *imp
	shown.Spec.ClientConfig = source.Redact(imp.Spec.ClientConfig)
	if err := c.print(s.Out, shown, func() table { return mm2Table(imp) }); err != nil {
		return err
	}
	fmt.Fprintf(s.Err, "flow %s becomes mirror %s: source %s, topics %s, exclude %s, groups %s, %d settings, %d client properties; %d lines can't carry over\n",
		imp.Flow, imp.Spec.Name, strings.Join(imp.Spec.Bootstrap, ","), orDash(imp.Spec.Topics), orDash(imp.Spec.Exclude), orDash(imp.Spec.Groups),
		len(imp.Spec.Settings), len(imp.Spec.ClientConfig), imp.lost())
	if err := imp.Spec.Check(config.Default().Mirror); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if c.DryRun {
		return nil
	}
	cl, err := c.client()
	if err != nil {
		return err
	}
	if err := nameIsFree(ctx, cl, imp.Spec.Name); err != nil {
		return err
	}
	if err := confirm(s, c.Yes, "This makes mirror "+imp.Spec.Name+" as said. Stop MirrorMaker's flow first: both would write the same topics.", imp.Spec.Name); err != nil {
		return err
	}
	st, err := cl.Create(ctx, imp.Spec)
	if err == nil && c.Start {
		st, err = cl.Verb(ctx, imp.Spec.Name, "start")
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(s.Err, headline(st))
	return nil
}

func (i *mm2Import) lost() (n int) {
	for _, l := range i.Lines {
		if l.Fate == mm2Lost {
			n++
		}
	}
	return n
}

// secretKey tells properties whose value may be a secret; the table shows names only.
var secretKey = regexp.MustCompile(`password|secret|jaas|key\.store|keystore\.key|token`)

func mm2Table(i *mm2Import) table {
	out := table{columns: []string{"LINE", "PROPERTY", "FATE", "WHY"}}
	for _, l := range i.Lines {
		line := "default"
		if l.Line > 0 {
			line = strconv.Itoa(l.Line)
		}
		why := l.Why
		if secretKey.MatchString(strings.ToLower(l.Key)) && l.Fate == mm2Carried {
			why = "client property, its value isn't shown"
		}
		out.rows = append(out.rows, []string{line, l.Key, l.Fate, why})
	}
	return out
}
