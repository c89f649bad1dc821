// Package wire is the Kafka protocol's outer shell: frames, request headers,
// the table of APIs and versions, error codes, and answers as lists of pieces.
//
// It owns the rule which (key, version) pairs exist (the ranges of Apache
// Kafka 4.4), how a header of each version is read, and how an answer is laid
// out, so that record bytes can go from file to socket without a copy. Bodies
// are decoded and encoded by kmsg, but for the Fetch answer, whose records are
// pieces, and for the APIs of our own (keys from 32,000 up), whose messages are
// written here as kmsg messages: everything else treats them as any other.
//
// It never does I/O of its own beyond io.Reader, knows no broker, and never
// panics on bytes from outside: every size is checked before memory is taken
// for it.
//
// Tested by hex goldens, by a round trip of every message through kmsg, and by
// fuzz targets for frame, header and every request body.
package wire
