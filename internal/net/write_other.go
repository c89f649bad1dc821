//go:build !linux

package net

import (
	"net"
	"time"
)

// newSendfileWriter says that this system has no sendfile we use.
func newSendfileWriter(*net.TCPConn, time.Duration) (writer, bool) { return nil, false }
