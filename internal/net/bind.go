package net

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Bind listens on a TCP address. Its error names the address, what is in the
// way, and the option that chooses another.
func Bind(address, option string) (net.Listener, error) {
	ln, err := net.Listen("tcp", address)
	switch {
	case err == nil:
		return ln, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s is in use by another process: stop that one, or choose another address with %s", address, option)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%s is no address of this host: choose one with %s", address, option)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s: this user may not listen there: choose a port above 1023 with %s", address, option)
	default:
		return nil, fmt.Errorf("can't listen on %s, chosen with %s: %w", address, option, err)
	}
}
