package broker

import (
	"slices"
	"sync"

	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// throttle is a rate in bytes per second that replicas being moved share. It lets
// through while something of it is left, and what goes beyond is owed: an answer
// is never cut to fit. The zero value lets everything through.
type throttle struct {
	ticks func() types.Millis

	mu      sync.Mutex // guards the following
	limited bool
	rate    int64
	left    float64 // bytes; at most a second's
	at      types.Millis
}

// set changes the rate; config.Unthrottled ends the throttle.
func (t *throttle) set(rate int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.limited && t.rate == rate {
		return
	}
	t.limited, t.rate = rate != config.Unthrottled, rate
	t.left, t.at = float64(rate), t.ticks()
}

// isSpent reports whether nothing is left for now.
func (t *throttle) isSpent() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.limited {
		return false
	}
	t.refill()
	return t.left <= 0
}

// Take counts bytes that went through.
func (t *throttle) Take(bytes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.limited {
		t.refill()
		t.left -= float64(bytes)
	}
}

// IsSpent implements follow.Throttle.
func (t *throttle) IsSpent() bool { return t.isSpent() }

func (t *throttle) refill() {
	now := t.ticks()
	t.left = min(t.left+float64(t.rate)*float64(now-t.at)/1000, float64(t.rate))
	t.at = now
}

// throttled is what a partition's throttles are about. It never changes.
type throttled struct {
	asLeader, asFollower bool
	// inSync are not held back: who was moved to must stay in the ISR.
	inSync []types.BrokerID
}

// showThrottled publishes the throttles that the topic's configs and the record ask for; it runs on the shard.
func (p *Partition) showThrottled() {
	number, node := p.tp.Partition, int32(p.env.nodeID)
	s := throttled{
		asLeader:   config.IsThrottled(p.topic.LeaderThrottledReplicas, number, node),
		asFollower: config.IsThrottled(p.topic.FollowerThrottledReplicas, number, node),
	}
	if p.record == nil || !s.asLeader && !s.asFollower {
		p.throttled.Store(nil)
		return
	}
	s.inSync = p.record.ISRIDs()
	p.throttled.Store(&s)
}

// holdsBack reports whether a follower gets no records for now (KIP-73).
func (p *Partition) holdsBack(follower types.BrokerID) bool {
	s := p.throttled.Load()
	return s != nil && s.asLeader && !slices.Contains(s.inSync, follower) && p.env.leaderThrottle.isSpent()
}

// gave counts the records that a follower was given.
func (p *Partition) gave(bytes int) {
	if s := p.throttled.Load(); s != nil && s.asLeader {
		p.env.leaderThrottle.Take(bytes)
	}
}

// showBrokerConfigs takes the broker configs over that can change at run time.
func (b *Broker) showBrokerConfigs(image *meta.Image) {
	own, all := brokerConfigs(image, b.cfg.NodeID), brokerConfigs(image, types.NoBroker)
	b.env.leaderThrottle.set(config.DynamicRate(config.LeaderThrottleRate, own, all))
	b.env.followerThrottle.set(config.DynamicRate(config.FollowerThrottleRate, own, all))
}

// brokerConfigs are the dynamic configs of a broker, or with NoBroker of all.
func brokerConfigs(image *meta.Image, id types.BrokerID) map[string]string {
	if c, ok := image.BrokerConfig(id); ok && c.Record != nil {
		return c.Record.Configs
	}
	return nil
}
