package config

import "testing"

func TestIsThrottled(t *testing.T) {
	f := func(list string, partition, broker int32, want bool) {
		t.Helper()
		if got := IsThrottled(list, partition, broker); got != want {
			t.Errorf("%q, partition %d, broker %d: %v", list, partition, broker, got)
		}
	}
	f("", 0, 1, false)
	f("*", 0, 1, true)
	f("0:1", 0, 1, true)
	f("0:1, 3:2", 3, 2, true)
	f("10:1", 0, 1, false)
	f("0:11", 0, 1, false)
}

func TestDynamicRate(t *testing.T) {
	f := func(own, all map[string]string, want int64) {
		t.Helper()
		if got := DynamicRate(LeaderThrottleRate, own, all); got != want {
			t.Errorf("%v over %v: %d, want %d", own, all, got, want)
		}
	}
	one, two := map[string]string{LeaderThrottleRate: "1"}, map[string]string{LeaderThrottleRate: "2"}
	f(nil, nil, Unthrottled)
	f(one, two, 1)
	f(nil, two, 2)
	f(map[string]string{FollowerThrottleRate: "1"}, nil, Unthrottled)
}
