package mirror

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/source"
)

// settingFields are the settings that a mirror may have of its own, over the node's.
var settingFields = map[string]func(to, from *config.Mirror){
	"gap.policy":                        func(to, from *config.Mirror) { to.GapPolicy = from.GapPolicy },
	"mirror.epoch.headroom":             func(to, from *config.Mirror) { to.EpochHeadroom = from.EpochHeadroom },
	"mirror.promotion.step":             func(to, from *config.Mirror) { to.PromotionStep = from.PromotionStep },
	"mirror.metadata.refresh.ms":        func(to, from *config.Mirror) { to.MetadataRefreshMs = from.MetadataRefreshMs },
	"mirror.group.sync.ms":              func(to, from *config.Mirror) { to.GroupSyncMs = from.GroupSyncMs },
	"mirror.config.sync.ms":             func(to, from *config.Mirror) { to.ConfigSyncMs = from.ConfigSyncMs },
	"mirror.config.exclude":             func(to, from *config.Mirror) { to.ConfigExclude = from.ConfigExclude },
	"mirror.acl.sync.ms":                func(to, from *config.Mirror) { to.ACLSyncMs = from.ACLSyncMs },
	"mirror.acl.include":                func(to, from *config.Mirror) { to.ACLInclude = from.ACLInclude },
	"mirror.acl.exclude":                func(to, from *config.Mirror) { to.ACLExclude = from.ACLExclude },
	"mirror.scram.sync.ms":              func(to, from *config.Mirror) { to.ScramSyncMs = from.ScramSyncMs },
	"mirror.throttle.bytes.per.second":  func(to, from *config.Mirror) { to.ThrottleBytesPerSec = from.ThrottleBytesPerSec },
	"mirror.fetch.max.bytes":            func(to, from *config.Mirror) { to.FetchMaxBytes = from.FetchMaxBytes },
	"mirror.partition.fetch.bytes":      func(to, from *config.Mirror) { to.PartitionFetchBytes = from.PartitionFetchBytes },
	"mirror.fetch.min.bytes":            func(to, from *config.Mirror) { to.FetchMinBytes = from.FetchMinBytes },
	"mirror.fetch.max.wait.ms":          func(to, from *config.Mirror) { to.FetchMaxWaitMs = from.FetchMaxWaitMs },
	"mirror.fetchers.per.source.broker": func(to, from *config.Mirror) { to.FetchersPerSource = from.FetchersPerSource },
	"mirror.inflight.max.bytes":         func(to, from *config.Mirror) { to.MaxInflightBytes = from.MaxInflightBytes },
	"mirror.request.timeout.ms":         func(to, from *config.Mirror) { to.RequestTimeoutMs = from.RequestTimeoutMs },
	"mirror.retry.backoff.ms":           func(to, from *config.Mirror) { to.RetryBackoffMs = from.RetryBackoffMs },
	"mirror.retry.backoff.max.ms":       func(to, from *config.Mirror) { to.RetryBackoffMaxMs = from.RetryBackoffMaxMs },
	"mirror.verify.interval.ms":         func(to, from *config.Mirror) { to.VerifyIntervalMs = from.VerifyIntervalMs },
	"mirror.verify.bytes.per.second":    func(to, from *config.Mirror) { to.VerifyBytesPerSec = from.VerifyBytesPerSec },
	"mirror.watch.source.ms":            func(to, from *config.Mirror) { to.WatchSourceMs = from.WatchSourceMs },
	"mirror.kip1279.enable":             func(to, from *config.Mirror) { to.KIP1279 = from.KIP1279 },
	"mirror.replication.factor":         func(to, from *config.Mirror) { to.ReplicationFactor = from.ReplicationFactor },
}

// settingsOf lays a mirror's own settings over the node's. With an error the node's are given.
func settingsOf(node config.Mirror, own map[string]string) (*config.Mirror, error) {
	out := node
	settings := make([]config.Setting, 0, len(own))
	for _, key := range slices.Sorted(maps.Keys(own)) {
		if settingFields[key] == nil {
			return &node, fmt.Errorf("%w: %s is not a setting of a mirror; those are %s", ErrSpec, key, strings.Join(slices.Sorted(maps.Keys(settingFields)), ", "))
		}
		settings = append(settings, config.Setting{Key: key, Value: own[key], Source: config.SourceFlag})
	}
	resolved, _, err := config.Resolve(settings)
	if err != nil {
		return &node, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	for key := range own {
		settingFields[key](&out, &resolved.Mirror)
	}
	if _, err := newACLFilter(out.ACLInclude, out.ACLExclude); err != nil {
		return &node, err
	}
	return &out, nil
}

// filter says which topics and groups a mirror copies. The zero value copies nothing.
type filter struct {
	topics, exclude, groups *regexp.Regexp
	forks                   bool // the expression of topics names those of drills
}

// newFilter compiles a mirror's RE2 expressions, which match whole names.
func newFilter(rec *meta.MirrorRecord) (*filter, error) {
	compile := func(what, expr, otherwise string) (*regexp.Regexp, error) {
		if expr == "" {
			expr = otherwise
		}
		if _, err := regexp.Compile(expr); err != nil {
			return nil, fmt.Errorf("%w: %s: %q is not an RE2 expression: %w", ErrSpec, what, expr, err)
		}
		return regexp.Compile("^(?:" + expr + ")$")
	}
	const everything, nothing = ".*", "[^\\s\\S]"
	f := &filter{forks: strings.Contains(strings.ReplaceAll(rec.Topics, "\\", ""), core.DrillPrefix)}
	var err error
	if f.topics, err = compile("topics", rec.Topics, everything); err != nil {
		return nil, err
	}
	if f.exclude, err = compile("exclude", rec.Exclude, nothing); err != nil {
		return nil, err
	}
	f.groups, err = compile("groups", rec.Groups, everything)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// topic reports whether a topic is mirrored; those of a cluster's own never are.
func (f *filter) topic(name string) bool {
	return f.topics != nil && !strings.HasPrefix(name, "__") && f.topics.MatchString(name) && !f.exclude.MatchString(name)
}

// leavesOut reports whether a topic is one of a drill of another Tidemark cluster: a
// rehearsal's copy of what is mirrored anyway. It is mirrored only where the
// expression of topics says "drill." itself. Elsewhere such a name means nothing.
func (f *filter) leavesOut(md *source.Metadata, name string) bool {
	return md.Tidemark && !f.forks && core.IsForkName(name)
}

// group reports whether a group's offsets are mirrored.
func (f *filter) group(name string) bool { return f.groups != nil && f.groups.MatchString(name) }
