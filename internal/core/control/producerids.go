package control

import (
	"fmt"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// countMax is where a range of producer ids is used up: 32 counting bits (R30).
const countMax = 1 << 32

// ProducerIDBlock is a range of producer ids: First to First+Size-1.
type ProducerIDBlock struct {
	First types.ProducerID
	Size  int
}

// AllocateProducerIDs takes a block of size ids from the cluster's range
// (R30). random31 are 31 random bits, used only where a range must begin: at
// the first block, and when the old range is used up. Bits of 0 become 1,
// because range 0 is where Apache Kafka's ids lie.
func AllocateProducerIDs(image *meta.Image, random31 uint32, size int, me Me) (meta.Plan, ProducerIDBlock, error) {
	if err := me.registered(image); err != nil {
		return meta.Plan{}, ProducerIDBlock{}, err
	}
	if size < 1 || size > countMax/2 {
		return meta.Plan{}, ProducerIDBlock{}, fmt.Errorf("%w: a block of %d producer ids", ErrInvalidRequest, size)
	}
	record := meta.ProducerIDsRecord{High: max(random31&(1<<31-1), 1)}
	var revision meta.Revision
	if old, ok := image.ProducerIDs(); ok {
		revision = old.ModRevision
		if old.Fault != nil {
			return meta.Plan{}, ProducerIDBlock{}, fmt.Errorf("producer ids: %w: %w", ErrUnreadable, old.Fault)
		}
		if old.Record.Next+uint64(size) <= countMax {
			record = *old.Record
		}
	}
	block := ProducerIDBlock{First: types.ProducerID(int64(record.High)<<32 | int64(record.Next)), Size: size}
	record.Next += uint64(size)
	record.Broker, record.BrokerEpoch = me.ID, me.Epoch
	key := image.Keys().ProducerIDs()
	return checked(meta.Plan{
		Why:  fmt.Sprintf("take %d producer ids from %d on", size, block.First),
		If:   []meta.Compare{me.compare(image), meta.ModRevisionIs(key, revision)},
		Then: []meta.Op{meta.Put(key, record.Encode())},
	}), block, nil
}
