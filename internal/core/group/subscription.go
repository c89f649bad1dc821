package group

import "errors"

// consumerProtocolType is the protocol type of consumers. Its metadata begins
// with the subscribed topics; other types ("connect", …) are opaque.
const consumerProtocolType = "consumer"

var errSubscription = errors.New("not a consumer protocol subscription")

// subscribedTopics reads the topics of a ConsumerProtocolSubscription: a
// version (int16), then an array of strings; what follows is left alone, as
// later versions only append.
func subscribedTopics(metadata []byte) ([]string, error) {
	if len(metadata) < 6 {
		return nil, errSubscription
	}
	version := int16(metadata[0])<<8 | int16(metadata[1])
	if version < 0 {
		return nil, errSubscription
	}
	b := metadata[2:]
	n := int(int32(b[0])<<24 | int32(b[1])<<16 | int32(b[2])<<8 | int32(b[3]))
	b = b[4:]
	if n < 0 || n > len(b)/2 {
		return nil, errSubscription
	}
	topics := make([]string, 0, n)
	for range n {
		if len(b) < 2 {
			return nil, errSubscription
		}
		size := int(int16(b[0])<<8 | int16(b[1]))
		b = b[2:]
		if size < 0 || size > len(b) {
			return nil, errSubscription
		}
		topics = append(topics, string(b[:size]))
		b = b[size:]
	}
	return topics, nil
}
