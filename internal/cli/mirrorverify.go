package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"tidemark/internal/broker/mirror"
)

type mirrorVerifyCmd struct {
	named
	Last   bool   `help:"Show the last comparison instead, made by a command or in the background (mirror.verify.interval.ms)."`
	Report string `help:"Write the report to FILE as JSON, and to FILE.txt for people." placeholder:"FILE"`
}

func (c *mirrorVerifyCmd) Run(ctx context.Context, s Streams) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	if c.Last {
		r, err := cl.LastVerify(ctx, c.Name)
		if err != nil {
			return err
		}
		return c.show(s, r.Result, &r)
	}
	p := newProgress(s, "verify")
	v, err := cl.Verify(ctx, c.Name, func(v mirror.Verify) { p.at(v.Bytes, v.TotalBytes) })
	p.end()
	if err != nil {
		return err
	}
	var r *mirror.VerifyReport
	if c.Report != "" && v.Error == "" {
		last, err := cl.LastVerify(ctx, c.Name)
		if err != nil {
			return err
		}
		r = &last
	}
	return c.show(s, v, r)
}

// show prints a comparison, writes its report if that is asked for, and says what it found.
func (c *mirrorVerifyCmd) show(s Streams, v mirror.Verify, r *mirror.VerifyReport) error {
	var value any = v
	if c.Last {
		value = r
	}
	if c.Last && (c.Output == "table" || c.Output == "wide") {
		fmt.Fprint(s.Out, r.Text())
	} else if err := c.print(s.Out, value, func() table { return verifyTable(v) }); err != nil {
		return err
	}
	if c.Report != "" && r != nil {
		if err := writeReport(c.Report, r); err != nil {
			return err
		}
		fmt.Fprintf(s.Err, "report written to %s and %s.txt\n", c.Report, c.Report)
	}
	if v.NotHere > 0 {
		fmt.Fprintf(s.Err, "%d partitions of the mirror have no replica on this node: verify on the nodes that have one (--api)\n", v.NotHere)
	}
	switch {
	case v.Error != "":
		return fmt.Errorf("%w: verify could not finish: %s", errUnmet, v.Error)
	case !v.Equal:
		return fmt.Errorf("%w: the two sides differ", errUnmet)
	case len(v.Partitions) == 0 && v.NotHere > 0:
		return fmt.Errorf("%w: nothing was compared on this node", errUnmet)
	case len(v.Partitions) == 0:
		return fmt.Errorf("%w: nothing was compared: the mirror has no partition yet; tidemark mirror status %s says why", errUnmet, c.Name)
	}
	return nil
}

func writeReport(file string, r *mirror.VerifyReport) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(file+".txt", []byte(r.Text()), 0o644)
}

func verifyTable(v mirror.Verify) table {
	out := table{columns: []string{"TOPIC", "PARTITION", "FROM", "VERIFIED-TO", "BATCHES", "BYTES", "DIFFERENCE", "ERROR", "SHA-256"}, wideFrom: 7}
	for _, p := range v.Partitions {
		diff := p.Difference
		if diff == "" {
			diff = "none"
		}
		out.rows = append(out.rows, []string{p.Topic, fmt.Sprint(p.Partition), fmt.Sprint(p.From), fmt.Sprint(p.VerifiedTo), fmt.Sprint(p.Batches), bytesText(p.Bytes), diff, orDash(p.Error), orDash(p.SHA256)})
	}
	return out
}
