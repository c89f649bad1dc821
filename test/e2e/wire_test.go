package e2e

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"tidemark/test/e2e/harness"
)

// rawConn is a connection that speaks frames made by hand.
func rawConn(t *testing.T, b *harness.Broker) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", b.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(harness.Patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

func sendHex(t *testing.T, c net.Conn, frame string) {
	t.Helper()
	b, err := hex.DecodeString(frame)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)); err != nil {
		t.Fatal(err)
	}
}

func readFrame(t *testing.T, c net.Conn) []byte {
	t.Helper()
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		t.Fatalf("no answer: %v", err)
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	return b
}

func wantClosed(t *testing.T, c net.Conn) {
	t.Helper()
	var b [1]byte
	n, err := c.Read(b[:])
	var timeout net.Error
	if err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatalf("connection still open: read %d bytes, %v", n, err)
	}
}

// A version of ApiVersions from the future gets an answer in version 0 and may
// go on (KIP-511); everything else that we don't know closes the connection.
func TestUnknownRequests(t *testing.T) {
	b := harness.StartBroker(t)
	c := rawConn(t, b)
	sendHex(t, c, "00120063"+"00000007"+"ffff"+"deadbeef")
	if got, want := hex.EncodeToString(readFrame(t, c)), "00000007"+"0023"+"00000001"+"001200000005"; got != want {
		t.Errorf("answer %s, want %s", got, want)
	}
	sendHex(t, c, "00120000"+"00000008"+"ffff")
	if got := readFrame(t, c); len(got) < 10 || got[3] != 8 || got[4] != 0 || got[5] != 0 {
		t.Errorf("the connection doesn't go on: %x", got)
	}
	for name, frame := range map[string]string{
		"key 999":         "03e70000" + "00000001" + "ffff",
		"Metadata 99":     "00030063" + "00000001" + "ffff",
		"Produce 2":       "00000002" + "00000001" + "ffff" + "0001" + "00000000" + "00000000",
		"EndTxn":          "001a0000" + "00000001" + "ffff",
		"Metadata's list": "00030001" + "00000001" + "ffff" + "7fffffff",
		"no client id":    "00030001" + "00000001",
	} {
		t.Run(name, func(t *testing.T) {
			c := rawConn(t, b)
			sendHex(t, c, frame)
			wantClosed(t, c)
		})
	}
	for name, size := range map[string]uint32{"negative": 1 << 31, "2 GiB": 1<<31 - 1, "zero": 0} {
		t.Run("frame of size "+name, func(t *testing.T) {
			c := rawConn(t, b)
			if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, size), make([]byte, 12)...)); err != nil {
				t.Fatal(err)
			}
			wantClosed(t, c)
		})
	}
	b.CreateTopic(t, "alive", 1, nil)
}
