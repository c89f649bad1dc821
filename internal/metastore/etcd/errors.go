package etcd

import (
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tidemark/internal/metastore"
)

// definite maps what etcd says when it has not written and will not.
var definite = []struct{ etcd, ours error }{
	{rpctypes.ErrTooManyOps, metastore.ErrTxnTooLarge},
	{rpctypes.ErrRequestTooLarge, metastore.ErrTxnTooLarge},
	{rpctypes.ErrDuplicateKey, metastore.ErrInvalidTxn},
	{rpctypes.ErrEmptyKey, metastore.ErrInvalidTxn},
	{rpctypes.ErrLeaseNotFound, metastore.ErrLeaseNotFound},
	{rpctypes.ErrCompacted, metastore.ErrCompacted},
	{rpctypes.ErrNoSpace, metastore.ErrUnavailable},
	{rpctypes.ErrTooManyRequests, metastore.ErrUnavailable},
	{rpctypes.ErrCorrupt, metastore.ErrUnavailable},
}

// definiteError gives our error for an answer after which nothing was written.
func definiteError(err error) (error, bool) {
	for _, d := range definite {
		if errors.Is(err, d.etcd) || sameMessage(err, d.etcd) {
			return fmt.Errorf("%w: %w", d.ours, err), true
		}
	}
	switch code(err) {
	case codes.InvalidArgument:
		return fmt.Errorf("%w: %w", metastore.ErrInvalidTxn, err), true
	case codes.ResourceExhausted:
		// gRPC's own limit, of either side, before anything looks at the request.
		if strings.Contains(err.Error(), "larger than max") {
			return fmt.Errorf("%w: %w", metastore.ErrTxnTooLarge, err), true
		}
	case codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		return fmt.Errorf("%w: %w", metastore.ErrUnavailable, err), true
	}
	return err, false
}

// authFault says what to do where etcd asks who we are; empty for other errors.
func authFault(err error) string {
	for _, f := range []struct {
		etcd error
		says string
	}{
		{rpctypes.ErrUserEmpty, "it asks for a user: set metadata.username and metadata.password"},
		{rpctypes.ErrAuthFailed, "the user or the password isn't right (metadata.username, metadata.password)"},
		{rpctypes.ErrAuthNotEnabled, "it knows no users: leave out metadata.username and metadata.password, or enable authentication there"},
		{rpctypes.ErrPermissionDenied, "the user needs to read and write keys below /tidemark/: etcdctl role grant-permission ROLE --prefix=true readwrite /tidemark/"},
	} {
		if errors.Is(err, f.etcd) || strings.Contains(err.Error(), rpctypes.ErrorDesc(f.etcd)) {
			return f.says
		}
	}
	return ""
}

// sameMessage compares by message, because an embedded server's errors come as plain gRPC statuses.
func sameMessage(err, want error) bool { return rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(want) }

// code is the gRPC code of an error, Unknown if it has none.
func code(err error) codes.Code {
	var typed rpctypes.EtcdError
	if errors.As(err, &typed) {
		return typed.Code()
	}
	return status.Code(err)
}

// writeError classifies the error of a write: whatever isn't known to have
// done nothing has an unknown outcome, ended contexts included.
func writeError(err error) error {
	if known, ok := definiteError(err); ok {
		return known
	}
	return fmt.Errorf("%w: %w", metastore.ErrUnknownOutcome, err)
}

// readError classifies the error of a call that changes nothing, or nothing that matters.
func readError(err error) error {
	if known, ok := definiteError(err); ok {
		return known
	}
	return fmt.Errorf("%w: %w", metastore.ErrUnavailable, err)
}
