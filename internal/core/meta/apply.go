package meta

import (
	"errors"
	"fmt"

	"tidemark/internal/assert"
	"tidemark/internal/core/types"
)

// ErrWentBack is matched when a snapshot is older than the image: the store
// was restored from a backup, or it is another one (R9, R19).
var ErrWentBack = errors.New("the metadata store went back")

// Load builds the image of a cluster from a consistent snapshot of everything
// below its root. The delta names everything as created.
func Load(clusterID string, kvs []KV, revision Revision) (*Image, Delta) {
	image, delta, err := Empty(clusterID).Reload(kvs, revision)
	assert.That(err == nil, "I-52: revision %d below an empty image", revision)
	return image, delta
}

// Reload replaces the image by a newer snapshot, as after ErrCompacted: the
// delta names every difference. A snapshot older than the image is refused
// with ErrWentBack and the image stays.
func (i *Image) Reload(kvs []KV, revision Revision) (*Image, Delta, error) {
	if revision < i.revision {
		return i, Delta{Revision: i.revision}, fmt.Errorf("%w: its revision is %d, %d was seen before", ErrWentBack, revision, i.revision)
	}
	e := newImageEdit(Empty(i.clusterID))
	for _, kv := range kvs {
		e.put(kv)
	}
	next := e.done(revision)
	return next, diff(i, next, touchedByEither(i, next)), nil
}

// Apply takes what one revision changed and gives the image after it, and what
// differs. Events at or below the image's revision change nothing (R9).
func (i *Image) Apply(events Events) (*Image, Delta) {
	if events.Revision <= i.revision {
		return i, Delta{Revision: i.revision}
	}
	if len(events.Events) == 0 {
		next := *i
		next.revision = events.Revision
		return &next, Delta{Revision: next.revision}
	}
	e := newImageEdit(i)
	for _, ev := range events.Events {
		if ev.Kind == EventDelete {
			e.delete(ev.KV.Key)
		} else {
			e.put(ev.KV)
		}
	}
	next := e.done(events.Revision)
	// Invariant I-52: an image never goes back.
	assert.That(next.revision > i.revision, "I-52: image at revision %d after %d", next.revision, i.revision)
	return next, diff(i, next, e.touched)
}

// imageEdit builds the next image from one by puts and deletes.
type imageEdit struct {
	next    *Image
	touched touched

	topics        *edit[types.TopicID, *Topic]
	names         *edit[string, *Name]
	foldedNames   *edit[string, string]
	partitions    *edit[PartitionID, *Partition]
	brokers       *edit[types.BrokerID, *Broker]
	mirrors       *edit[string, *Mirror]
	brokerConfigs *edit[types.BrokerID, *BrokerConfig]
	reports       *edit[types.BrokerID, *Report]
	nodes         *edit[types.BrokerID, *Node]
	drills        *edit[string, *Drill]
	faults        *edit[string, *ValueError]
	security      *securityEdit
}

func newImageEdit(i *Image) *imageEdit {
	next := *i
	return &imageEdit{
		next:          &next,
		topics:        i.topics.edit(),
		names:         i.names.edit(),
		foldedNames:   i.foldedNames.edit(),
		partitions:    i.partitions.edit(),
		brokers:       i.brokers.edit(),
		mirrors:       i.mirrors.edit(),
		brokerConfigs: i.brokerConfigs.edit(),
		reports:       i.reports.edit(),
		nodes:         i.nodes.edit(),
		drills:        i.drills.edit(),
		faults:        i.faults.edit(),
		security:      i.security.edit(),
	}
}

func (e *imageEdit) done(revision Revision) *Image {
	n := e.next
	n.revision = revision
	n.topics = e.topics.done()
	n.names = e.names.done()
	n.foldedNames = e.foldedNames.done()
	n.partitions = e.partitions.done()
	n.brokers = e.brokers.done()
	n.mirrors = e.mirrors.done()
	n.brokerConfigs = e.brokerConfigs.done()
	n.reports = e.reports.done()
	n.nodes = e.nodes.done()
	n.drills = e.drills.done()
	n.faults = e.faults.done()
	n.security = e.security.done(n.security, revision)
	return n
}

// put takes the value of one key. Keys of kinds that this version doesn't know are left alone.
func (e *imageEdit) put(kv KV) {
	key, err := e.next.keys.Parse(kv.Key)
	if err != nil {
		e.faults.set(kv.Key, &ValueError{Key: kv.Key, Err: err})
		return
	}
	switch key.Kind {
	case KeyTopic:
		e.fault(kv.Key, e.putTopic(kv, key))
	case KeyName:
		e.fault(kv.Key, e.putName(kv, key))
	case KeyPartition:
		e.fault(kv.Key, e.putPartition(kv, key))
	case KeyBroker:
		e.touched.brokers = append(e.touched.brokers, key.Broker)
		e.fault(kv.Key, putEntry(e.brokers, key.Broker, kv, DecodeBroker))
	case KeyMirror:
		e.touched.mirrors = append(e.touched.mirrors, key.Name)
		e.fault(kv.Key, putEntry(e.mirrors, key.Name, kv, DecodeMirror))
	case KeyBrokerConfig:
		e.touched.brokerConfigs = append(e.touched.brokerConfigs, key.Broker)
		e.fault(kv.Key, putEntry(e.brokerConfigs, key.Broker, kv, DecodeBrokerConfig))
	case KeyReport:
		e.touched.reports = append(e.touched.reports, key.Broker)
		e.fault(kv.Key, putEntry(e.reports, key.Broker, kv, DecodeReport))
	case KeyNode:
		e.touched.nodes = append(e.touched.nodes, key.Broker)
		e.fault(kv.Key, putEntry(e.nodes, key.Broker, kv, DecodeNode))
	case KeyDrill:
		e.touched.drills = append(e.touched.drills, key.Name)
		e.fault(kv.Key, putEntry(e.drills, key.Name, kv, DecodeDrill))
	case KeyACL:
		e.fault(kv.Key, e.security.putACL(key.Name, kv))
	case KeyScram:
		e.fault(kv.Key, putEntry(e.security.scram, key.Scram, kv, DecodeScram))
	case KeyFeatures:
		next, err := nextEntry(e.next.features, struct{}{}, kv, DecodeFeatures)
		e.next.features = next
		e.fault(kv.Key, err)
	case KeyProducerIDs:
		next, err := nextEntry(e.next.producerIDs, struct{}{}, kv, DecodeProducerIDs)
		e.next.producerIDs = next
		e.fault(kv.Key, err)
	case KeyController:
		next, err := nextEntry(e.next.controller, struct{}{}, kv, DecodeController)
		e.next.controller = next
		e.fault(kv.Key, err)
	case KeyCluster:
		next, err := nextEntry(e.next.cluster, struct{}{}, kv, DecodeCluster)
		e.next.cluster = next
		e.fault(kv.Key, err)
	}
}

// fault notes or clears the fault of one key.
func (e *imageEdit) fault(key string, err error) {
	if err == nil {
		e.faults.remove(key)
		return
	}
	var bad *ValueError
	if !errors.As(err, &bad) {
		bad = &ValueError{Key: key, Err: err}
	}
	e.faults.set(key, bad)
}

// nextEntry is the entry after kv. A value that can't be read keeps the last
// good record of the same key, so that nothing is taken for deleted.
func nextEntry[ID comparable, R any](old *Entry[ID, R], id ID, kv KV, decode func(string, []byte) (*R, error)) (*Entry[ID, R], error) {
	rec, err := decode(kv.Key, kv.Value)
	if err != nil && old != nil && old.CreateRevision == kv.CreateRevision {
		rec = old.Record
	}
	return &Entry[ID, R]{ID: id, Record: rec, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Fault: err}, err
}

func putEntry[ID comparable, R any](t *edit[ID, *Entry[ID, R]], id ID, kv KV, decode func(string, []byte) (*R, error)) error {
	old, _ := t.get(id)
	next, err := nextEntry(old, id, kv, decode)
	t.set(id, next)
	return err
}

func (e *imageEdit) putTopic(kv KV, key Key) error {
	e.touched.topics = append(e.touched.topics, key.TopicID)
	return putEntry(e.topics, key.TopicID, kv, func(k string, data []byte) (*TopicRecord, error) {
		rec, err := DecodeTopic(k, data)
		if err == nil && rec.ID != key.TopicID {
			return nil, &ValueError{Key: k, Err: fmt.Errorf("%w: it names topic id %s", ErrValue, rec.ID)}
		}
		return rec, err
	})
}

func (e *imageEdit) putName(kv KV, key Key) error {
	e.foldedNames.set(foldName(key.Name)+"\x00"+key.Name, key.Name)
	return putEntry(e.names, key.Name, kv, DecodeName)
}

func (e *imageEdit) putPartition(kv KV, key Key) error {
	id := PartitionID{Topic: key.TopicID, Number: key.Partition}
	e.touched.partitions = append(e.touched.partitions, id)
	rec, err := DecodePartition(kv.Key, kv.Value)
	e.partitions.set(id, &Partition{ID: id, Record: rec, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Fault: err})
	return err
}

// delete takes one key away.
func (e *imageEdit) delete(name string) {
	e.faults.remove(name)
	key, err := e.next.keys.Parse(name)
	if err != nil {
		return
	}
	switch key.Kind {
	case KeyTopic:
		e.touched.topics = append(e.touched.topics, key.TopicID)
		e.topics.remove(key.TopicID)
	case KeyName:
		e.names.remove(key.Name)
		e.foldedNames.remove(foldName(key.Name) + "\x00" + key.Name)
	case KeyPartition:
		id := PartitionID{Topic: key.TopicID, Number: key.Partition}
		e.touched.partitions = append(e.touched.partitions, id)
		e.partitions.remove(id)
	case KeyBroker:
		e.touched.brokers = append(e.touched.brokers, key.Broker)
		e.brokers.remove(key.Broker)
	case KeyMirror:
		e.touched.mirrors = append(e.touched.mirrors, key.Name)
		e.mirrors.remove(key.Name)
	case KeyBrokerConfig:
		e.touched.brokerConfigs = append(e.touched.brokerConfigs, key.Broker)
		e.brokerConfigs.remove(key.Broker)
	case KeyReport:
		e.touched.reports = append(e.touched.reports, key.Broker)
		e.reports.remove(key.Broker)
	case KeyNode:
		e.touched.nodes = append(e.touched.nodes, key.Broker)
		e.nodes.remove(key.Broker)
	case KeyDrill:
		e.touched.drills = append(e.touched.drills, key.Name)
		e.drills.remove(key.Name)
	case KeyACL:
		e.security.deleteACL(key.Name)
	case KeyScram:
		e.security.scram.remove(key.Scram)
	case KeyFeatures:
		e.next.features = nil
	case KeyProducerIDs:
		e.next.producerIDs = nil
	case KeyController:
		e.next.controller = nil
	case KeyCluster:
		e.next.cluster = nil
	}
}
