package net

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	mrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tidemark/internal/await"
	"tidemark/internal/wire"
)

// diskFile is a file with a descriptor, memFile one without.
type diskFile struct{ *os.File }

func (f diskFile) Fd() (uintptr, bool) { return f.File.Fd(), true }

type memFile struct{ *bytes.Reader }

func (memFile) Fd() (uintptr, bool) { return 0, false }

func testFile(t testing.TB, content []byte) diskFile {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "records"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	return diskFile{f}
}

func pattern(n int) []byte {
	b := make([]byte, n)
	r := mrand.New(mrand.NewPCG(1, 2))
	for i := 0; i+8 <= n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	return b
}

// framed makes an answer of these pieces behind a size field, and what it must
// look like on the wire.
func framed(pieces ...wire.Piece) (*wire.Response, []byte) {
	var body []byte
	for _, p := range pieces {
		part := p.Mem
		if p.File != nil {
			part = make([]byte, p.Len)
			if _, err := p.File.ReadAt(part, p.Off); err != nil {
				panic(err)
			}
		}
		body = append(body, part...)
	}
	size := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	return wire.NewResponse(append([]wire.Piece{{Mem: size}}, pieces...)...), append(size, body...)
}

func TestPiecesArriveInOrder(t *testing.T) {
	content := pattern(9 << 20)
	disk := testFile(t, content)
	mem := memFile{bytes.NewReader(content)}
	cert, pool := selfSigned(t)
	shapes := map[string]func(f wire.File) []wire.Piece{
		"memory alone":   func(wire.File) []wire.Piece { return []wire.Piece{{Mem: content[:100_000]}} },
		"one file piece": func(f wire.File) []wire.Piece { return []wire.Piece{{File: f, Off: 0, Len: 10}} },
		"headers between": func(f wire.File) []wire.Piece {
			return []wire.Piece{{Mem: []byte("head")}, {File: f, Off: 4097, Len: 16 << 10}, {Mem: []byte("next")},
				{File: f, Off: 3, Len: 1}, {Mem: []byte("tail")}}
		},
		"larger than every buffer": func(f wire.File) []wire.Piece {
			return []wire.Piece{{Mem: []byte("head")}, {File: f, Off: 1, Len: 9<<20 - 1}, {Mem: content[:300<<10]}}
		},
		"headers between large ones": func(f wire.File) []wire.Piece {
			return []wire.Piece{{Mem: []byte("head")}, {File: f, Off: 4097, Len: 160 << 10}, {Mem: []byte("next")},
				{File: f, Off: 3, Len: 100_001}, {Mem: []byte("tail")}}
		},
		"the same file twice": func(f wire.File) []wire.Piece {
			return []wire.Piece{{File: f, Off: 1 << 20, Len: 1 << 20}, {File: f, Off: 0, Len: 1 << 20}}
		},
	}
	for _, tc := range []struct {
		name string
		file wire.File
		tls  bool
	}{{"sendfile", disk, false}, {"memory file", mem, false}, {"TLS", disk, true}} {
		for shape, pieces := range shapes {
			t.Run(tc.name+"/"+shape, func(t *testing.T) {
				released := make(chan struct{})
				resp, want := framed(pieces(tc.file)...)
				resp.OnDone(func() { close(released) })
				l := Listener{}
				if tc.tls {
					l.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
				}
				_, addr := start(t, Options{Handler: handlerFunc(func(context.Context, *wire.Request) (*wire.Response, error) {
					return resp, nil
				})}, l)
				var c net.Conn = dial(t, addr)
				if tc.tls {
					c = tls.Client(c, &tls.Config{RootCAs: pool, ServerName: "localhost"})
				}
				send(t, c, heartbeat(1))
				got := make([]byte, len(want))
				if _, err := io.ReadFull(c, got); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, want) {
					t.Fatal("the bytes differ from the pieces")
				}
				<-released
			})
		}
	}
}

// Many connections send ranges of one descriptor at once, to slow readers with
// full socket buffers: each gets its own range (EAGAIN, explicit offsets).
func TestOneFileServesManyConnections(t *testing.T) {
	const n, size = 8, 3 << 20
	content := pattern(n * size)
	disk := testFile(t, content)
	_, addr := start(t, Options{Handler: handlerFunc(func(_ context.Context, req *wire.Request) (*wire.Response, error) {
		r, _ := framed(wire.Piece{File: disk, Off: int64(req.CorrelationID) * size, Len: size})
		return r, nil
	})}, Listener{})
	errs := make(chan error, n)
	for i := range n {
		c := dial(t, addr)
		if err := c.SetReadBuffer(128 << 10); err != nil {
			t.Fatal(err)
		}
		send(t, c, heartbeat(int32(i)))
		go func() {
			got := make([]byte, 4+size)
			if _, err := io.ReadFull(c, got); err != nil {
				errs <- err
				return
			}
			if !bytes.Equal(got[4:], content[i*size:(i+1)*size]) {
				errs <- errors.New("another range's bytes")
				return
			}
			errs <- nil
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestFileThatEndsEarlyClosesTheConnection(t *testing.T) {
	for name, f := range map[string]wire.File{
		"sendfile": testFile(t, pattern(100_000)), "memory file": memFile{bytes.NewReader(pattern(100_000))},
	} {
		t.Run(name, func(t *testing.T) {
			released := make(chan struct{})
			_, addr := start(t, Options{Handler: handlerFunc(func(context.Context, *wire.Request) (*wire.Response, error) {
				r := wire.NewResponse(wire.Piece{Mem: []byte{0, 2, 0, 0}}, wire.Piece{File: f, Off: 0, Len: 128 << 10})
				r.OnDone(func() { close(released) })
				return r, nil
			})}, Listener{})
			c := dial(t, addr)
			send(t, c, heartbeat(1))
			if _, _, err := receive(c); err == nil {
				t.Fatal("a whole answer of half a file")
			}
			<-released
		})
	}
}

func TestClientThatReadsNothingIsCutOff(t *testing.T) {
	disk := testFile(t, pattern(32<<20))
	s, addr := start(t, Options{StallTimeout: 100 * time.Millisecond, Handler: handlerFunc(func(context.Context, *wire.Request) (*wire.Response, error) {
		r, _ := framed(wire.Piece{File: disk, Off: 0, Len: 32 << 20})
		return r, nil
	})}, Listener{})
	c := dial(t, addr)
	send(t, c, heartbeat(1))
	await.True(t, "the stall to be counted", func() bool { return s.Stats().Stalled.Load() == 1 })
}

func TestCertificateIsReloaded(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem")
	first, pool1 := writeCert(t, certFile, keyFile)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cfg, err := ReloadTLS(ctx, nil, certFile, keyFile, time.Millisecond, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	_, addr := start(t, Options{Handler: handlerFunc(echo)}, Listener{TLS: cfg})
	serving := func(pool *x509.CertPool) *x509.Certificate {
		c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: pool, ServerName: "localhost"})
		if err != nil {
			return nil
		}
		defer func() { _ = c.Close() }()
		return c.ConnectionState().PeerCertificates[0]
	}
	if got := serving(pool1); got == nil || got.SerialNumber.Cmp(first) != 0 {
		t.Fatal("the first certificate isn't served")
	}
	// A half-written renewal leaves the old one in place.
	if err := os.WriteFile(certFile, []byte("not a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := serving(pool1); got == nil {
		t.Fatal("an unreadable certificate was taken")
	}
	second, pool2 := writeCert(t, certFile, keyFile)
	await.True(t, "the second certificate", func() bool {
		got := serving(pool2)
		return got != nil && got.SerialNumber.Cmp(second) == 0
	})
	own, err := cfg.GetClientCertificate(nil) // what a client of the same node shows
	if err != nil || own.Leaf.SerialNumber.Cmp(second) != 0 {
		t.Errorf("a client shows %v, %v", own, err)
	}
}

// serial numbers test certificates apart.
var serial int64

func selfSigned(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	dir := t.TempDir()
	_, pool := writeCert(t, filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem"))
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem"))
	if err != nil {
		t.Fatal(err)
	}
	return cert, pool
}

func writeCert(t testing.TB, certFile, keyFile string) (*big.Int, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial++
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "localhost"},
		DNSNames: []string{"localhost"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	if err := errors.Join(os.WriteFile(keyFile, keyPEM, 0o600), os.WriteFile(certFile, certPEM, 0o600)); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return tmpl.SerialNumber, pool
}

// A write of header and records allocates nothing.
func TestSendfileAllocatesNothing(t *testing.T) {
	disk := testFile(t, pattern(64<<10))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	c := dial(t, ln.Addr().String())
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, c)
	}()
	w := newWriter(peer, time.Minute)
	resp, _ := framed(wire.Piece{File: disk, Off: 0, Len: 64 << 10})
	got := testing.AllocsPerRun(100, func() {
		if err := w.write(resp); err != nil {
			t.Fatal(err)
		}
	})
	if got > 0 {
		t.Errorf("%v allocations per answer, want 0", got)
	}
	_ = peer.Close()
	<-drained
}
