package broker

import (
	"context"
	"errors"
	stdnet "net"
	"testing"

	"tidemark/internal/config"
	"tidemark/internal/metastore"
)

// patientStore can't be read, but only says so once asked.
type patientStore struct {
	metastore.Store
	asked, answer chan struct{}
}

func (s *patientStore) Get(ctx context.Context, key string) (metastore.KV, metastore.Revision, error) {
	select {
	case s.asked <- struct{}{}:
	default:
	}
	select {
	case <-s.answer:
	case <-ctx.Done():
	}
	return metastore.KV{}, 0, metastore.ErrUnavailable
}

func (s *patientStore) Range(ctx context.Context, _ string) ([]metastore.KV, metastore.Revision, error) {
	_, _, err := s.Get(ctx, "")
	return nil, 0, err
}

// TestAFailedStartWaitsForNobody: clients whose requests wait for a node to
// become ready don't keep it from ending when it can't.
func TestAFailedStartWaitsForNobody(t *testing.T) {
	l, err := stdnet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, "listeners=PLAINTEXT://"+addr)
	store := &patientStore{Store: w.store, asked: make(chan struct{}, 1), answer: make(chan struct{})}
	cfg, _, err := config.Resolve(w.set)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := Open(testContext(t), cfg, Options{FS: w.fs, Store: store})
		failed <- err
	}()
	<-store.asked
	nc, err := stdnet.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	apiVersions := []byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 255, 255} // v0 with no client id
	if _, err := nc.Write(apiVersions); err != nil {
		t.Fatal(err)
	}
	close(store.answer)
	select {
	case err := <-failed:
		if !errors.Is(err, metastore.ErrUnavailable) {
			t.Errorf("the start failed with %v", err)
		}
	case <-testContext(t).Done():
		t.Fatal("the start that failed waits for a client")
	}
}
