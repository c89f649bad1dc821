package api

import (
	"net"

	"tidemark/internal/core/errcode"
	"tidemark/internal/wire"
)

// What the group APIs (keys 8 to 16, 42, 47) share.

// text reads a nullable string; null and "" say the same in all group APIs.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func wireCode(c errcode.Code) int16 { return int16(c) }

// clientHost is the client's address in Kafka's form (Java's InetAddress.toString).
func clientHost(req *wire.Request) string {
	if req.Remote == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(req.Remote.String())
	if err != nil {
		host = req.Remote.String()
	}
	return "/" + host
}
