package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/twmb/franz-go/pkg/kerr"

	"tidemark/internal/core/errcode"
)

// The kinds of failure; every error of this package is one of them by errors.Is.
var (
	// ErrConfig is a client properties file that can't be used as it stands.
	ErrConfig = errors.New("source configuration")
	// ErrUnreachable is a broker that can't be connected to or that closed the connection.
	ErrUnreachable = errors.New("source unreachable")
	// ErrTimeout is a request or a handshake that took longer than allowed.
	ErrTimeout = errors.New("source timed out")
	// ErrTLS is a TLS handshake that failed: trust, name, protocol.
	ErrTLS = errors.New("source TLS")
	// ErrAuth is a refused log-in or a missing permission on the whole cluster.
	ErrAuth = errors.New("source authentication")
	// ErrTooOld is a source that lacks an API version that a mirror can't do without.
	ErrTooOld = errors.New("source too old")
	// ErrOtherCluster is a broker that belongs to another cluster than the pinned one (R26).
	ErrOtherCluster = errors.New("other cluster")
	// ErrProtocol is an answer that breaks the protocol.
	ErrProtocol = errors.New("source broke the protocol")
	// ErrAnswer is a well-formed answer with a Kafka error code for the whole request; see Code.
	ErrAnswer = errors.New("source refused the request")
	// ErrClosed is a call on a closed Client.
	ErrClosed = errors.New("source client closed")
)

// Error is a failure of a call to the source.
type Error struct {
	// Kind is one of the Err values above.
	Kind error
	// Broker is the address the call went to, empty if none was reached.
	Broker string
	// Op names the API or the step, for example "Fetch v12" or "TLS handshake".
	Op string
	// Sentence says what is wrong and what to do, without Broker and Op.
	Sentence string
	// ClusterID is the cluster that answered, for ErrOtherCluster.
	ClusterID string
	// Code is the Kafka error code behind the failure, 0 if there is none.
	Code Code
	// Cause is the error below, nil if Sentence says it all.
	Cause error
}

// Error gives the operator's sentence: broker, step, what is wrong, cause.
func (e *Error) Error() string {
	s := e.Sentence
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	switch {
	case e.Broker != "" && e.Op != "":
		return e.Broker + ": " + e.Op + ": " + s
	case e.Broker != "":
		return e.Broker + ": " + s
	case e.Op != "":
		return e.Op + ": " + s
	}
	return s
}

// Unwrap lets errors.Is find the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// IsRetriable reports whether the same call may succeed later without anybody
// changing a configuration: unreachable, timed out, closed or garbled, or a
// Kafka error that Kafka calls retriable.
func IsRetriable(err error) bool {
	var se *Error
	if errors.As(err, &se) && errors.Is(se.Kind, ErrAnswer) {
		return isRetriable(se.Code)
	}
	return errors.Is(err, ErrUnreachable) || errors.Is(err, ErrTimeout) || errors.Is(err, ErrProtocol)
}

// Code is a Kafka error code, 0 for none.
type Code = errcode.Code

// The codes that callers tell apart.
const (
	CodeNone                     = errcode.None
	CodeOffsetOutOfRange         = errcode.OffsetOutOfRange
	CodeCorruptMessage           = errcode.CorruptMessage
	CodeUnknownTopicOrPartition  = errcode.UnknownTopicOrPartition
	CodeLeaderNotAvailable       = errcode.LeaderNotAvailable
	CodeNotLeaderOrFollower      = errcode.NotLeaderOrFollower
	CodeCoordinatorNotAvailable  = errcode.CoordinatorNotAvailable
	CodeNotCoordinator           = errcode.NotCoordinator
	CodeTopicAuthorizationFailed = errcode.TopicAuthorizationFailed
	CodeGroupAuthorizationFailed = errcode.GroupAuthorizationFailed
	CodeClusterAuthFailed        = errcode.ClusterAuthorizationFailed
	CodeUnsupportedVersion       = errcode.UnsupportedVersion
	CodeSASLAuthenticationFailed = errcode.SaslAuthenticationFailed
	CodeFetchSessionIDNotFound   = errcode.FetchSessionIDNotFound
	CodeInvalidFetchSessionEpoch = errcode.InvalidFetchSessionEpoch
	CodeListenerNotFound         = errcode.ListenerNotFound
	CodeFencedLeaderEpoch        = errcode.FencedLeaderEpoch
	CodeUnknownLeaderEpoch       = errcode.UnknownLeaderEpoch
	CodeUnknownTopicID           = errcode.UnknownTopicID
	CodeInconsistentTopicID      = errcode.InconsistentTopicID
	CodeFetchSessionTopicIDError = errcode.FetchSessionTopicIDError
)

// isRetriable reports whether Kafka calls the code retriable.
func isRetriable(c Code) bool {
	e := kerr.TypedErrorForCode(int16(c))
	return e != nil && e.Retriable
}

// describe gives Kafka's description of the code after its name.
func describe(c Code) string {
	e := kerr.TypedErrorForCode(int16(c))
	if e == nil {
		return "no error"
	}
	if e.Code != int16(c) { // one that the library doesn't know
		return c.String()
	}
	return c.String() + " (" + e.Description + ")"
}

// answerError is the error for a code that refuses the whole request.
func answerError(broker, op string, code Code, about string) error {
	kind := ErrAnswer
	sentence := describe(code)
	switch code {
	case CodeTopicAuthorizationFailed, CodeGroupAuthorizationFailed, CodeClusterAuthFailed:
		kind = ErrAuth
		sentence = "the source's user lacks a permission: " + sentence
	case CodeSASLAuthenticationFailed:
		kind = ErrAuth
	}
	if about != "" {
		sentence = about + ": " + sentence
	}
	return &Error{Kind: kind, Broker: broker, Op: op, Code: code, Sentence: sentence}
}

// protocolError is the error for an answer that can't be right.
func protocolError(broker, op, format string, args ...any) error {
	return &Error{Kind: ErrProtocol, Broker: broker, Op: op, Sentence: fmt.Sprintf(format, args...)}
}

// ioError classifies an error of dialling, reading or writing.
func ioError(broker, op string, err error) error {
	var se *Error
	if errors.As(err, &se) {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	var ne net.Error
	if errors.Is(err, context.DeadlineExceeded) || (errors.As(err, &ne) && ne.Timeout()) {
		return &Error{Kind: ErrTimeout, Broker: broker, Op: op, Sentence: "no answer in time", Cause: err}
	}
	if isAlert(err) {
		return alertError(broker, err)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &Error{Kind: ErrUnreachable, Broker: broker, Op: op, Sentence: "the broker closed the connection"}
	}
	return &Error{Kind: ErrUnreachable, Broker: broker, Op: op, Sentence: "can't be reached", Cause: inWords(err)}
}

// inWords leaves of a network error what the system said: the broker's address
// is named beside it.
func inWords(err error) error {
	var call *os.SyscallError
	if errors.As(err, &call) {
		return call.Err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
