package cli

import (
	"fmt"
	"strings"

	"tidemark/internal/broker/mirror"
	core "tidemark/internal/core/mirror"
)

// waysOut says once for each reason that partitions have what can be done about it.
func waysOut(st mirror.Status) []string {
	var out []string
	if st.WayOut != "" {
		out = append(out, "the source can't be looked at, and is tried again and again: "+st.WayOut)
	}
	told := map[core.Reason]bool{}
	for _, p := range st.Partitions {
		r, _ := core.ReasonOf(p.Reason)
		if told[r] {
			continue
		}
		told[r] = true
		if way := r.WayOut(); way != "" {
			names := strings.NewReplacer("NAME", st.Mirror, "--topic T", "--topic="+p.Topic, "topic delete T", "topic delete "+p.Topic)
			out = append(out, fmt.Sprintf("%s: %s", r, names.Replace(way)))
		}
	}
	return out
}
