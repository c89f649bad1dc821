package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// NewLogger makes the process log. Level is debug, info, warn or error; format
// is text or json.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(strings.ToUpper(level))); err != nil {
		return nil, fmt.Errorf("log level %q: must be debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	default:
		return nil, fmt.Errorf("log format %q: must be text or json", format)
	}
}

// Discard gives a logger that writes nothing.
func Discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
