package control

import (
	"fmt"
	"strings"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// RegisterBroker registers a broker under a lease. Its plans are carried out
// in order; the revision of the last one is the broker epoch. A registration
// that the same data folder made before (a process that was killed, whose lease still
// lives) is ended first; another folder's is refused with ErrNodeIDInUse. Refused
// too are a folder that isn't the node's (MayJoin), and a program that doesn't support the
// cluster's feature levels (ErrFeatureLevel).
func RegisterBroker(image *meta.Image, broker meta.BrokerRecord, lease meta.LeaseID) ([]meta.Plan, error) {
	if broker.ID < 0 || broker.DirectoryID == "" || broker.Incarnation == "" || len(broker.Endpoints) == 0 {
		return nil, fmt.Errorf("broker %d needs a folder id, an incarnation and an endpoint: %w", broker.ID, ErrInvalidRequest)
	}
	if err := MayJoin(image, broker.ID, foldersOf(&broker)); err != nil {
		return nil, err
	}
	levels, revision := image.FinalizedFeatures()
	if why := broker.Features.Refuses(levels); broker.Features != nil && why != "" {
		return nil, fmt.Errorf("%w: %s", ErrFeatureLevel, why)
	}
	keys := image.Keys()
	key := keys.Broker(broker.ID)
	plans, held := claim(image, &broker)
	if old, ok := image.BrokerEntry(broker.ID); ok {
		plans = append(plans, checked(meta.Plan{
			Why:  fmt.Sprintf("end the earlier registration of broker %d", broker.ID),
			If:   []meta.Compare{meta.CreateRevisionIs(key, old.CreateRevision)},
			Then: []meta.Op{meta.Delete(key)},
		}))
	}
	plan := meta.Plan{
		Why:  fmt.Sprintf("register broker %d", broker.ID),
		If:   []meta.Compare{meta.Absent(key), held, meta.ModRevisionIs(keys.Features(), revision)},
		Then: []meta.Op{meta.PutLeased(key, broker.Encode(), lease)},
	}
	if _, ok := image.Cluster(); !ok {
		record := meta.ClusterRecord{ID: image.ClusterID(), CreatedAt: broker.StartedAt}
		plan.If = append(plan.If, meta.Absent(keys.Cluster()))
		plan.Then = append(plan.Then, meta.Put(keys.Cluster(), record.Encode()))
	}
	return append(plans, checked(plan)), nil
}

// mayEnd refuses to end a registration that isn't the same data folder's.
func mayEnd(old *meta.Broker, id types.BrokerID, folders []string) error {
	if old.Record == nil {
		return fmt.Errorf("node id %d: %w by a registration that can't be read: %w", id, ErrNodeIDInUse, old.Fault)
	}
	if overlap(foldersOf(old.Record), folders) {
		return nil
	}
	where := "another data folder"
	if len(old.Record.Endpoints) > 0 {
		e := old.Record.Endpoints[0]
		where = fmt.Sprintf("the broker at %s:%d", e.Host, e.Port)
	}
	return fmt.Errorf("node id %d: %w by %s (folder %s, this one is %s); choose another node id, or stop that broker and wait until its lease ends",
		id, ErrNodeIDInUse, where, old.Record.DirectoryID, strings.Join(folders, ", "))
}

// UnregisterBroker ends a registration, as the last write of a clean shutdown.
func UnregisterBroker(image *meta.Image, me Me) (meta.Plan, error) {
	return checked(meta.Plan{
		Why:  fmt.Sprintf("unregister broker %d", me.ID),
		If:   []meta.Compare{me.compare(image)},
		Then: []meta.Op{meta.Delete(image.Keys().Broker(me.ID))},
	}), nil
}
