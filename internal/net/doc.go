// Package net is the broker's network server: listeners, connections, limits,
// and the way answers get onto the socket.
//
// It owns everything between accept and a parsed request, and between an
// answer's pieces and the socket: TLS, the frame limit, the memory that
// requests may take in all, the number of connections in all and per address,
// idle and stalled connections, the order of answers, and shutdown. Plain
// connections get file pieces by sendfile with an explicit offset and MSG_MORE
// headers; others through pooled buffers.
//
// It never looks into a body, and never lets bytes from outside take the
// process down: a panic in a handler is counted, logged and closes its
// connection only.
//
// Tested over real loopback sockets: order, pipelining, limits, partial
// frames, slow readers, shutdown, sendfile with full socket buffers; goleak
// watches the goroutines.
package net
