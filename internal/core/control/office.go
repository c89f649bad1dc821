package control

import (
	"fmt"

	"tidemark/internal/core/meta"
)

// TakeOffice makes a broker the controller if nobody holds the office: the key
// is bound to the lease of its registration, so that both end together. ok is
// false if a registered broker holds it. What a holder left whose registration
// has ended (a process that was killed and is back before its lease ended) is removed first.
func TakeOffice(image *meta.Image, me Me, lease meta.LeaseID) (plans []meta.Plan, ok bool, err error) {
	if err := me.registered(image); err != nil {
		return nil, false, err
	}
	key := image.Keys().Controller()
	if old, held := image.Controller(); held {
		epoch, registered := image.BrokerEpoch(old.Record.Broker)
		if registered && epoch == old.Record.BrokerEpoch {
			return nil, false, nil
		}
		holder := image.Keys().Broker(old.Record.Broker)
		ended := meta.Absent(holder)
		if registered {
			ended = meta.CreateRevisionIs(holder, meta.Revision(epoch))
		}
		plans = append(plans, checked(meta.Plan{
			Why:  fmt.Sprintf("end the office of broker %d, whose registration has ended", old.Record.Broker),
			If:   []meta.Compare{meta.CreateRevisionIs(key, old.CreateRevision), ended},
			Then: []meta.Op{meta.Delete(key)},
		}))
	}
	record := meta.ControllerRecord{Broker: me.ID, BrokerEpoch: me.Epoch}
	return append(plans, checked(meta.Plan{
		Why:  fmt.Sprintf("make broker %d the controller", me.ID),
		If:   []meta.Compare{me.compare(image), meta.Absent(key)},
		Then: []meta.Op{meta.PutLeased(key, record.Encode(), lease)},
	})), true, nil
}

// InOffice gives the writer as the controller; false if it isn't.
func InOffice(image *meta.Image, me Me) (Me, bool) {
	c, held := image.Controller()
	if !held || c.Record.Broker != me.ID || c.Record.BrokerEpoch != me.Epoch || me.registered(image) != nil {
		return me, false
	}
	me.Controller = c.CreateRevision
	return me, true
}

// Drain marks a registration as one that is about to end: the controller moves
// its leaders. record is the registration as it was written, lease its lease.
func Drain(image *meta.Image, me Me, lease meta.LeaseID) (meta.Plan, error) {
	if err := me.registered(image); err != nil {
		return meta.Plan{}, err
	}
	b, _ := image.Broker(me.ID)
	record := *b.Record
	record.Draining = true
	key := image.Keys().Broker(me.ID)
	return checked(meta.Plan{
		Why:  fmt.Sprintf("broker %d shuts down", me.ID),
		If:   []meta.Compare{me.compare(image), meta.ModRevisionIs(key, b.ModRevision)},
		Then: []meta.Op{meta.PutLeased(key, record.Encode(), lease)},
	}), nil
}
