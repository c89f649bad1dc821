package backup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
)

// Summary says what a restore did, for people.
type Summary struct {
	ClusterID  string        `json:"clusterId"`
	Revision   meta.Revision `json:"revision"` // of the backup
	TakenAt    types.Millis  `json:"takenAt"`
	Topics     int           `json:"topics"`
	Partitions int           `json:"partitions"`
	// Nodes are the brokers that hold replicas: all of them are needed before
	// their partitions have leaders.
	Nodes []types.BrokerID `json:"nodes"`
	// Mirrors were running and are paused now.
	Mirrors []string `json:"mirrors,omitempty"`
	// Unreadable are keys that were put back as they are.
	Unreadable []string `json:"unreadable,omitempty"`
}

// ErrInUse is matched when brokers are registered in the store that is to be changed.
var ErrInUse = errors.New("brokers are running on this metadata")

// ErrNotEmpty is matched when the store holds the cluster's metadata already.
var ErrNotEmpty = errors.New("the metadata store isn't empty")

// Mark gives the keys as they are written after the metadata went back in time
// (see the package comment). restore must have a fresh id.
func Mark(clusterID string, kvs []meta.KV, restore meta.Restore) ([]meta.KV, Summary, error) {
	// Invariant I-221: each restore has an id of its own: revisions before and after it are never compared.
	assert.That(restore.ID != "", "I-221: a restore without an id")
	image, _ := meta.Load(clusterID, kvs, 1)
	s := Summary{ClusterID: clusterID, Revision: restore.Revision, TakenAt: restore.TakenAt, Topics: image.TopicCount()}
	for f := range image.Faults() {
		s.Unreadable = append(s.Unreadable, f.Key)
	}
	holders := make(map[types.BrokerID]bool)
	keys := image.Keys()
	var out []meta.KV
	found := false
	for _, kv := range kvs {
		key, err := keys.Parse(kv.Key)
		if passing(keys, kv) {
			continue
		}
		if err != nil {
			key.Kind = meta.KeyForeign // left as it is
		}
		switch key.Kind {
		case meta.KeyCluster:
			found = true
			c, err := meta.DecodeCluster(kv.Key, kv.Value)
			if err != nil {
				return nil, s, err
			}
			if c.ID != clusterID {
				return nil, s, fmt.Errorf("the cluster's record names cluster %s, below the keys of %s", c.ID, clusterID)
			}
			c.Restore = &restore
			kv.Value = c.Encode()
		case meta.KeyProducerIDs:
			continue // a new range begins with the next block (R30)
		case meta.KeyMirror:
			kv.Value = paused(kv, &s)
		case meta.KeyPartition:
			kv.Value = leaderless(kv, holders)
			s.Partitions++
		}
		out = append(out, kv)
	}
	if !found {
		return nil, s, fmt.Errorf("%w: it has no record of the cluster itself", ErrDamaged)
	}
	s.Nodes = slices.Sorted(maps.Keys(holders))
	return out, s, nil
}

// leaderless marks a partition's record. One that can't be read stays as it is: it is offline anyway.
func leaderless(kv meta.KV, holders map[types.BrokerID]bool) []byte {
	r, err := meta.DecodePartition(kv.Key, kv.Value)
	if err != nil {
		return kv.Value
	}
	for _, id := range r.Replicas {
		holders[id] = true
	}
	r.Leader, r.LeaderBrokerEpoch = types.NoBroker, types.NoBrokerEpoch
	r.ISR, r.ELR = []meta.ISRMember{}, nil
	r.UncleanOnce, r.Restored = false, true
	return r.Encode()
}

// paused stops a running mirror until an operator has looked: what it followed, and
// whether it was failed over since, the backup can't know (R24).
func paused(kv meta.KV, s *Summary) []byte {
	m, err := meta.DecodeMirror(kv.Key, kv.Value)
	if err != nil || m.Want != meta.WantRunning {
		return kv.Value
	}
	m.Want = meta.WantPaused
	s.Mirrors = append(s.Mirrors, m.Name)
	return m.Encode()
}

// Restore writes a backup into a store that knows nothing of the cluster. at is
// the present time, id fresh. Stopped half-way it leaves no cluster record, and may be
// repeated.
func Restore(ctx context.Context, store metastore.Store, b *Backup, supported meta.Features, id string, at types.Millis) (Summary, error) {
	if why := supported.Refuses(b.Levels); why != "" {
		return Summary{}, errors.New(why)
	}
	keys := meta.KeysOf(b.ClusterID)
	there, _, err := store.Range(ctx, keys.Root())
	if err != nil {
		return Summary{}, err
	}
	before := make(map[string]meta.Revision)
	for _, kv := range there {
		if kv.Key == keys.Cluster() {
			return Summary{}, fmt.Errorf("%w: it holds cluster %s, with %d keys; to put a backup in its place, stop all nodes and delete them first (etcdctl del --prefix %s)",
				ErrNotEmpty, b.ClusterID, len(there), keys.Root())
		}
		before[kv.Key] = kv.ModRevision // what a restore left that stopped half-way
	}
	kvs, s, err := Mark(b.ClusterID, b.KVs, meta.Restore{ID: id, Revision: b.Revision, TakenAt: b.TakenAt, At: at})
	if err != nil {
		return s, err
	}
	return s, write(ctx, store, keys, kvs, before)
}

// Recover marks metadata that went back in time by other means than Restore, in
// the store where it is: a snapshot of etcd that somebody put back, for instance.
func Recover(ctx context.Context, store metastore.Store, clusterID, id string, at types.Millis) (Summary, error) {
	keys := meta.KeysOf(clusterID)
	there, revision, err := store.Range(ctx, keys.Root())
	if err != nil {
		return Summary{}, err
	}
	image, _ := meta.Load(clusterID, there, revision)
	for b := range image.Brokers() {
		return Summary{}, fmt.Errorf("%w: broker %d is registered; stop all nodes and wait until their registrations have ended", ErrInUse, b.ID)
	}
	kvs, s, err := Mark(clusterID, there, meta.Restore{ID: id, Revision: revision, TakenAt: at, At: at})
	if err != nil {
		return s, err
	}
	before := make(map[string]meta.Revision)
	for _, kv := range there {
		before[kv.Key] = kv.ModRevision
	}
	return s, write(ctx, store, keys, kvs, before)
}

const (
	// batchKeys and batchBytes bound one transaction: any etcd takes so much.
	batchKeys  = 100
	batchBytes = 512 << 10
)

// write puts the keys, the cluster's own record last: what is there without it is
// no cluster. before are the revisions that are replaced; those of its keys that kvs leave out are deleted.
func write(ctx context.Context, store metastore.Store, keys meta.Keys, kvs []meta.KV, before map[string]meta.Revision) error {
	left := make(map[string]bool)
	for key := range before {
		left[key] = true
	}
	var last, ops []meta.Op
	size := 0
	flush := func() error {
		err := commit(ctx, store, ops, before)
		ops, size = nil, 0
		return err
	}
	for _, kv := range kvs {
		delete(left, kv.Key)
		if kv.Key == keys.Cluster() {
			last = append(last, meta.Put(kv.Key, kv.Value))
			continue
		}
		if len(ops) > 0 && (len(ops) == batchKeys || size+len(kv.Value) > batchBytes) {
			if err := flush(); err != nil {
				return err
			}
		}
		ops = append(ops, meta.Put(kv.Key, kv.Value))
		size += len(kv.Key) + len(kv.Value)
	}
	if err := flush(); err != nil {
		return err
	}
	for key := range left {
		ops = append(ops, meta.Delete(key))
		if len(ops) == batchKeys {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	ops = append(ops, last...)
	if err := flush(); err != nil {
		return err
	}
	return adopt(ctx, store, keys)
}

func commit(ctx context.Context, store metastore.Store, ops []meta.Op, before map[string]meta.Revision) error {
	if len(ops) == 0 {
		return nil
	}
	plan := meta.Plan{Why: "restore the metadata", Then: ops}
	for _, op := range ops {
		plan.If = append(plan.If, meta.ModRevisionIs(op.Key, before[op.Key]))
	}
	_, err := metastore.Commit(ctx, store, plan)
	return err
}

// adopt names the cluster as the store's, if the store has none yet.
func adopt(ctx context.Context, store metastore.Store, keys meta.Keys) error {
	kv, _, err := store.Get(ctx, keys.Cluster())
	if err != nil {
		return err
	}
	c, err := meta.DecodeCluster(kv.Key, kv.Value)
	if err != nil {
		return err
	}
	plan := meta.Plan{Why: "name the store's cluster", If: []meta.Compare{meta.Absent(meta.DefaultClusterKey)}, Then: []meta.Op{meta.Put(meta.DefaultClusterKey, []byte(c.ID))}}
	if _, err := metastore.Commit(ctx, store, plan); err != nil && !errors.Is(err, metastore.ErrRefused) {
		return err
	}
	return nil
}
