package api

import "tidemark/internal/wire"

// securityAPIs is the table of the APIs of ACLs, credentials and log-ins: one row per file.
func securityAPIs() []entry {
	return []entry{
		on(wire.KeySaslHandshake, (*Call).saslHandshake),
		on(wire.KeySaslAuthenticate, (*Call).saslAuthenticate),
		on(wire.KeyDescribeAcls, (*Call).describeACLs),
		on(wire.KeyCreateAcls, (*Call).createACLs),
		on(wire.KeyDeleteAcls, (*Call).deleteACLs),
		on(wire.KeyDescribeClientQuotas, (*Call).describeClientQuotas),
		on(wire.KeyDescribeUserScramCredentials, (*Call).describeUserScramCredentials),
		on(wire.KeyAlterUserScramCredentials, (*Call).alterUserScramCredentials),
	}
}
