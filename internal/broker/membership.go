package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"tidemark/internal/broker/api"
	"tidemark/internal/config"
	"tidemark/internal/core/control"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore/embed"
	"tidemark/internal/metastore/etcd"
	"tidemark/internal/metastore/member"
	"tidemark/internal/net"
)

// JoinPath is where a member is asked to take a node in, on its HTTP API.
const JoinPath = "/api/v1/cluster/join"

// joinTimeout bounds one question; the first join restarts the member that is asked.
const joinTimeout = 60 * time.Second

// errForeignStore says that the members of this cluster are not ours to change.
var errForeignStore = errors.New("the metadata lives in an etcd that you run: a node joins by naming it, with --set metadata=etcd://HOST:PORT, and its members are changed with etcdctl")

// MetadataDir is the folder of a node's part in the metadata quorum.
func MetadataDir(cfg *config.Broker) string {
	if cfg.MetadataDir != "" {
		return cfg.MetadataDir
	}
	return filepath.Join(cfg.LogDirs[0], metadataFolder)
}

// MemberName is what a node's metadata folder is claimed with.
func MemberName(cfg *config.Broker) string { return fmt.Sprintf("node-%d", cfg.NodeID) }

// EmbedOptions are a node's settings for its part in the metadata quorum, for
// commands that work on its folder while it is stopped.
func EmbedOptions(cfg *config.Broker) embed.Options {
	return embed.Options{
		Dir: MetadataDir(cfg), Name: MemberName(cfg), Host: cfg.MetadataHost, HostSet: cfg.MetadataHost != "",
		PeerPort: int(cfg.MetadataPeerPort), ClientPort: int(cfg.MetadataClientPort), TLS: MetadataTLS(cfg), Plaintext: cfg.MetadataPlaintext,
	}
}

// MetadataTLS gives the files for connections of the metadata, nil for plain ones.
func MetadataTLS(cfg *config.Broker) *etcd.TLSFiles {
	if cfg.MetadataSSLTruststoreLocation == "" {
		return nil
	}
	return &etcd.TLSFiles{Cert: cfg.MetadataSSLKeystoreLocation, Key: cfg.MetadataSSLKeyLocation, CA: cfg.MetadataSSLTruststoreLocation}
}

// startEmbedded starts this node's part in the metadata quorum.
func (b *Broker) startEmbedded(ctx context.Context) error {
	dir := b.cfg.MetadataDir
	if dir == "" {
		dir = filepath.Join(b.dirs[0].path, metadataFolder) // of the first log dir that can be read
	}
	host := b.cfg.MetadataHost
	if host == "" && len(b.addrs) > 0 {
		host = b.addrs[0].Host
	}
	o := EmbedOptions(b.cfg)
	o.Dir, o.Host, o.Logger = dir, host, b.logger
	if b.cfg.MetadataJoin != "" {
		o.Join = b.askToJoin
	}
	s, err := embed.Start(ctx, o)
	if err != nil {
		return err
	}
	b.store, b.closeMeta, b.quorum = s.Store(), s.Close, s
	b.work.Go(func() {
		select {
		case err := <-s.Failed():
			b.fail(err)
		case <-b.ctx.Done():
		}
	})
	return nil
}

// askToJoin asks the node that --join names to take this one in.
func (b *Broker) askToJoin(ctx context.Context, r member.JoinRequest) (member.JoinAnswer, error) {
	r.NodeID, r.ClusterID, r.DirectoryID, r.Directories, r.Features = b.cfg.NodeID, b.clusterID, b.directoryID(), b.directoryIDs(), b.opts.Features
	var answer member.JoinAnswer
	body, err := json.Marshal(r)
	if err != nil {
		return answer, err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	scheme, transport := "http://", &http.Transport{DisableKeepAlives: true}
	if b.cfg.HTTPSSLKeystoreLocation != "" { // as on all nodes
		scheme = "https://"
		if transport.TLSClientConfig, err = net.ClientTLS(b.cfg.HTTPSSLTruststoreLocation); err != nil {
			return answer, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, scheme+b.cfg.MetadataJoin+JoinPath, bytes.NewReader(body))
	if err != nil {
		return answer, fmt.Errorf("--join %s: want HOST:PORT of a node's HTTP API: %w", b.cfg.MetadataJoin, err)
	}
	req.Header.Set("Content-Type", "application/json")
	if b.cfg.HTTPTokenFile != "" {
		token, err := net.ReadToken(b.cfg.HTTPTokenFile)
		if err != nil {
			return answer, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: transport}
	resp, err := client.Do(req)
	if err != nil {
		return answer, fmt.Errorf("--join %s: no answer: %w; name the HTTP API (default port 9644) of a node that runs", b.cfg.MetadataJoin, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return answer, err
	}
	if resp.StatusCode != http.StatusOK {
		var problem struct {
			Error string `json:"error"`
		}
		if json.Unmarshal(data, &problem) == nil && problem.Error != "" {
			return answer, fmt.Errorf("%s doesn't take this node in: %s", b.cfg.MetadataJoin, problem.Error)
		}
		return answer, fmt.Errorf("--join %s: %s; is it the HTTP API of a tidemark node?", b.cfg.MetadataJoin, resp.Status)
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return answer, fmt.Errorf("--join %s: the answer can't be read: %w", b.cfg.MetadataJoin, err)
	}
	return answer, nil
}

// Admit takes another node into this cluster's metadata quorum.
func (b *Broker) Admit(ctx context.Context, r member.JoinRequest) (member.JoinAnswer, error) {
	switch {
	case b.quorum == nil:
		return member.JoinAnswer{}, errForeignStore
	case r.ClusterID != "" && r.ClusterID != b.clusterID:
		return member.JoinAnswer{}, fmt.Errorf("its data folder belongs to cluster %s and this is cluster %s; start it with an empty folder", r.ClusterID, b.clusterID)
	}
	folders := r.Directories
	if len(folders) == 0 {
		folders = []string{r.DirectoryID}
	}
	if err := control.MayJoin(b.Image(), r.NodeID, folders); err != nil {
		return member.JoinAnswer{}, err
	}
	levels, _ := b.Image().FinalizedFeatures()
	if why := r.Features.Refuses(levels); r.Features != nil && why != "" {
		return member.JoinAnswer{}, errors.New(why)
	}
	answer, err := b.quorum.Admit(ctx, r)
	answer.ClusterID = b.clusterID
	if err == nil && !r.Probe {
		b.logger.Info("a node joins", "node", r.NodeID, "voter", answer.Voter, "peer", r.PeerURL)
	}
	return answer, err
}

// Members lists the metadata quorum; none if it is an etcd that the user runs.
func (b *Broker) Members(ctx context.Context) ([]member.Info, error) {
	if b.quorum == nil {
		return []member.Info{}, nil
	}
	return b.quorum.Members(ctx)
}

// RemoveMember takes a member out of the metadata quorum.
func (b *Broker) RemoveMember(ctx context.Context, id string) error {
	if b.quorum == nil {
		return errForeignStore
	}
	return b.quorum.RemoveMember(ctx, id)
}

// Decommission moves every replica off a broker and gives the number of
// partitions that it still holds. Asked again it goes on; with dryRun it begins nothing.
func (b *Broker) Decommission(ctx context.Context, id types.BrokerID, dryRun bool) (left int, err error) {
	moves, left, err := control.Evacuate(b.Image(), id)
	if err != nil || len(moves) == 0 || dryRun {
		return left, err
	}
	changes := make([]api.Reassignment, len(moves))
	for i, m := range moves {
		changes[i] = api.Reassignment{Partition: m.Partition, Replicas: m.Target}
	}
	return left, errors.Join((&elections{b}).Reassign(ctx, changes)...)
}
