package source

import (
	"context"
	"errors"
	"os"
	"time"
)

// A lane of fetches has one caller nearly always, which asks again as soon as it has
// been answered. So nobody else reads for it: to be woken by another goroutine for each
// answer costs a follower of a lone producer more than all else that it does with it.
// Of several callers one reads at a time, whoever has the turn, until its own answer
// has come; it hands out those before it.

// lookAfter is how long nobody may have read from a lane's connection until it is looked
// at before its next use: the broker may have closed it.
const lookAfter = time.Second

// lookFor is how long that look takes if the connection is open.
const lookFor = time.Millisecond

// longAgo is a deadline that ends what waits.
var longAgo = time.Unix(1, 0)

// await waits for a call's answer, or the end of ctx or of the time. The call itself
// says what the answer is.
func (c *conn) await(ctx context.Context, k *call, until time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	select {
	case c.turn <- struct{}{}:
		return c.readOwn(ctx, k)
	case <-k.done:
		return nil
	case <-ctx.Done():
		c.abandon(k, ctx.Err())
		return ioError(c.address, k.op(), ctx.Err())
	}
}

// readOwn reads until k is answered, and gives the turn back. An end of ctx between two
// answers leaves the connection to whoever reads next.
func (c *conn) readOwn(ctx context.Context, k *call) error {
	defer func() { <-c.turn }()
	_ = c.nc.SetReadDeadline(time.Time{})
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = c.nc.SetReadDeadline(longAgo)
	})
	defer func() {
		if !stop() {
			<-ended // what it does to the deadline must not come after the next reader's
		}
	}()
	for !k.isAnswered() {
		next, size, err := c.readHead()
		if why := ctx.Err(); err != nil && why != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			c.abandon(k, why)
			return ioError(c.address, k.op(), why)
		}
		if err == nil {
			err = c.readBody(ctx, next, size)
		}
		if err != nil {
			c.fail(err) // which answers k
		}
	}
	return nil
}

// isStillOpen looks at a lane's connection from which nobody reads at the moment.
func (c *conn) isStillOpen() bool {
	select {
	case c.turn <- struct{}{}:
	default:
		return true // whoever reads will know
	}
	defer func() { <-c.turn }()
	_ = c.nc.SetReadDeadline(time.Now().Add(lookFor))
	_, err := c.in.Peek(1)
	return err == nil || errors.Is(err, os.ErrDeadlineExceeded)
}
