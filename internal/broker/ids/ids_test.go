package ids

import "testing"

func TestFresh(t *testing.T) {
	seen := map[string]bool{}
	for range 2000 { // one in 64 would begin with a dash
		for _, id := range []string{Fresh(), Source(System).FreshTopic().String()} {
			if len(id) != 22 || id[0] == '-' || seen[id] {
				t.Fatalf("id %q", id)
			}
			seen[id] = true
		}
	}
}
