package console

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/vault"
)

// lineBytesMax bounds one line of a streamed answer.
const lineBytesMax = 64 << 20

// Client calls the API of a node.
type Client struct {
	base string
	http *http.Client
}

// NewClient prepares calls to a node's API at base, http://HOST:PORT or https://HOST:PORT.
func NewClient(base string, creds Credentials) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("--api %q is no address: want http://HOST:PORT", base)
	}
	if u.Scheme == "http" && creds.CAFile != "" {
		return nil, fmt.Errorf("--api %s speaks without TLS, and --ca-file says whom to trust with it: want https://%s", base, u.Host)
	}
	transport, err := creds.Transport()
	if err != nil {
		return nil, err
	}
	return &Client{base: strings.TrimSuffix(base, "/"), http: &http.Client{Transport: transport}}, nil
}

// Over gives a client of the same node that calls it by way of h.
func (c *Client) Over(h *http.Client) *Client { return &Client{base: c.base, http: h} }

// request sends body (nil: none) and gives the answer's body if it was a success.
func (c *Client) request(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
	var payload io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		payload = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, payload)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var dial *url.Error
		if errors.As(err, &dial) {
			err = dial.Err
		}
		return nil, fmt.Errorf("no answer from %s: %w (is the node running? --api names its HTTP address)", c.base, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var p Problem
	if json.Unmarshal(b, &p) == nil && p.Error != "" {
		return nil, errors.New(p.Error)
	}
	return nil, fmt.Errorf("%s %s%s: %s", method, c.base, path, resp.Status)
}

// call sends body and decodes the answer into out.
func (c *Client) call(ctx context.Context, method, path string, body, out any) error {
	answer, err := c.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer answer.Close()
	if err := json.NewDecoder(answer).Decode(out); err != nil {
		return fmt.Errorf("answer of %s%s: %w", c.base, path, err)
	}
	return nil
}

func mirrorPath(name, suffix string) string {
	return "/api/v1/mirrors/" + url.PathEscape(name) + suffix
}

// Create makes a mirror.
func (c *Client) Create(ctx context.Context, spec mirror.Spec) (st mirror.Status, err error) {
	err = c.call(ctx, http.MethodPost, "/api/v1/mirrors", spec, &st)
	return st, err
}

// Verb runs start, pause or resume.
func (c *Client) Verb(ctx context.Context, name, verb string) (st mirror.Status, err error) {
	err = c.call(ctx, http.MethodPost, mirrorPath(name, "/"+verb), nil, &st)
	return st, err
}

// Failover promotes the topics' partitions, or all, of the present start.
func (c *Client) Failover(ctx context.Context, name string, topics []string) (mirror.Status, error) {
	return c.FailoverOf(ctx, name, FailoverRequest{Topics: topics})
}

// FailoverOf carries out a failover.
func (c *Client) FailoverOf(ctx context.Context, name string, r FailoverRequest) (st mirror.Status, err error) {
	err = c.call(ctx, http.MethodPost, mirrorPath(name, "/failover"), r, &st)
	return st, err
}

// Status gives a mirror's state.
func (c *Client) Status(ctx context.Context, name string) (st mirror.Status, err error) {
	err = c.call(ctx, http.MethodGet, mirrorPath(name, ""), nil, &st)
	return st, err
}

// Describe gives a mirror's state, spec and health.
func (c *Client) Describe(ctx context.Context, name string) (d mirror.Description, err error) {
	err = c.call(ctx, http.MethodGet, mirrorPath(name, "/describe"), nil, &d)
	return d, err
}

// Mirrors lists the mirrors.
func (c *Client) Mirrors(ctx context.Context) ([]mirror.Status, error) {
	var l MirrorList
	err := c.call(ctx, http.MethodGet, "/api/v1/mirrors", nil, &l)
	return l.Mirrors, err
}

// Delete removes a mirror.
func (c *Client) Delete(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, mirrorPath(name, ""), nil, &struct{}{})
}

// Verify compares both sides and calls progress for each report before the last.
func (c *Client) Verify(ctx context.Context, name string, progress func(mirror.Verify)) (mirror.Verify, error) {
	body, err := c.request(ctx, http.MethodPost, mirrorPath(name, "/verify"), nil)
	if err != nil {
		return mirror.Verify{}, err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, lineBytesMax)
	for lines.Scan() {
		var v mirror.Verify
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			return v, fmt.Errorf("answer of verify: %w", err)
		}
		if v.Done {
			return v, nil
		}
		progress(v)
	}
	return mirror.Verify{}, errors.Join(errors.New("verify ended without a result"), lines.Err())
}

// Meta gives the metadata below a key prefix as JSON.
func (c *Client) Meta(ctx context.Context, prefix string) (m json.RawMessage, err error) {
	err = c.call(ctx, http.MethodGet, "/api/v1/meta?prefix="+url.QueryEscape(prefix), nil, &m)
	return m, err
}

// MetaText writes the metadata below a key prefix as a table.
func (c *Client) MetaText(ctx context.Context, prefix string, w io.Writer) error {
	return c.copyTo(ctx, "/api/v1/meta?format=text&prefix="+url.QueryEscape(prefix), w)
}

// copyTo writes an answer's body to w.
func (c *Client) copyTo(ctx context.Context, path string, w io.Writer) error {
	body, err := c.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	if _, err := io.Copy(w, body); err != nil {
		return fmt.Errorf("answer of %s%s: %w", c.base, path, err)
	}
	return nil
}

func vaultPath(id, suffix string) string { return "/api/v1/vault/" + url.PathEscape(id) + suffix }

// VaultShow gives one entry's manifest.
func (c *Client) VaultShow(ctx context.Context, id string) (e vault.Entry, err error) {
	err = c.call(ctx, http.MethodGet, vaultPath(id, ""), nil, &e)
	return e, err
}

// VaultExport writes one entry's records to w.
func (c *Client) VaultExport(ctx context.Context, id string, format vault.Format, w io.Writer) error {
	return c.copyTo(ctx, vaultPath(id, "/export?format="+url.QueryEscape(string(format))), w)
}

// VaultOpen gives one entry's raw batches, one behind the other.
func (c *Client) VaultOpen(ctx context.Context, id string) (io.ReadCloser, error) {
	return c.request(ctx, http.MethodGet, vaultPath(id, "/export?format="+string(vault.Segments)), nil)
}

// VaultReplayed notes that an entry's records are in a topic again.
func (c *Client) VaultReplayed(ctx context.Context, id string, r vault.Replay) error {
	return c.call(ctx, http.MethodPost, vaultPath(id, "/replays"), r, &struct{}{})
}

// VaultPurge removes one entry for good.
func (c *Client) VaultPurge(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, vaultPath(id, ""), nil, &struct{}{})
}

// Vault lists what cuts removed.
func (c *Client) Vault(ctx context.Context) (l VaultList, err error) {
	err = c.call(ctx, http.MethodGet, "/api/v1/vault", nil, &l)
	return l, err
}

// EventFilter chooses events; the zero value takes all.
type EventFilter struct {
	Since  types.Millis
	Mirror string
	Kinds  []string
}

// Events lists what happened to mirrored partitions, and every cut.
func (c *Client) Events(ctx context.Context, f EventFilter) (e Events, err error) {
	q := url.Values{"kind": f.Kinds}
	if f.Since > 0 {
		q.Set("since", strconv.FormatInt(int64(f.Since), 10))
	}
	if f.Mirror != "" {
		q.Set("mirror", f.Mirror)
	}
	err = c.call(ctx, http.MethodGet, "/api/v1/events?"+q.Encode(), nil, &e)
	return e, err
}
