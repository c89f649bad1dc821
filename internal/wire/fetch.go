package wire

import (
	"encoding/binary"
	"sync"

	"tidemark/internal/core/types"
)

// FetchEncoder lays out a Fetch answer (versions 4 to 18) whose records stay
// in their files. Call Topic and Partition in the order and number announced,
// then Response.
//
// Everything but the records is written to one buffer; the records are pieces
// between its parts. Encoder and buffer are used again once the answer is done.
type FetchEncoder struct {
	version  int16
	flexible bool
	buf      []byte
	// cuts say before which byte of buf a records piece goes.
	cuts []cut
	resp Response
	free func() // gives the encoder back; made once
}

type cut struct {
	at    int
	piece Piece
}

// fetchBufferMax is the largest buffer that is kept for the next answer.
const fetchBufferMax = 1 << 20

var fetchEncoders = sync.Pool{New: func() any { return new(FetchEncoder) }}

func (e *FetchEncoder) recycle() {
	if cap(e.buf) <= fetchBufferMax {
		fetchEncoders.Put(e)
	}
}

// NewFetchEncoder begins the answer to req.
func NewFetchEncoder(req *Request, code ErrCode, session int32, topics int) *FetchEncoder {
	e := fetchEncoders.Get().(*FetchEncoder)
	if e.free == nil {
		e.free = e.recycle
	}
	e.version, e.flexible = req.Version, req.Version >= 12
	clear(e.cuts)
	e.cuts = e.cuts[:0]
	clear(e.resp.pieces)
	e.resp = Response{pieces: e.resp.pieces[:0], done: e.resp.done[:0]}
	e.buf = appendHeader(append(e.buf[:0], 0, 0, 0, 0), req, e.flexible)
	e.int32(0) // throttle time
	if e.version >= 7 {
		e.int16(int16(code))
		e.int32(session)
	}
	e.arrayLen(topics)
	return e
}

// OnDone adds f to what is called once the answer is written or dropped.
func (e *FetchEncoder) OnDone(f func()) { e.resp.OnDone(f) }

// Topic begins a topic: by name up to version 12, by id from 13 on.
func (e *FetchEncoder) Topic(name string, id types.TopicID, partitions int) {
	if e.version >= 13 {
		e.buf = append(e.buf, id[:]...)
	} else {
		e.string(name)
	}
	e.arrayLen(partitions)
}

// EndTopic ends a topic begun by Topic.
func (e *FetchEncoder) EndTopic() { e.noTags() }

// FetchPartition is one partition's part of a Fetch answer. The zero value of
// an offset isn't "none": set all of them.
type FetchPartition struct {
	Partition     int32
	Code          ErrCode
	HighWatermark types.Offset
	LastStable    types.Offset
	LogStart      types.Offset
	// Aborted is written if Committed is set; null otherwise.
	Committed bool
	Aborted   []AbortedTxn
	Records   []Piece
	// Preferred (v11) is the replica that a consumer is to read from, NoBroker for this one (KIP-392).
	Preferred types.BrokerID
	// DivergingEpoch (v12) is NoLeaderEpoch for none.
	DivergingEpoch types.LeaderEpoch
	DivergingEnd   types.Offset
	// Leader (v12) is NoBroker where there is no hint to give (KIP-951).
	Leader      types.BrokerID
	LeaderEpoch types.LeaderEpoch
}

// AbortedTxn is one aborted transaction in an answer to read_committed.
type AbortedTxn struct {
	ProducerID  types.ProducerID
	FirstOffset types.Offset
}

// Partition adds a partition to the topic begun last.
func (e *FetchEncoder) Partition(p *FetchPartition) {
	e.int32(p.Partition)
	e.int16(int16(p.Code))
	e.int64(int64(p.HighWatermark))
	e.int64(int64(p.LastStable))
	if e.version >= 5 {
		e.int64(int64(p.LogStart))
	}
	if p.Committed {
		e.arrayLen(len(p.Aborted))
		for _, a := range p.Aborted {
			e.int64(int64(a.ProducerID))
			e.int64(int64(a.FirstOffset))
			e.noTags()
		}
	} else {
		e.nullArray()
	}
	if e.version >= 11 {
		e.int32(int32(p.Preferred))
	}
	e.records(p.Records)
	if e.flexible {
		e.partitionTags(p)
	}
}

// records writes the length, and notes the pieces. Records are never null in
// an answer: clients of old versions stumble over it.
func (e *FetchEncoder) records(pieces []Piece) {
	var size int64
	for _, p := range pieces {
		size += p.Size()
	}
	if e.flexible {
		e.buf = binary.AppendUvarint(e.buf, uint64(size)+1)
	} else {
		e.int32(int32(size))
	}
	for _, p := range pieces {
		if p.Size() > 0 {
			e.cuts = append(e.cuts, cut{at: len(e.buf), piece: p})
		}
	}
}

// partitionTags writes the tagged fields: 0 diverging epoch, 1 current leader.
func (e *FetchEncoder) partitionTags(p *FetchPartition) {
	hasEpoch := p.DivergingEpoch != types.NoLeaderEpoch
	hasLeader := p.Leader != types.NoBroker || p.LeaderEpoch != types.NoLeaderEpoch
	count := byte(0)
	if hasEpoch {
		count++
	}
	if hasLeader {
		count++
	}
	e.buf = append(e.buf, count)
	if hasEpoch {
		e.buf = append(e.buf, 0, 13) // tag, size
		e.int32(int32(p.DivergingEpoch))
		e.int64(int64(p.DivergingEnd))
		e.buf = append(e.buf, 0)
	}
	if hasLeader {
		e.buf = append(e.buf, 1, 9)
		e.int32(int32(p.Leader))
		e.int32(int32(p.LeaderEpoch))
		e.buf = append(e.buf, 0)
	}
}

// Node is a broker's address in the answers of KIP-951.
type Node struct {
	ID   types.BrokerID
	Host string
	Port int32
	Rack string // "" for none
}

// Response ends the answer. nodes are the addresses of the leaders hinted at
// (v16). The encoder must not be used any more.
func (e *FetchEncoder) Response(nodes []Node) *Response {
	if e.flexible {
		e.nodes(nodes)
	}
	r := &e.resp
	from := 0
	for _, c := range e.cuts {
		r.add(Piece{Mem: e.buf[from:c.at]})
		r.add(c.piece)
		from = c.at
	}
	r.add(Piece{Mem: e.buf[from:]})
	binary.BigEndian.PutUint32(e.buf, uint32(r.size-4))
	r.OnDone(e.free)
	return r
}

func (e *FetchEncoder) nodes(nodes []Node) {
	if e.version < 16 || len(nodes) == 0 {
		e.noTags()
		return
	}
	start := len(e.buf)
	e.arrayLen(len(nodes))
	for _, n := range nodes {
		e.int32(int32(n.ID))
		e.string(n.Host)
		e.int32(n.Port)
		if n.Rack == "" {
			e.buf = append(e.buf, 0)
		} else {
			e.string(n.Rack)
		}
		e.noTags()
	}
	field := append([]byte(nil), e.buf[start:]...)
	e.buf = append(e.buf[:start], 1, 0) // one field, tag 0
	e.buf = binary.AppendUvarint(e.buf, uint64(len(field)))
	e.buf = append(e.buf, field...)
}

func (e *FetchEncoder) int16(v int16) { e.buf = binary.BigEndian.AppendUint16(e.buf, uint16(v)) }
func (e *FetchEncoder) int32(v int32) { e.buf = binary.BigEndian.AppendUint32(e.buf, uint32(v)) }
func (e *FetchEncoder) int64(v int64) { e.buf = binary.BigEndian.AppendUint64(e.buf, uint64(v)) }

func (e *FetchEncoder) arrayLen(n int) {
	if e.flexible {
		e.buf = binary.AppendUvarint(e.buf, uint64(n)+1)
	} else {
		e.int32(int32(n))
	}
}

func (e *FetchEncoder) nullArray() {
	if e.flexible {
		e.buf = append(e.buf, 0)
	} else {
		e.int32(-1)
	}
}

func (e *FetchEncoder) string(s string) {
	if e.flexible {
		e.buf = binary.AppendUvarint(e.buf, uint64(len(s))+1)
	} else {
		e.int16(int16(len(s)))
	}
	e.buf = append(e.buf, s...)
}

// noTags ends a structure that has no tagged fields.
func (e *FetchEncoder) noTags() {
	if e.flexible {
		e.buf = append(e.buf, 0)
	}
}
