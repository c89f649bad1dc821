package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"

	"tidemark/internal/metastore/etcd"
)

func TestLogger(t *testing.T) {
	var out bytes.Buffer
	log := etcd.Logger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})))
	f := func(say func(), want string) {
		t.Helper()
		out.Reset()
		say()
		got := out.String()
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("logged %q, want %q", got, want)
		}
	}
	f(func() { log.Info("chatter") }, "")
	f(func() { log.Debug("chatter") }, "")
	f(func() { log.Warn("slow disk", zap.Int("ms", 7)) }, `level=WARN msg="etcd: slow disk" ms=7`)
	f(func() { log.Error("bad", zap.Error(errors.New("torn"))) }, `level=ERROR msg="etcd: bad" error=torn`)
	f(func() { log.Error("stopping", zap.Error(errors.New("etcdserver: server closed"))) }, "")
	f(func() { log.Error("can't write", zap.Error(syscall.ENOSPC)) }, "level=ERROR") // a client's: nobody else says it
	f(func() { log.Error("writeAt failed, offset: 7: %!w(*fs.PathError=&{write db 28})") }, "")
	f(func() { log.Error("rejecting promote learner: learner is not ready") }, "")
	f(func() {
		log.Warn("failed to update cluster version", zap.Error(fmt.Errorf("apply: %w", context.Canceled)))
	}, "")
	f(func() { log.Warn("failed to update cluster version", zap.Error(context.DeadlineExceeded)) }, "cluster version")
	f(func() { log.Warn("lost TCP streaming connection with remote peer") }, "")
	f(func() { log.Warn("peer became inactive (message send to peer failed)") }, "became inactive")
	f(func() { log.With(zap.String("member", "m")).Warn("x") }, "member=m")

	for _, quiet := range []*zap.Logger{log, etcd.Logger(nil)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a fatal message would have ended the process")
				}
			}()
			quiet.Fatal("disk failed")
		}()
	}
}

// TestServerLogger: where a server would end the process, its goroutine ends alone, and the cause is told.
func TestServerLogger(t *testing.T) {
	cause := errors.New("no space left")
	for _, say := range []func(*zap.Logger){
		func(l *zap.Logger) { l.Fatal("failed to save", zap.Int("n", 1), zap.Error(cause)) },
		func(l *zap.Logger) { l.Panic("failed to save", zap.Error(cause)) },
	} {
		var told error
		returned := false
		done := make(chan struct{})
		go func() {
			defer close(done)
			say(etcd.ServerLogger(nil, func(err error) { told = err }))
			returned = true
		}()
		<-done
		if returned || !errors.Is(told, cause) || told.Error() != "etcd: failed to save: no space left" {
			t.Errorf("it went on: %v, told %v", returned, told)
		}
	}
}

// TestAServersFullDiskIsToldOnce: by whoever is told of the server's end, and not by each line
// of etcd and its database before.
func TestAServersFullDiskIsToldOnce(t *testing.T) {
	var out bytes.Buffer
	log := etcd.ServerLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})), func(error) {})
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		log.Error("failed to preallocate space", zap.Int("size", 8), zap.Error(fmt.Errorf("create: %w", full)))
		log.With(zap.String("database", "db")).Error("writing data failed: write db: " + full.Error())
	}
	if out.Len() > 0 {
		t.Errorf("it logs:\n%s", out.String())
	}
	log.Error("failed to commit tx", zap.Error(syscall.EIO))
	if !strings.Contains(out.String(), "level=ERROR") {
		t.Errorf("of another fault: %q", out.String())
	}
}
