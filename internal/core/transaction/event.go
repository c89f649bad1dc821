package transaction

import (
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// RequestID is the driver's handle of a request that waits for an answer. Each is
// used once; NoRequest means that nobody waits.
type RequestID uint64

// NoRequest marks an event that no request waits on.
const NoRequest RequestID = 0

// Token names one append. Tokens of a table rise by one, from 1.
type Token uint64

// Event is what a Table's Step takes: one of the types of this file.
type Event interface{ event() }

// Init is an InitProducerId request with a transactional id. It is answered with
// an InitResponse.
type Init struct {
	Request RequestID
	ID      string
	// Timeout is the most that a transaction may take, in milliseconds.
	Timeout types.Millis
	// ProducerID and Epoch are what the producer goes on from (KIP-360), or
	// NoProducer and NoEpoch.
	ProducerID types.ProducerID
	Epoch      int16
	// FreshProducerID is one to be given out if need be (WantsProducerID), else NoProducer.
	FreshProducerID types.ProducerID
}

// Add is an AddPartitionsToTxn request, a client's or a broker's. It is answered
// with a CodeResponse: all partitions are added or none.
type Add struct {
	Request    RequestID
	ID         string
	ProducerID types.ProducerID
	Epoch      int16
	Partitions []types.TopicPartition
	// VerifyOnly asks whether the partitions belong to the open transaction already (KIP-890).
	VerifyOnly bool
}

// End is an EndTxn request. It is answered with an EndResponse.
type End struct {
	Request    RequestID
	ID         string
	ProducerID types.ProducerID
	Epoch      int16
	Commit     bool
	// Bumps: the client takes a new epoch from every end (EndTxn v5, KIP-890).
	Bumps bool
	// FreshProducerID is as in Init.
	FreshProducerID types.ProducerID
}

// MarkerWritten tells that a marker of Markers is durable in its partition, or that
// there is no such partition any more.
type MarkerWritten struct {
	ID         string
	ProducerID types.ProducerID
	Epoch      int16
	Partition  types.TopicPartition
}

// Sweep ends transactions that are open for too long, and forgets ids that were
// not used for Config.IDExpiration. The driver sends it now and then.
type Sweep struct{}

// Appended tells that an append is durable, or that it was certainly not written:
// then Code says why. An append of unknown outcome is told by Resign.
type Appended struct {
	Token Token
	Code  errcode.Code
}

// Resign ends the table. Every waiting request is answered with Code. No event may follow.
type Resign struct{ Code errcode.Code }

func (Init) event()          {}
func (Add) event()           {}
func (End) event()           {}
func (MarkerWritten) event() {}
func (Sweep) event()         {}
func (Appended) event()      {}
func (Resign) event()        {}

// Effects are what one or more steps ask of the driver.
//
// Order: Appends go to the log in the order in which they were asked for, and
// their completions come back in that order. Replies and Markers may be sent at
// once: whatever must be durable before them is.
type Effects struct {
	Appends []Append
	Replies []Reply
	Markers []Markers
	Notes   []Note
}

// Reset empties the effects and keeps the memory.
func (e *Effects) Reset() {
	e.Appends, e.Replies, e.Markers, e.Notes = e.Appends[:0], e.Replies[:0], e.Markers[:0], e.Notes[:0]
}

func (e *Effects) reply(id RequestID, r Response) {
	if id != NoRequest {
		e.Replies = append(e.Replies, Reply{Request: id, Response: r})
	}
}

// answer answers a request by a code alone: a refusal, or an Add's success.
func (e *Effects) answer(ev Event, code errcode.Code) {
	switch ev := ev.(type) {
	case Init:
		e.reply(ev.Request, InitResponse{Code: code, ProducerID: types.NoProducer, Epoch: NoEpoch})
	case Add:
		e.reply(ev.Request, CodeResponse{Code: code})
	case End:
		e.reply(ev.Request, EndResponse{Code: code, ProducerID: types.NoProducer, Epoch: NoEpoch})
	}
}

// Append asks for a record to be written.
type Append struct {
	Token Token
	Record
}

// Record is an entry of __transaction_state; a nil Value forgets the id.
type Record struct {
	ID    string
	Value *Metadata
}

// Markers asks for a marker in each of the partitions, until MarkerWritten has told of all.
type Markers struct {
	ID         string
	ProducerID types.ProducerID
	Epoch      int16
	Commit     bool
	// Bumped: Epoch is above that of the transaction's batches (KIP-890).
	Bumped     bool
	Partitions []types.TopicPartition
}

// Note tells the operator's log of what no client asked for.
type Note struct {
	ID   string
	What string
	Metadata
}

// Reply answers a waiting request.
type Reply struct {
	Request  RequestID
	Response Response
}

// Response answers a request: one of the types below.
type Response interface{ response() }

// CodeResponse answers requests whose only outcome is an error code.
type CodeResponse struct{ Code errcode.Code }

// InitResponse answers Init.
type InitResponse struct {
	Code       errcode.Code
	ProducerID types.ProducerID
	Epoch      int16
}

// EndResponse answers End. ProducerID and Epoch are what a client that bumps goes on with.
type EndResponse struct {
	Code       errcode.Code
	ProducerID types.ProducerID
	Epoch      int16
}

func (CodeResponse) response() {}
func (InitResponse) response() {}
func (EndResponse) response()  {}
