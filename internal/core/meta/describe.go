package meta

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Description is what an image holds, for people and scripts to read: the
// entries in order of their keys. Secrets are hidden. It becomes JSON as it is.
type Description struct {
	ClusterID string           `json:"clusterId"`
	Revision  Revision         `json:"revision"`
	Entries   []DescribedEntry `json:"entries"`
}

// DescribedEntry is one key of a Description.
type DescribedEntry struct {
	// Key is relative to the cluster's root.
	Key      string   `json:"key"`
	Created  Revision `json:"created,omitempty"`
	Modified Revision `json:"modified,omitempty"`
	// Record is the value, nil if it can't be read.
	Record any `json:"record,omitempty"`
	// Fault says why the value can't be read.
	Fault string `json:"fault,omitempty"`
	// Summary is the value in one line.
	Summary string `json:"-"`
}

// Describe lists what an image holds below a prefix of the cluster's root,
// such as "partitions/"; everything with an empty one.
func Describe(i *Image, prefix string) Description {
	d := &describer{keys: i.keys, prefix: prefix}
	addSingle(d, i.keys.Cluster(), i.cluster, summarizeCluster)
	addSingle(d, i.keys.Features(), i.features, func(r *FeaturesRecord) string { return summarizeLevels(r.Levels) })
	for id, e := range i.nodes.all() {
		add(d, i.keys.Node(id), e, summarizeNode)
	}
	for id, e := range i.brokers.all() {
		add(d, i.keys.Broker(id), e, summarizeBroker)
	}
	for id, e := range i.brokerConfigs.all() {
		add(d, i.keys.BrokerConfig(id), e, func(r *BrokerConfigRecord) string { return summarizeMap(r.Configs) })
	}
	addSingle(d, i.keys.Controller(), i.controller, func(r *ControllerRecord) string {
		return fmt.Sprintf("broker %d, epoch %d", r.Broker, r.BrokerEpoch)
	})
	for name, e := range i.mirrors.all() {
		add(d, i.keys.Mirror(name), e, summarizeMirror)
	}
	for name, e := range i.drills.all() {
		add(d, i.keys.Drill(name), e, summarizeDrill)
	}
	for name, e := range i.names.all() {
		add(d, i.keys.Name(name), e, func(r *NameRecord) string { return r.ID.String() })
	}
	for id, e := range i.partitions.all() {
		add(d, i.keys.Partition(id.Topic, id.Number), e, summarizePartition)
	}
	addSingle(d, i.keys.ProducerIDs(), i.producerIDs, func(r *ProducerIDsRecord) string {
		return fmt.Sprintf("range %d, next %d, last taken by broker %d", r.High, r.Next, r.Broker)
	})
	for id, e := range i.reports.all() {
		add(d, i.keys.Report(id), e, func(r *ReportRecord) string { return fmt.Sprintf("%d logs, epoch %d", len(r.Logs), r.BrokerEpoch) })
	}
	for id, e := range i.topics.all() {
		add(d, i.keys.Topic(id), e, summarizeTopic)
	}
	for id, e := range i.security.acls.all() {
		add(d, i.keys.ACLByID(id), e, summarizeACL)
	}
	for id, e := range i.security.scram.all() {
		add(d, i.keys.Scram(id), e, summarizeScram)
	}
	for f := range i.Faults() {
		d.addFault(f)
	}
	slices.SortFunc(d.entries, func(a, b DescribedEntry) int { return strings.Compare(a.Key, b.Key) })
	return Description{ClusterID: i.clusterID, Revision: i.revision, Entries: d.entries}
}

type describer struct {
	keys    Keys
	prefix  string
	entries []DescribedEntry
}

// add describes one entry.
func add[ID comparable, R any](d *describer, key string, e *Entry[ID, R], summarize func(*R) string) {
	out := DescribedEntry{Key: strings.TrimPrefix(key, d.keys.Root()), Created: e.CreateRevision, Modified: e.ModRevision}
	if !strings.HasPrefix(out.Key, d.prefix) {
		return
	}
	if e.Fault != nil {
		out.Fault, out.Summary = e.Fault.Error(), "unreadable: "+e.Fault.Error()
	} else {
		out.Record, out.Summary = withoutSecrets(e.Record), summarize(e.Record)
	}
	d.entries = append(d.entries, out)
}

func addSingle[R any](d *describer, key string, e *Entry[struct{}, R], summarize func(*R) string) {
	if e != nil {
		add(d, key, e, summarize)
	}
}

// addFault adds a key that isn't in its place because even the key can't be read.
func (d *describer) addFault(f *ValueError) {
	key := strings.TrimPrefix(f.Key, d.keys.Root())
	known := slices.ContainsFunc(d.entries, func(e DescribedEntry) bool { return e.Key == key })
	if !known && strings.HasPrefix(key, d.prefix) {
		d.entries = append(d.entries, DescribedEntry{Key: key, Fault: f.Error(), Summary: "unreadable: " + f.Error()})
	}
}

// Hidden stands where a secret was.
const Hidden = "[hidden]"

var secretWords = []string{"password", "secret", "jaas", "token", "ssl.keystore.key", "credential"}

// isSecret reports whether the property of this name may hold a secret.
func isSecret(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(secretWords, func(w string) bool { return strings.Contains(name, w) })
}

// withoutSecrets copies a record if it holds secrets, and hides them.
func withoutSecrets(record any) any {
	switch r := record.(type) {
	case *MirrorRecord:
		c := *r
		c.ClientConfig, c.Settings = hideSecrets(r.ClientConfig), hideSecrets(r.Settings)
		return &c
	case *ScramRecord:
		return r.withoutKeys()
	case *BrokerConfigRecord:
		c := *r
		c.Configs = hideSecrets(r.Configs)
		return &c
	}
	return record
}

func hideSecrets(configs map[string]string) map[string]string {
	out := maps.Clone(configs)
	for name := range out {
		if isSecret(name) {
			out[name] = Hidden
		}
	}
	return out
}

func summarizeMap(m map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		value := m[name]
		if isSecret(name) {
			value = Hidden
		}
		parts = append(parts, name+"="+value)
	}
	return strings.Join(parts, " ")
}

func summarizeCluster(r *ClusterRecord) string {
	s := "cluster " + r.ID
	if r.Restore != nil {
		s += fmt.Sprintf(" restored from revision %d", r.Restore.Revision)
	}
	return s
}

func summarizeLevels(levels map[string]int16) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(levels)) {
		parts = append(parts, fmt.Sprintf("%s=%d", name, levels[name]))
	}
	return strings.Join(parts, " ")
}

func summarizeNode(r *NodeRecord) string {
	if len(r.Directories) == 0 {
		return "waits for a new folder"
	}
	return "folders " + strings.Join(r.Directories, ",")
}

func summarizeBroker(r *BrokerRecord) string {
	var at []string
	for _, e := range r.Endpoints {
		at = append(at, fmt.Sprintf("%s://%s:%d", e.Listener, e.Host, e.Port))
	}
	s := fmt.Sprintf("%s folder %s", strings.Join(at, ","), r.DirectoryID)
	if r.Rack != "" {
		s += " rack " + r.Rack
	}
	if r.CleanShutdownEpoch >= 0 {
		s += fmt.Sprintf(" clean since epoch %d", r.CleanShutdownEpoch)
	}
	return s
}

func summarizeTopic(r *TopicRecord) string {
	s := fmt.Sprintf("%s, %d partitions", r.Name, r.Partitions)
	if r.Internal {
		s += ", internal"
	}
	if r.Drill != nil {
		s += ", of drill " + r.Drill.Name
	}
	if len(r.Configs) > 0 {
		s += ": " + summarizeMap(r.Configs)
	}
	return s
}

func summarizeMirror(r *MirrorRecord) string {
	s := fmt.Sprintf("%s from %s", r.Want, strings.Join(r.Bootstrap, ","))
	if r.SourceClusterID != "" {
		s += " cluster " + r.SourceClusterID
	}
	if r.Topics != "" {
		s += " topics " + r.Topics
	}
	if r.Exclude != "" {
		s += " exclude " + r.Exclude
	}
	return s
}

func summarizePartition(r *PartitionRecord) string {
	var b strings.Builder
	fmt.Fprintf(&b, "leader %d epoch %d replicas %v isr %v", r.Leader, r.LeaderEpoch, r.Replicas, r.ISRIDs())
	if len(r.ELR) > 0 {
		fmt.Fprintf(&b, " elr %v", r.ELRIDs())
	}
	if r.Restored {
		b.WriteString(" restored")
	}
	if r.Writable {
		b.WriteString(" writable")
	} else if r.Fence != nil {
		fmt.Fprintf(&b, " fenced by %s", r.Fence.ClusterID)
	} else {
		b.WriteString(" read-only")
	}
	for _, e := range r.Timelines {
		fmt.Fprintf(&b, " %s@%d:%d", e.ID, e.FirstEpoch, e.FirstOffset)
	}
	if m := r.Mirror; m != nil {
		fmt.Fprintf(&b, " mirror %s %s", m.Name, m.State)
		if m.Reason != "" {
			fmt.Fprintf(&b, " (%s)", m.Reason)
		}
		fmt.Fprintf(&b, " source %d-%d", m.SourceStart, m.SourceEnd)
	}
	if n := len(r.Promotions); n > 0 {
		fmt.Fprintf(&b, " promoted %d times, last to epoch %d", n, r.Promotions[n-1].PromotedEpoch)
	}
	return b.String()
}

// Table gives the description as aligned lines, one for each key.
func (d Description) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cluster %s at revision %d\n\n", d.ClusterID, d.Revision)
	rows := [][3]string{{"KEY", "REVISION", "VALUE"}}
	for _, e := range d.Entries {
		rows = append(rows, [3]string{e.Key, fmt.Sprint(e.Modified), e.Summary})
	}
	var width [2]int
	for _, row := range rows {
		for c := range width {
			width[c] = max(width[c], utf8.RuneCountInString(row[c]))
		}
	}
	for _, row := range rows {
		line := fmt.Sprintf("%-*s  %-*s  %s", width[0], row[0], width[1], row[1], row[2])
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}
