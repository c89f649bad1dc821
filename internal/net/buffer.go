package net

import (
	"math/bits"
	"sync"

	"tidemark/internal/wire"
)

// frameBuffer is the memory of one frame. Produce frames come from pools by
// power of two, as their bytes are in the log, or refused, once the answer is
// written. All others are fresh: group members' metadata outlive their request.
type frameBuffer struct {
	bytes []byte
	class int // index into framePools; -1 if not pooled
}

const (
	frameClassMin = 12 // 4 KiB
	frameClassMax = 23 // 8 MiB; larger ones are rare enough for the collector
)

var framePools [frameClassMax - frameClassMin + 1]sync.Pool

func newFrameBuffer(p wire.Prefix) *frameBuffer {
	size := int(p.Size)
	if p.Key != wire.KeyProduce || size > 1<<frameClassMax {
		return &frameBuffer{bytes: make([]byte, size), class: -1}
	}
	class := max(bits.Len(uint(size-1)), frameClassMin) - frameClassMin
	if f, ok := framePools[class].Get().(*frameBuffer); ok {
		f.bytes = f.bytes[:size]
		return f
	}
	return &frameBuffer{bytes: make([]byte, size, 1<<(class+frameClassMin)), class: class}
}

func (f *frameBuffer) free() {
	if f.class >= 0 {
		framePools[f.class].Put(f)
	}
}
