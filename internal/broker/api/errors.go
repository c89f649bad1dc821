package api

import (
	"errors"

	"tidemark/internal/batch"
	"tidemark/internal/core/txn"
	"tidemark/internal/log"
	"tidemark/internal/wire"
)

// ErrReadOnly is the answer to a write on a topic that is a mirror.
//
// KIP-1279 gives it a code of its own, READ_ONLY_TOPIC 134, which no released
// client knows and which Apache Kafka 4.4 has since used for another error
// (GROUP_DELETION_FAILED). POLICY_VIOLATION is known to every client, isn't
// retried, and carries the sentence (Produce v8 and later).
func ErrReadOnly(topic, mirror string) error {
	return wire.Errorf(wire.ErrPolicyViolation,
		"Topic %s is a read-only mirror (mirror %q); fail the mirror over to make it writable.", topic, mirror)
}

// meanings maps the errors of the packages below to codes, the first that fits.
var meanings = []struct {
	err  error
	code wire.ErrCode
}{
	{batch.ErrCRC, wire.ErrCorruptMessage},
	{batch.ErrCorrupt, wire.ErrCorruptMessage},
	{batch.ErrShort, wire.ErrCorruptMessage},
	{batch.ErrLength, wire.ErrCorruptMessage},
	{batch.ErrMagic, wire.ErrInvalidRecord},
	{batch.ErrInvalidRecord, wire.ErrInvalidRecord},
	{batch.ErrInvalidTimestamp, wire.ErrInvalidTimestamp},
	{batch.ErrTooLarge, wire.ErrMessageTooLarge},
	{batch.ErrUnsupportedCompression, wire.ErrUnsupportedCompressionType},
	{log.ErrSegmentRange, wire.ErrInvalidRecord},
	{log.ErrOutOfRange, wire.ErrOffsetOutOfRange},
	{log.ErrNoSpace, wire.ErrKafkaStorageError},
	{log.ErrOffline, wire.ErrKafkaStorageError},
	{log.ErrClosed, wire.ErrNotLeaderOrFollower},
	{txn.ErrOutOfOrderSequence, wire.ErrOutOfOrderSequenceNumber},
	{txn.ErrProducerEpoch, wire.ErrInvalidProducerEpoch},
	{txn.ErrTxnState, wire.ErrInvalidTxnState},
	{txn.ErrCoordinatorFenced, wire.ErrTransactionCoordinatorFenced},
}

// CodeOf maps an error of the interfaces in deps.go to its code on the wire.
func CodeOf(err error) wire.ErrCode {
	code := wire.CodeOf(err)
	if code != wire.ErrUnknownServerError {
		return code
	}
	for _, m := range meanings {
		if errors.Is(err, m.err) {
			return m.code
		}
	}
	return code
}

// MessageOf gives the sentence that goes with CodeOf, nil if there is none.
// What a batch was refused for is meant for the client; other foreign errors'
// texts are not.
func MessageOf(err error) *string {
	if m := wire.MessageOf(err); m != nil {
		return m
	}
	switch CodeOf(err) {
	case wire.ErrInvalidRecord, wire.ErrInvalidTimestamp, wire.ErrMessageTooLarge,
		wire.ErrUnsupportedCompressionType, wire.ErrCorruptMessage, wire.ErrOutOfOrderSequenceNumber,
		wire.ErrInvalidProducerEpoch:
		text := err.Error()
		return &text
	}
	return nil
}

// recordErrors lists the records that err refuses, if it says.
func recordErrors(res AppendResult, err error) []RecordError {
	refused, ok := errors.AsType[*batch.RecordsError](err)
	if len(res.RecordErrors) > 0 || !ok {
		return res.RecordErrors
	}
	list := make([]RecordError, len(refused.Records))
	for i, r := range refused.Records {
		list[i] = RecordError{Index: int32(r.Index), Message: r.Reason}
	}
	return list
}

// failed counts an error for a partition, unless the client has gone and nobody
// gets it, and logs it if it isn't one that clients are meant to see.
func (c *Call) failed(key wire.Key, err error) wire.ErrCode {
	code := CodeOf(err)
	if c.Metrics != nil && c.Ctx.Err() == nil {
		c.Metrics.Failed(key, code)
	}
	if code == wire.ErrUnknownServerError {
		c.Logger.Error("request failed", "api", key, "client", c.Req.ClientID, "error", err)
	}
	return code
}

// takeError answers a partition by the first of errs, which has one, or nil, for each
// that was asked for, and gives the rest. A partition that has a code was not asked for.
func (c *Call) takeError(key wire.Key, errs []error, code *int16, message **string) []error {
	if *code != 0 {
		return errs
	}
	if err := errs[0]; err != nil {
		*code, *message = int16(c.failed(key, err)), MessageOf(err)
	}
	return errs[1:]
}
