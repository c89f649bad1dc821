package control

import (
	"fmt"
	"slices"
	"strings"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// foldersOf lists the data folders that a registration names.
func foldersOf(b *meta.BrokerRecord) []string {
	if len(b.Directories) > 0 {
		return b.Directories
	}
	return []string{b.DirectoryID}
}

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

// MayJoin refuses a node whose id is another's: one that is registered now, or
// one that holds replicas and is known with other data folders. A folder that was
// lost with its machine gives its id to a new one by ReplaceNode alone, so that a disk that
// was not mounted, or a typing error, never makes an empty log pass for a full one.
func MayJoin(image *meta.Image, id types.BrokerID, folders []string) error {
	if old, ok := image.BrokerEntry(id); ok {
		if err := mayEnd(old, id, folders); err != nil {
			return err
		}
	}
	entry, ok := image.NodeEntry(id)
	switch {
	case !ok:
		return nil
	case entry.Record == nil:
		return fmt.Errorf("node id %d: %w: %w", id, ErrUnreadable, entry.Fault)
	}
	n := entry.Record
	if overlap(folders, n.Replaced) {
		return fmt.Errorf("node id %d: %w: this data folder (%s) was the node's before it was replaced; start it with another node id, or empty the folder",
			id, ErrNodeReplaced, strings.Join(folders, ", "))
	}
	if len(n.Directories) == 0 || overlap(folders, n.Directories) {
		return nil
	}
	if held, _ := holds(image, id); held > 0 {
		return fmt.Errorf("node id %d: %w: it belongs to data folder %s, which holds replicas of %d partitions, and this is folder %s; "+
			"start the node with its own folder (is the disk mounted?), or, if that is lost for good, let this one take its place: tidemark cluster replace %d",
			id, ErrOtherFolder, strings.Join(n.Directories, ", "), held, strings.Join(folders, ", "), id)
	}
	return nil
}

// holds counts the partitions that have a replica on a broker, and those that have no other.
func holds(image *meta.Image, id types.BrokerID) (all, only int) {
	for p := range image.Partitions() {
		if p.Record == nil || !slices.Contains(p.Record.Replicas, id) {
			continue
		}
		all++
		if len(p.Record.Replicas) == 1 {
			only++
		}
	}
	return all, only
}

// isKnown reports whether a node is registered or remembered.
func isKnown(image *meta.Image, id types.BrokerID) bool {
	_, registered := image.BrokerEntry(id)
	_, remembered := image.NodeEntry(id)
	return registered || remembered
}

// claim plans that a node id is its folders', if that isn't written yet. held is
// what the registration compares: that it is so.
func claim(image *meta.Image, b *meta.BrokerRecord) (plans []meta.Plan, held meta.Compare) {
	key := image.Keys().Node(b.ID)
	record := meta.NodeRecord{ID: b.ID, Directories: slices.Clone(foldersOf(b))}
	var revision meta.Revision
	if old, ok := image.NodeEntry(b.ID); ok {
		revision = old.ModRevision
		record.Replaced = old.Record.Replaced
		if overlap(record.Directories, old.Record.Directories) {
			for _, d := range old.Record.Directories {
				if !slices.Contains(record.Directories, d) {
					record.Directories = append(record.Directories, d) // one that can't be read now may come back
				}
			}
		}
		if sameFolders(record.Directories, old.Record.Directories) {
			return nil, meta.ModRevisionIs(key, revision)
		}
	}
	plan := checked(meta.Plan{
		Why:  fmt.Sprintf("remember the data folders of node %d", b.ID),
		If:   []meta.Compare{meta.ModRevisionIs(key, revision)},
		Then: []meta.Op{meta.Put(key, record.Encode())},
	})
	return []meta.Plan{plan}, meta.ValueIs(key, record.Encode())
}

func sameFolders(a, b []string) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}

// Replacement says what becomes of a node that is lost for good.
type Replacement struct {
	// Replicas counts the partitions that it holds a replica of: a new node
	// rebuilds them. Only counts those that have no other replica: their records are lost.
	Replicas, Only int
	Plan           meta.Plan
	// Done: the id waits for a new folder already; there is no plan.
	Done bool
}

// ReplaceNode lets the next data folder that registers take the id of a node
// that is gone. What the new one holds counts for nothing until it has copied it:
// its registration has another epoch than any entry of an ISR, and no mark of a clean shutdown (R11).
func ReplaceNode(image *meta.Image, id types.BrokerID, me Me) (Replacement, error) {
	if err := me.registered(image); err != nil {
		return Replacement{}, err
	}
	var out Replacement
	out.Replicas, out.Only = holds(image, id)
	keys := image.Keys()
	if b, ok := image.BrokerEntry(id); ok {
		where := ""
		if b.Record != nil && len(b.Record.Endpoints) > 0 {
			where = fmt.Sprintf(" at %s:%d", b.Record.Endpoints[0].Host, b.Record.Endpoints[0].Port)
		}
		return out, fmt.Errorf("node %d: %w: it is registered%s; stop it and wait until its registration ends, or move its replicas with tidemark cluster decommission %d",
			id, ErrNodeIDInUse, where, id)
	}
	entry, known := image.NodeEntry(id)
	switch {
	case known && entry.Record == nil:
		return out, fmt.Errorf("node %d: %w: %w", id, ErrUnreadable, entry.Fault)
	case !known && out.Replicas == 0:
		return out, fmt.Errorf("node %d: %w; tidemark cluster status lists the nodes", id, ErrUnknownNode)
	}
	record := meta.NodeRecord{ID: id}
	var revision meta.Revision
	if known {
		if len(entry.Record.Directories) == 0 {
			out.Done = true
			return out, nil
		}
		revision = entry.ModRevision
		record.Replaced = append(slices.Clone(entry.Record.Replaced), entry.Record.Directories...)
	}
	out.Plan = checked(meta.Plan{
		Why:  fmt.Sprintf("replace node %d", id),
		If:   []meta.Compare{me.compare(image), meta.Absent(keys.Broker(id)), meta.ModRevisionIs(keys.Node(id), revision)},
		Then: []meta.Op{meta.Put(keys.Node(id), record.Encode())},
	})
	return out, nil
}

// ForgetNode ends what the cluster remembers of a node that is gone and holds
// nothing (UnregisterBroker): any folder may take the id then.
func ForgetNode(image *meta.Image, id types.BrokerID, me Me) (meta.Plan, error) {
	if err := me.registered(image); err != nil {
		return meta.Plan{}, err
	}
	keys := image.Keys()
	if _, ok := image.BrokerEntry(id); ok {
		return meta.Plan{}, fmt.Errorf("broker %d: %w: it is registered and alive; stop it first", id, ErrInvalidRequest)
	}
	entry, ok := image.NodeEntry(id)
	if !ok {
		return meta.Plan{}, fmt.Errorf("broker %d: %w", id, ErrUnknownNode)
	}
	if held, _ := holds(image, id); held > 0 {
		return meta.Plan{}, fmt.Errorf("broker %d: %w: %d partitions have a replica on it; move them (tidemark cluster decommission %d), or give its id to a new machine (tidemark cluster replace %d)",
			id, ErrInvalidRequest, held, id, id)
	}
	return checked(meta.Plan{
		Why:  fmt.Sprintf("forget node %d", id),
		If:   []meta.Compare{me.compare(image), meta.Absent(keys.Broker(id)), meta.ModRevisionIs(keys.Node(id), entry.ModRevision)},
		Then: []meta.Op{meta.Delete(keys.Node(id))},
	}), nil
}
