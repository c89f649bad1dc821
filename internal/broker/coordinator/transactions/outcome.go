package transactions

import (
	"tidemark/internal/broker/api"
	"tidemark/internal/core/errcode"
	"tidemark/internal/wire"
)

// outcome tells a write that was certainly refused, by its code, from one of which
// nobody knows whether it is in the log.
func outcome(err error) (errcode.Code, error) {
	switch api.CodeOf(err) {
	case wire.None:
		return errcode.None, nil
	case wire.ErrNotEnoughReplicas, wire.ErrMessageTooLarge, wire.ErrRecordListTooLarge:
		return errcode.CoordinatorNotAvailable, nil
	}
	return 0, err
}
