package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"gopkg.in/yaml.v3"
)

// table is an answer as rows; columns from wideFrom on are shown with -o wide only.
type table struct {
	columns  []string
	wideFrom int // 0: all columns are always shown
	rows     [][]string
}

// print writes value as JSON or YAML, or the table that show makes of it.
func (t Target) print(w io.Writer, value any, show func() table) error {
	switch t.Output {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(value)
	case "yaml":
		return printYAML(w, value)
	default:
		return show().write(w, t.Output == "wide")
	}
}

// printYAML prints through JSON, so that both formats have the same names.
func printYAML(w io.Writer, value any) error {
	b, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(b, &node); err != nil {
		return err
	}
	blockStyle(&node)
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	defer enc.Close()
	return enc.Encode(&node)
}

// blockStyle turns JSON's flow style and quotes into plain YAML.
func blockStyle(n *yaml.Node) {
	n.Style &^= yaml.FlowStyle
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		n.Style = 0
	}
	for _, c := range n.Content {
		blockStyle(c)
	}
}

func (t table) write(w io.Writer, wide bool) error {
	shown := len(t.columns)
	if t.wideFrom > 0 && !wide {
		shown = t.wideFrom
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(t.columns[:shown], "\t"))
	for _, row := range t.rows {
		fmt.Fprintln(tw, strings.Join(row[:shown], "\t"))
	}
	return tw.Flush()
}

// bytesText prints a byte count with a binary unit.
func bytesText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, units := float64(n)/unit, "KMGTPE"
	for i := range units {
		if value < unit || i == len(units)-1 {
			return fmt.Sprintf("%.1f %ciB", value, units[i])
		}
		value /= unit
	}
	return ""
}

// millisText prints a time stamp in milliseconds since the epoch, or "-" for none.
func millisText(ms int64) string {
	if ms <= 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}
