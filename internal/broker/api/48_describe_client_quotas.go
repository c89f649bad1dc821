package api

import "github.com/twmb/franz-go/pkg/kmsg"

// DescribeClientQuotas (key 48): the quotas of users and clients (KIP-546).
//
// Behaviour
//   - There are none, whatever is asked for: quotas can't be set here (AlterClientQuotas
//     isn't served). Kafka's tools ask before they show a user's credentials.
//
// Versions
//   - 1: flexible.
func (c *Call) describeClientQuotas(*kmsg.DescribeClientQuotasRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrDescribeClientQuotasResponse()
	out.Entries = []kmsg.DescribeClientQuotasResponseEntry{}
	return out, nil
}
