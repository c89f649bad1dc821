package consumer

import "fmt"

// Code is one of Kafka's protocol error codes.
type Code int16

// The codes that heartbeats, commits and fetches of offsets are refused with, by Kafka's numbers.
const (
	UnknownMemberID          Code = 25
	UnsupportedVersion       Code = 35
	InvalidRequest           Code = 42
	GroupIDNotFound          Code = 69
	GroupMaxSizeReached      Code = 81
	FencedInstanceID         Code = 82
	FencedMemberEpoch        Code = 110
	UnreleasedInstanceID     Code = 111
	UnsupportedAssignor      Code = 112
	StaleMemberEpoch         Code = 113
	InvalidRegularExpression Code = 128
)

// Refusal is why a request isn't carried out: Kafka's code, and a sentence for people.
type Refusal struct {
	Code    Code
	Message string
}

func refuse(code Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}
