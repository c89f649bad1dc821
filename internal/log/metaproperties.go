package log

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// Names of a log directory's own files; both are Kafka's.
const (
	MetaPropertiesFile = "meta.properties"
	CleanShutdownFile  = ".kafka_cleanshutdown"
)

// MetaProperties is meta.properties: which cluster and which node a log
// directory belongs to. Version 1 is what Kafka 3.x and later write.
type MetaProperties struct {
	ClusterID   string
	NodeID      types.BrokerID
	DirectoryID string            // directory.id, empty in folders older than Kafka 3.7
	Other       map[string]string // lines of others, kept
}

// FormatMetaProperties gives the file's content.
func FormatMetaProperties(m MetaProperties) []byte {
	var b strings.Builder
	b.WriteString("#\n")
	fmt.Fprintf(&b, "cluster.id=%s\n", escapeProperty(m.ClusterID))
	if m.DirectoryID != "" {
		fmt.Fprintf(&b, "directory.id=%s\n", escapeProperty(m.DirectoryID))
	}
	fmt.Fprintf(&b, "node.id=%d\n", m.NodeID)
	b.WriteString("version=1\n")
	return []byte(b.String())
}

// escapeProperty writes a value so that Java's Properties reads it back.
func escapeProperty(s string) string {
	return strings.NewReplacer("\\", "\\\\", "=", "\\=", ":", "\\:", "#", "\\#", "!", "\\!", "\n", "\\n", "\r", "\\r").Replace(s)
}

// unescapeProperty undoes escapeProperty, for keys and values.
func unescapeProperty(s string) string {
	if !strings.Contains(s, "\\") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '\\' && i+1 < len(s) {
			i++
			switch c = s[i]; c {
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			case 't':
				c = '\t'
			}
		}
		b.WriteByte(c)
	}
	return b.String()
}

// ParseMetaProperties reads the file's content, versions 0 (broker.id) and 1.
func ParseMetaProperties(data []byte) (MetaProperties, error) {
	m := MetaProperties{NodeID: types.NoBroker, Other: map[string]string{}}
	version := ""
	for line := range strings.SplitSeq(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return m, fmt.Errorf("%s: line %.60q has no =", MetaPropertiesFile, line)
		}
		value = unescapeProperty(strings.TrimSpace(value))
		switch key = strings.TrimSpace(key); key {
		case "version":
			version = value
		case "cluster.id":
			m.ClusterID = value
		case "directory.id":
			m.DirectoryID = value
		case "node.id", "broker.id":
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil || n < 0 {
				return m, fmt.Errorf("%s: %s=%.20q", MetaPropertiesFile, key, value)
			}
			m.NodeID = types.BrokerID(n)
		default:
			m.Other[key] = value
		}
	}
	if version != "0" && version != "1" {
		return m, fmt.Errorf("%s: version %.20q, known are 0 and 1", MetaPropertiesFile, version)
	}
	if m.NodeID == types.NoBroker {
		return m, fmt.Errorf("%s: node.id is missing", MetaPropertiesFile)
	}
	return m, nil
}

// ReadMetaProperties reads a log directory's meta.properties; ok is false if there is none.
func ReadMetaProperties(fsys vfs.FS, dir string) (m MetaProperties, ok bool, err error) {
	name := join(dir, MetaPropertiesFile)
	b, err := vfs.ReadFile(fsys, name, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return m, false, nil
	}
	if err != nil {
		return m, false, err
	}
	if m, err = ParseMetaProperties(b); err != nil {
		return m, true, &CorruptError{File: name, Pos: -1, Reason: "unreadable", Err: err}
	}
	return m, true, nil
}

// WriteMetaProperties writes and syncs a log directory's meta.properties.
func WriteMetaProperties(fsys vfs.FS, dir string, m MetaProperties) error {
	return vfs.WriteAtomic(fsys, join(dir, MetaPropertiesFile), FormatMetaProperties(m))
}

// cleanShutdown is the content of .kafka_cleanshutdown since Kafka 3.6: the
// broker epoch of the run that ended cleanly (KIP-966). Older brokers left it empty.
type cleanShutdown struct {
	Version     int   `json:"version"`
	BrokerEpoch int64 `json:"brokerEpoch"`
}

// WriteCleanShutdown marks a log directory, all of whose logs have been closed
// without an error and whose checkpoints are written, as cleanly shut down.
func WriteCleanShutdown(fsys vfs.FS, dir string, e types.BrokerEpoch) error {
	b, err := json.Marshal(cleanShutdown{0, int64(e)})
	if err != nil {
		return err
	}
	return vfs.WriteAtomic(fsys, join(dir, CleanShutdownFile), b)
}

// TakeCleanShutdown reads the mark and removes it, synced, before anything is
// written to the directory: found says that the last run ended cleanly, epoch
// is its broker epoch, -1 if the file doesn't say. An unreadable mark counts as
// found: its name is the mark.
func TakeCleanShutdown(fsys vfs.FS, dir string) (epoch types.BrokerEpoch, found bool, err error) {
	name := join(dir, CleanShutdownFile)
	b, err := vfs.ReadFile(fsys, name, 1<<16)
	if errors.Is(err, fs.ErrNotExist) {
		return types.NoBrokerEpoch, false, nil
	}
	if err != nil {
		return types.NoBrokerEpoch, false, err
	}
	epoch = types.NoBrokerEpoch
	var c cleanShutdown
	if len(b) > 0 && json.Unmarshal(b, &c) == nil && c.Version == 0 && c.BrokerEpoch >= 0 {
		epoch = types.BrokerEpoch(c.BrokerEpoch)
	}
	if err := fsys.Remove(name); err != nil {
		return epoch, true, err
	}
	return epoch, true, fsys.SyncDir(dir)
}
