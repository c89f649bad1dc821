package api

import (
	"regexp"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/transaction"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// ListTransactions (key 66): the transactional ids that this broker coordinates
// (KIP-664). A name of a state that there isn't is told, and matches nothing.
//
// Versions 0 to 2. 1: how long a transaction has been open at least (KIP-994). 2: a
// pattern of ids (KIP-1152); RE2's syntax, and INVALID_REGULAR_EXPRESSION for others.
func (c *Call) listTransactions(in *kmsg.ListTransactionsRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrListTransactionsResponse()
	f := transaction.Filter{OpenFor: -1}
	for _, name := range in.StateFilters {
		if s, ok := transaction.ParseState(name); ok {
			f.States = append(f.States, s)
		} else {
			out.UnknownStateFilters = append(out.UnknownStateFilters, name)
		}
	}
	if len(in.StateFilters) > 0 && len(f.States) == 0 {
		return out, nil
	}
	for _, id := range in.ProducerIDFilters {
		f.ProducerIDs = append(f.ProducerIDs, types.ProducerID(id))
	}
	if in.Version >= 1 {
		f.OpenFor = types.Millis(in.DurationFilterMillis)
	}
	if pattern := text(in.TransactionalIDPattern); in.Version >= 2 && pattern != "" {
		re, err := regexp.Compile(`^(?:` + pattern + `)$`)
		if err != nil {
			out.ErrorCode, out.UnknownStateFilters = int16(wire.ErrInvalidRegularExpression), nil
			return out, nil
		}
		f.Match = re.MatchString
	}
	all, code := c.Transactions.List(c.Ctx, f)
	out.ErrorCode = int16(code)
	for _, l := range all {
		to := kmsg.NewListTransactionsResponseTransactionState()
		to.TransactionalID, to.ProducerID, to.TransactionState = l.ID, int64(l.ProducerID), l.State.String()
		out.TransactionStates = append(out.TransactionStates, to)
	}
	return out, nil
}
