package api

import (
	"fmt"
	"regexp"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/meta"
	"tidemark/internal/wire"
)

// ApiVersions (key 18): what this broker speaks.
//
// Behaviour
//   - Lists the APIs that have a handler and that the cluster's feature levels let
//     clients use, with Kafka 4.4's ranges. Produce is
//     advertised from 0 although it is served from 3: librdkafka before 2.11
//     turns compression off otherwise (KAFKA-18659).
//   - Our own APIs (keys from 32,000 up) are listed for clients whose software
//     name is "tidemark" alone: others may not expect keys that Kafka lacks.
//   - A version that we don't know is answered in version 0 with
//     UNSUPPORTED_VERSION and the range of ApiVersions itself (KIP-511); the
//     body isn't read.
//   - A client name or version that isn't of Kafka's form is INVALID_REQUEST.
//   - Features are those of meta.KnownFeatures: clients turn transactions v2 on by
//     what they see here.
//
// Versions
//   - 1: throttle time. 3: flexible body (never header), client name and
//     version. 4: features may begin at 0. 5: cluster and node id of the broker
//     that the client means to reach (KIP-1242); another one gets REBOOTSTRAP_REQUIRED.
//     The connection is closed then, which Kafka leaves to the client: Java's (4.4) closes
//     those to the brokers of its metadata alone, and waits for its coordinator's (ADR 33).
//   - 5: a client that means to reach a cluster that this one mirrors has come by a failover,
//     by an address that leads here now: it is taken as before version 5, and learns the
//     rest from the metadata. Java's would forget all it knows, and may fail at it.
func (c *Call) apiVersions(in *kmsg.ApiVersionsRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrApiVersionsResponse()
	if code := c.checkClient(in); code != wire.None {
		out.ErrorCode, c.last = int16(code), code == wire.ErrRebootstrapRequired
		return out, nil
	}
	for _, e := range c.keys {
		if !c.isFinalized(e.key) {
			continue
		}
		out.ApiKeys = append(out.ApiKeys, advertised(e.key))
	}
	if in.Version >= 3 {
		c.features(in.Version, out)
	}
	if in.Version >= 3 && in.ClientSoftwareName == wire.SoftwareName {
		for _, e := range c.own {
			out.ApiKeys = append(out.ApiKeys, advertised(e.key))
		}
	}
	return out, nil
}

// isFinalized reports whether the cluster's feature levels let an API be used. One that
// they don't is none for clients, so that they take the other way that they have.
func (c *Call) isFinalized(key wire.Key) bool {
	switch key {
	case wire.KeyConsumerGroupHeartbeat, wire.KeyConsumerGroupDescribe:
		return c.Image.FeatureLevel(meta.FeatureGroups) >= 1
	}
	return true
}

func advertised(key wire.Key) kmsg.ApiVersionsResponseApiKey {
	api, _ := wire.LookupAPI(key)
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MinVersion, k.MaxVersion = int16(key), api.Min, api.Max
	if key == wire.KeyProduce {
		k.MinVersion = 0
	}
	return k
}

var softwareName = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)

func (c *Call) checkClient(in *kmsg.ApiVersionsRequest) wire.ErrCode {
	if in.Version >= 3 && (!softwareName.MatchString(in.ClientSoftwareName) || !softwareName.MatchString(in.ClientSoftwareVersion)) {
		return wire.ErrInvalidRequest
	}
	if in.Version < 5 {
		return wire.None
	}
	switch known := in.ClusterID != nil; {
	case known != (in.NodeID >= 0):
		return wire.ErrInvalidRequest
	case known && *in.ClusterID != c.ClusterID && !c.mirrors(*in.ClusterID):
		return wire.ErrRebootstrapRequired
	case known && *in.ClusterID == c.ClusterID && in.NodeID != int32(c.NodeID):
		return wire.ErrRebootstrapRequired
	}
	return wire.None
}

// mirrors reports whether a mirror of this cluster has another one as its source, also after its promotion.
func (c *Call) mirrors(clusterID string) bool {
	for m := range c.Image.Mirrors() {
		if m.Record.SourceClusterID == clusterID {
			return true
		}
	}
	return false
}

// unknownVersion answers a request of a version outside the table: only
// ApiVersions gets an answer.
func unknownVersion(s *Server, req *wire.Request) (*wire.Response, error) {
	if _, served := s.byKey[req.Key]; !served || req.Key != wire.KeyApiVersions {
		return nil, fmt.Errorf("%w: %s has no version %d", ErrClose, req.Key, req.Version)
	}
	out := kmsg.NewPtrApiVersionsResponse()
	out.ErrorCode = int16(wire.ErrUnsupportedVersion)
	out.ApiKeys = []kmsg.ApiVersionsResponseApiKey{advertised(wire.KeyApiVersions)}
	old := *req
	old.Version = 0
	return wire.Encode(&old, out), nil
}
