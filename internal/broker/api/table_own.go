package api

import "tidemark/internal/wire"

// draftAPIs is the table of the APIs of proposals that aren't final; each has a
// switch in Deps.
func draftAPIs() []entry {
	return []entry{
		on(wire.KeyListClusterMirrors, (*Call).listClusterMirrors),
		on(wire.KeyDescribeClusterMirrors, (*Call).describeClusterMirrors),
	}
}

// ownAPIs is the table of the APIs that Kafka doesn't have, shown only to
// clients that call themselves wire.SoftwareName: one row per file.
func ownAPIs() []entry {
	return []entry{
		on(wire.KeyDescribeLineage, (*Call).describeLineage),
		on(wire.KeyMirrorVerb, (*Call).mirrorVerb),
		on(wire.KeyDescribeScramKeys, (*Call).describeScramKeys),
		on(wire.KeyWakeFetch, (*Call).wakeFetch),
	}
}
