package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"
)

// Logger makes the logger that etcd wants out of ours. etcd's own levels are
// kept, but its information is our debugging: a broker's log is not about
// etcd. A nil logger drops everything.
func Logger(logger *slog.Logger) *zap.Logger {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	// Where etcd would end the process, it panics: a start can turn that into an
	// error, and a crash later at least has a trace.
	return zap.New(&slogCore{logger: logger}, zap.WithFatalHook(zapcore.WriteThenPanic))
}

// ServerLogger is Logger for a server in this process. Where it would end the process,
// or panic, ended is told why and the goroutine alone ends: the server is over then.
func ServerLogger(logger *slog.Logger, ended func(error)) *zap.Logger {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	end := endOfServer(ended)
	return zap.New(&slogCore{logger: logger, tellsEnd: true}, zap.WithFatalHook(end), zap.WithPanicHook(end))
}

// endOfServer is what a server's last entry leads to.
type endOfServer func(error)

// OnWrite implements zapcore.CheckWriteHook. It doesn't return.
func (ended endOfServer) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := errors.New("etcd: " + entry.Message)
	for _, f := range fields {
		if cause, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType && cause != nil {
			err = fmt.Errorf("etcd: %s: %w", entry.Message, cause)
		}
	}
	ended(err)
	runtime.Goexit()
}

// slogCore writes zap's entries to slog.
type slogCore struct {
	logger *slog.Logger
	// tellsEnd: whoever asked is told of the server's end and its cause.
	tellsEnd bool
}

var _ zapcore.Core = (*slogCore)(nil)

// said by every etcd that runs as we mean it to, or while it stops.
var harmless = []string{
	"Running http and grpc server on single port",
	"it isn't recommended to use default name",
	"server closed",
	"use of closed network connection",
	"simple token is not cryptographically signed",
	"stopped grpc server due to error",
	// A learner asks to be promoted until it has caught up, and a node is taken in
	// once the members have been connected for five seconds: both are asked again.
	"rejecting promote learner",
	"local member has not been connected to majority peers",
	"learner is not ready",
	"unhealthy cluster",
	"retrying of unary invoker failed",
	// A member that starts stands for election before it has read its own log.
	"pending configuration changes to apply",
	// A member's database before its first snapshot.
	"failed to detect schema version",
	"cannot detect storage schema version",
	// A member that went away is told once, as a peer that became inactive.
	"tcp streaming connection with remote peer",
	"prober detected unhealthy status",
	"failed to reach the peer url",
	"failed to get version",
	"failed to find remote peer in cluster",
	"failed to publish local member to cluster through raft",
	// A database says the same once more, in words.
	"writeat failed, offset",
}

func level(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.ErrorLevel:
		return slog.LevelError
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// Enabled implements zapcore.LevelEnabler.
func (c *slogCore) Enabled(l zapcore.Level) bool {
	return l > zapcore.DebugLevel && c.logger.Enabled(context.Background(), level(l))
}

// With implements zapcore.Core.
func (c *slogCore) With(fields []zapcore.Field) zapcore.Core {
	return &slogCore{logger: c.logger.With(attributes(fields)...), tellsEnd: c.tellsEnd}
}

// Check implements zapcore.Core.
func (c *slogCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write implements zapcore.Core.
func (c *slogCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	l := level(entry.Level)
	if isHarmless(entry.Message, fields) || c.tellsEnd && isFullDisk(entry.Message, fields) {
		l = slog.LevelDebug
	}
	c.logger.Log(context.Background(), l, "etcd: "+entry.Message, attributes(fields)...)
	return nil
}

// Sync implements zapcore.Core.
func (c *slogCore) Sync() error { return nil }

func isHarmless(message string, fields []zapcore.Field) bool {
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType && err != nil {
			if errors.Is(err, context.Canceled) {
				return true // what a member that stops, or a client that went away, interrupts
			}
			message += " " + err.Error()
		}
	}
	for _, h := range harmless {
		if strings.Contains(strings.ToLower(message), strings.ToLower(h)) {
			return true
		}
	}
	return false
}

// isFullDisk reports whether an entry is of a disk, or a quota, that is full. A server ends
// by it at once, or not at all: its end says so in one sentence, with the way out, where etcd and
// its database say it line by line.
func isFullDisk(message string, fields []zapcore.Field) bool {
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType && err != nil {
			message += " " + err.Error()
		}
	}
	for _, full := range []string{unix.ENOSPC.Error(), unix.EDQUOT.Error()} {
		if strings.Contains(message, full) {
			return true
		}
	}
	return false
}

func attributes(fields []zapcore.Field) []any {
	enc := zapcore.NewMapObjectEncoder()
	attrs := make([]any, 0, len(fields))
	for _, f := range fields {
		f.AddTo(enc)
	}
	for _, f := range fields {
		if v, ok := enc.Fields[f.Key]; ok {
			attrs = append(attrs, slog.Any(f.Key, v))
		}
	}
	return attrs
}
