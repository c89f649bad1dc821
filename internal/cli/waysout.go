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
	if st.State == "CONNECTING" && st.Reason != "" {
		out = append(out, fmt.Sprintf("the source can't be used: is it running, and is that its address? It is tried again and again; `mirror alter %s --source` points at another one", st.Mirror))
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
