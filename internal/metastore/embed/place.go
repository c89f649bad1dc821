package embed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

const (
	// etcdFolder is etcd's own folder below ours.
	etcdFolder = "etcd"
	// placeFile says what this node is among the members. A lone member has none.
	placeFile = "member.json"
	// placeVersion is the version of placeFile that this program writes and reads.
	placeVersion = 1
)

// place is a node's place in a cluster of several.
type place struct {
	V int `json:"v"`
	// Voter: the node is a member (a learner at first). Else it only asks the members.
	Voter bool `json:"voter"`
	// Name is the member's; Peer and Client are HOST:PORT of its listeners.
	Name   string `json:"name,omitempty"`
	Peer   string `json:"peer,omitempty"`
	Client string `json:"client,omitempty"`
	// Host is the name by which others reach the listeners, where it isn't their address itself.
	Host string `json:"host,omitempty"`
	// TLS: the member speaks TLS.
	TLS bool `json:"tls,omitempty"`
	// Members is the list of name=peer URL with which the member was started first.
	Members []string `json:"members,omitempty"`
	// Endpoints are the client addresses of the members, as last seen.
	Endpoints []string `json:"endpoints,omitempty"`
	// Joined: the cluster has taken the node in. A join that stopped before is tried again.
	Joined bool `json:"joined"`
}

// readPlace reads the place of a folder; nil without an error if there is none.
func readPlace(dir string) (*place, error) {
	path := filepath.Join(dir, placeFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, folderError(dir, err)
	}
	var p place
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("%s can't be read: %w; restore it from a backup of the folder", path, err)
	}
	if p.V != placeVersion {
		return nil, fmt.Errorf("%s has version %d and this tidemark reads %d; start the version that wrote it", path, p.V, placeVersion)
	}
	return &p, nil
}

// write puts the place into the folder, synced.
func (p *place) write(dir string) error {
	p.V = placeVersion
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(dir, placeFile, append(data, '\n'))
}

// newPlace chooses the addresses of a member that opens its ports.
func newPlace(o Options, name string) (*place, error) {
	if err := o.mayListen(); err != nil {
		return nil, err
	}
	peer, err := address(o.Host, o.PeerPort)
	if err != nil {
		return nil, err
	}
	client, err := address(o.Host, o.ClientPort)
	if err != nil {
		return nil, err
	}
	p := &place{Voter: true, Name: name, Peer: peer, Client: client, TLS: o.TLS != nil}
	if net.ParseIP(o.Host) == nil {
		p.Host = o.Host
	}
	return p, nil
}

// advertised gives the address that others are told of a listener.
func (p *place) advertised(listener string) string {
	_, port, err := net.SplitHostPort(listener)
	if err != nil || p.Host == "" {
		return listener
	}
	return net.JoinHostPort(p.Host, port)
}

// moved brings the listeners to where the member's host is now: its ports stay,
// the address may be another one than when it was started last. It reports whether anything changed.
func (p *place) moved(o Options) (bool, error) {
	host := p.Host
	if o.HostSet && o.Host != "" {
		host = o.Host
	}
	if host == "" {
		return false, nil
	}
	ip, err := net.ResolveIPAddr("ip", host)
	if err != nil {
		return false, fmt.Errorf("metadata member: the address of %s isn't known: %w; correct metadata.host", host, err)
	}
	before := *p
	p.Host = ""
	if net.ParseIP(host) == nil {
		p.Host = host
	}
	for _, at := range []*string{&p.Peer, &p.Client} {
		_, port, err := net.SplitHostPort(*at)
		if err != nil {
			return false, fmt.Errorf("%s: the address %q can't be read: %w", placeFile, *at, err)
		}
		*at = net.JoinHostPort(ip.String(), port)
	}
	return before.Peer != p.Peer || before.Client != p.Client || before.Host != p.Host, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// address gives HOST:PORT, with a free port in place of 0. The port is kept in
// the folder from then on: other members remember it.
func address(host string, port int) (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return "", fmt.Errorf("metadata member: %w; choose another address (metadata.host, metadata.peer.port, metadata.client.port)", err)
	}
	return l.Addr().String(), l.Close()
}
