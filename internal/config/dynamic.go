package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The broker configs that can be changed at run time, and only there: what
// kafka-reassign-partitions sets for a throttled move (KIP-73).
const (
	LeaderThrottleRate   = "leader.replication.throttled.rate"
	FollowerThrottleRate = "follower.replication.throttled.rate"
)

// Unthrottled is the rate of a throttle that isn't set, in bytes per second.
const Unthrottled = int64(math.MaxInt64)

var dynamicDocs = map[string]string{
	LeaderThrottleRate:   "Bytes per second that this broker gives, as a leader, to replicas named by leader.replication.throttled.replicas of their topics. Replicas in sync are not held back.",
	FollowerThrottleRate: "Bytes per second that this broker fetches for its replicas named by follower.replication.throttled.replicas of their topics. Replicas in sync are not held back.",
}

// ErrDynamicConfig marks a broker config that can't be changed at run time, or a value out of range (Kafka: INVALID_CONFIG).
var ErrDynamicConfig = errors.New("invalid dynamic broker config")

// ValidateDynamic checks the dynamic configs of a broker, or of all; the error names every fault.
func ValidateDynamic(configs map[string]string) error {
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		if _, ok := dynamicDocs[name]; !ok {
			faults = append(faults, fmt.Errorf("%w: %s can't be changed at run time: set it in server.properties and restart the node; only %s and %s can", ErrDynamicConfig, name, LeaderThrottleRate, FollowerThrottleRate))
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(configs[name]), 10, 64); err != nil || n < 0 {
			faults = append(faults, fmt.Errorf("%w: invalid value %s for configuration %s: must be bytes per second, 0 or more", ErrDynamicConfig, configs[name], name))
		}
	}
	return errors.Join(faults...)
}

// DynamicRate reads a throttle: the broker's own value, else that of all brokers.
func DynamicRate(name string, own, all map[string]string) int64 {
	for _, configs := range []map[string]string{own, all} {
		if v, ok := configs[name]; ok {
			if n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64); err == nil && n >= 0 {
				return n
			}
		}
	}
	return Unthrottled
}

// DescribeDynamic lists the dynamic configs of a broker (own) over those of all brokers, by name.
func DescribeDynamic(own, all map[string]string) []Entry {
	var out []Entry
	for _, name := range slices.Sorted(maps.Keys(dynamicDocs)) {
		e := Entry{Name: name, Kind: KindLong, Doc: dynamicDocs[name]}
		if v, ok := own[name]; ok {
			e.Synonyms = append(e.Synonyms, Synonym{name, v, EntryDynamicBroker})
		}
		if v, ok := all[name]; ok {
			e.Synonyms = append(e.Synonyms, Synonym{name, v, EntryDynamicDefault})
		}
		e.Synonyms = append(e.Synonyms, Synonym{name, strconv.FormatInt(Unthrottled, 10), EntryDefault})
		e.Value, e.Source = e.Synonyms[0].Value, e.Synonyms[0].Source
		out = append(out, e)
	}
	return out
}

var throttledReplicas = regexp.MustCompile(`^(\*|(\s*[0-9]+:[0-9]+\s*(,\s*[0-9]+:[0-9]+\s*)*)?)$`)

// IsThrottled reports whether a list of throttled replicas, "*" or
// partition:broker pairs, names a replica.
func IsThrottled(list string, partition, broker int32) bool {
	if list == "" || list == "*" {
		return list == "*"
	}
	want := fmt.Sprintf("%d:%d", partition, broker)
	for _, pair := range strings.Split(list, ",") {
		if strings.TrimSpace(pair) == want {
			return true
		}
	}
	return false
}
