package config

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// special fills the fields that one key alone can't: listeners, and relations between keys.
func (b *Broker) special() []error {
	index := keyIndex()
	var faults []error
	fault := func(name, allowed string) {
		s := b.text(index[name])
		s.Key = name
		faults = append(faults, &ValueError{Setting: s, Allowed: allowed})
	}
	b.ProtocolMap = make(map[string]string)
	for _, pair := range splitList(b.text(index["listener.security.protocol.map"]).Value) {
		name, protocol, ok := strings.Cut(pair, ":")
		if !ok || name == "" || protocol == "" {
			fault("listener.security.protocol.map", "a list of NAME:PROTOCOL")
			continue
		}
		b.ProtocolMap[strings.ToUpper(name)] = strings.ToUpper(protocol)
	}
	var err error
	if b.Listeners, err = parseListeners(b.text(index["listeners"]).Value); err != nil {
		fault("listeners", "a list of NAME://host:port with different names: "+err.Error())
	}
	for _, l := range b.Listeners {
		if p := b.Protocol(l.Name); !slices.Contains([]string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}, p) {
			fault("listeners", fmt.Sprintf("listeners of protocol PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; %s is %s, which there isn't", l.Name, p))
		}
		if b.HasTLS(l.Name) && b.SSLKeystoreLocation == "" {
			fault("ssl.keystore.location", "a PEM file, because the listener "+l.Name+" speaks TLS")
		}
	}
	if b.AdvertisedListeners, err = b.advertised(b.text(index["advertised.listeners"]).Value); err != nil {
		fault("advertised.listeners", "a list of NAME://host:port, each the name of a listener: "+err.Error())
	}
	if b.HTTPListener != "" {
		if _, _, err := net.SplitHostPort(b.HTTPListener); err != nil {
			fault("http.listener", "host:port, or empty")
		}
	}
	if b.HTTPReadTokenFile != "" && b.HTTPTokenFile == "" {
		fault("http.read.token.file", "empty, unless http.token.file is set too: without that one whoever reaches the API may do everything")
	}
	if b.HTTPSSLKeyLocation != "" && b.HTTPSSLKeystoreLocation == "" {
		fault("http.ssl.keystore.location", "a PEM file, because http.ssl.key.location names its key")
	}
	if b.HTTPSSLTruststoreLocation != "" && b.HTTPSSLKeystoreLocation == "" {
		fault("http.ssl.keystore.location", "a PEM file, because http.ssl.truststore.location says that nodes' APIs speak TLS")
	}
	if b.Metadata != "embedded" && !strings.HasPrefix(b.Metadata, "etcd://") {
		fault("metadata", "embedded, or etcd://host:port[,host:port...]")
	}
	b.metadataSecurity(fault)
	b.security(fault)
	return append(faults, b.relations(fault)...)
}

// metadataSecurity checks what the metadata's connections show and ask for.
func (b *Broker) metadataSecurity(fault func(name, allowed string)) {
	embedded := b.Metadata == "embedded"
	switch {
	case embedded && b.MetadataSSLKeystoreLocation != "" && b.MetadataSSLTruststoreLocation == "":
		fault("metadata.ssl.truststore.location", "a PEM file, because metadata.ssl.keystore.location is set: members show each other certificates")
	case embedded && b.MetadataSSLKeystoreLocation == "" && b.MetadataSSLTruststoreLocation != "":
		fault("metadata.ssl.keystore.location", "a PEM file, because metadata.ssl.truststore.location is set: members show each other certificates")
	case b.MetadataSSLTruststoreLocation == "" && b.MetadataSSLKeystoreLocation != "":
		fault("metadata.ssl.truststore.location", "a PEM file, because metadata.ssl.keystore.location is set")
	}
	switch {
	case embedded && b.MetadataUsername != "":
		fault("metadata.username", "empty: the embedded store has no users; certificates (metadata.ssl.*) protect it")
	case b.MetadataUsername == "" && b.MetadataPassword != "":
		fault("metadata.username", "the name of the user whose password metadata.password is")
	}
}

// relations checks keys against each other.
func (b *Broker) relations(fault func(name, allowed string)) []error {
	if b.Group.MinSessionTimeoutMs > b.Group.MaxSessionTimeoutMs {
		fault("group.min.session.timeout.ms", "at most group.max.session.timeout.ms")
	}
	if b.Group.ConsumerHeartbeatIntervalMs >= b.Group.ConsumerSessionTimeoutMs {
		fault("group.consumer.heartbeat.interval.ms", "less than group.consumer.session.timeout.ms")
	}
	if b.QueuedMaxRequestBytes >= 0 && b.QueuedMaxRequestBytes < int64(b.SocketRequestMaxBytes) {
		fault("queued.max.request.bytes", "-1, or at least socket.request.max.bytes")
	}
	if seen := slices.Clone(b.LogDirs); len(slices.Compact(sorted(seen))) != len(b.LogDirs) {
		fault("log.dirs", "a list in which no folder appears twice")
	}
	if b.Mirror.RetryBackoffMs > b.Mirror.RetryBackoffMaxMs {
		fault("mirror.retry.backoff.ms", "at most mirror.retry.backoff.max.ms")
	}
	return nil
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}

// advertised gives the advertised listeners: as set, else as the listeners.
func (b *Broker) advertised(text string) ([]Listener, error) {
	list, err := parseListeners(text)
	if err != nil || len(list) == 0 {
		return slices.Clone(b.Listeners), err
	}
	for _, l := range list {
		if !slices.ContainsFunc(b.Listeners, func(o Listener) bool { return o.Name == l.Name }) {
			return nil, fmt.Errorf("there is no listener %s", l.Name)
		}
		if ip := net.ParseIP(l.Host); l.Host == "" || ip != nil && ip.IsUnspecified() {
			return nil, fmt.Errorf("%s names no host that a client could reach", l)
		}
	}
	return list, nil
}

// parseListeners reads NAME://host:port,...
func parseListeners(text string) ([]Listener, error) {
	var out []Listener
	for _, item := range splitList(text) {
		name, addr, ok := strings.Cut(item, "://")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q has no NAME://", item)
		}
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("%q has no host:port", item)
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%q: the port must be from 0 to 65535", item)
		}
		l := Listener{Name: strings.ToUpper(name), Host: host, Port: int32(n)}
		if slices.ContainsFunc(out, func(o Listener) bool { return o.Name == l.Name }) {
			return nil, fmt.Errorf("%s appears twice", l.Name)
		}
		out = append(out, l)
	}
	return out, nil
}
