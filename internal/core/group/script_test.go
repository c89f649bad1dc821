package group

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// TestScripts runs the stories of testdata/stories: each line is an event, and the
// golden output is what the table answers and writes.
//
//	table [delay=0] [max=100] [retention=86400000] [hold]   a fresh table; hold: writes wait for "written"
//	join g=… [id=…] [instance=…] [fresh=…] [proto=range:t1+t2!data,sticky:t1] [type=…] [session=…] [rebalance=…] [known] [skip]
//	sync g=… id=… gen=… [instance=…] [assign=m1:A,m2:B] [type=…] [proto=…]
//	heartbeat|leave g=… id=… [gen=…] [instance=…]
//	commit g=… [id=…] [gen=-1] [instance=…] [v9] t1/0=5[@epoch] …   [retention=…]
//	delete-offsets g=… t1/0 …          delete-group g=…
//	mirror g=… t1/0=5[@epoch]:end …    clamp t1/0=5 …    forget t1 …
//	written [n] [code]                 completes held writes, oldest first
//	at T                               lets time pass to T, deadlines on the way
//	sweep | unpark code | resign code | reload | describe g=… | offsets g=… | list [states=…] [types=…]
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		s := newScript(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.out.Reset()
			// A case may hold several events, one a line, after the first.
			lines := []string{d.Cmd + " " + argText(d)}
			if d.Input != "" {
				lines = append(lines, strings.Split(d.Input, "\n")...)
			}
			for _, line := range lines {
				s.run(t, line)
			}
			if s.out.Len() == 0 {
				return "ok\n"
			}
			return s.out.String()
		})
	})
}

func argText(d *datadriven.TestData) string {
	var words []string
	for _, a := range d.CmdArgs {
		switch len(a.Vals) {
		case 0:
			words = append(words, a.Key)
		default:
			words = append(words, a.Key+"="+strings.Join(a.Vals, ","))
		}
	}
	return strings.Join(words, " ")
}

type script struct {
	table   *Table
	now     types.Millis
	request RequestID
	hold    bool
	held    []Append
	log     []Record // durable, for reload
	cfg     Config
	out     strings.Builder
	fx      Effects
}

func newScript(t *testing.T) *script {
	t.Helper()
	s := &script{now: 1000}
	s.run(t, "table")
	return s
}

// args of one line: words without "=" are flags and positional.
type args struct {
	t     *testing.T
	named map[string]string
	words []string
}

func parse(t *testing.T, words []string) args {
	a := args{t: t, named: map[string]string{}}
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok && !strings.Contains(k, "/") {
			a.named[k] = v
		} else if w != "" {
			a.words = append(a.words, w)
		}
	}
	return a
}

func (a args) str(key, def string) string {
	if v, ok := a.named[key]; ok {
		return v
	}
	return def
}

func (a args) num(key string, def int64) int64 {
	v, ok := a.named[key]
	if !ok {
		return def
	}
	return a.parseNum(v)
}

func (a args) parseNum(v string) int64 {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		a.t.Fatalf("number %q: %v", v, err)
	}
	return n
}

func (a args) flag(name string) bool {
	for _, w := range a.words {
		if w == name {
			return true
		}
	}
	return false
}

// partition reads t1/0=5@3:9 as topic, partition, offset 5, epoch 3, log end 9.
func (a args) partition(w string) (tp types.TopicPartition, offset, epoch, end int64) {
	name, rest, _ := strings.Cut(w, "=")
	topic, p, ok := strings.Cut(name, "/")
	if !ok {
		a.t.Fatalf("no partition: %q", w)
	}
	epoch, end = -1, -1
	rest, e, ok := strings.Cut(rest, ":")
	if ok {
		end = a.parseNum(e)
	}
	rest, e, ok = strings.Cut(rest, "@")
	if ok {
		epoch = a.parseNum(e)
	}
	if rest != "" {
		offset = a.parseNum(rest)
	}
	return types.TopicPartition{Topic: topic, Partition: int32(a.parseNum(p))}, offset, epoch, end
}

func (a args) partitions() (ws []string) {
	for _, w := range a.words {
		if strings.Contains(w, "/") {
			ws = append(ws, w)
		}
	}
	return ws
}

// subscription encodes topics (t1+t2, and user data after a "!") as a consumer's protocol metadata.
func subscription(topics string) []byte {
	var names []string
	topics, data, _ := strings.Cut(topics, "!")
	if topics != "" {
		names = strings.Split(topics, "+")
	}
	b := []byte{0, 0, 0, 0, byte(len(names) >> 8), byte(len(names))}
	for _, n := range names {
		b = append(b, byte(len(n)>>8), byte(len(n)))
		b = append(b, n...)
	}
	b = append(b, 0, 0, byte(len(data)>>8), byte(len(data)))
	return append(b, data...)
}

func (a args) protocols() (all []Protocol) {
	for _, p := range strings.Split(a.str("proto", "range:t1"), ",") {
		name, topics, _ := strings.Cut(p, ":")
		metadata := subscription(topics)
		if raw, ok := strings.CutPrefix(topics, "raw"); ok {
			metadata = []byte(raw)
		}
		all = append(all, Protocol{Name: name, Metadata: metadata})
	}
	return all
}

func (s *script) run(t *testing.T, line string) {
	t.Helper()
	words := strings.Fields(line)
	a := parse(t, words[1:])
	switch words[0] {
	case "table":
		s.cfg = Config{
			InitialRebalanceDelay: types.Millis(a.num("delay", 0)), MinSessionTimeout: 6000, MaxSessionTimeout: 1800000,
			MaxSize: int(a.num("max", 100)), OffsetMetadataMaxBytes: 16, OffsetsRetention: types.Millis(a.num("retention", 86400000)),
		}
		s.table, s.hold, s.held, s.log = NewTable(s.cfg), a.flag("hold"), nil, nil
	case "at":
		s.passTo(types.Millis(a.parseNum(a.words[0])))
	case "written":
		s.written(a)
	case "reload":
		s.reload()
	case "describe":
		s.describe(a.str("g", ""))
	case "offsets":
		for _, o := range s.table.Offsets(a.str("g", "")) {
			fmt.Fprintf(&s.out, "  %v=%d@%d\n", o.TopicPartition, o.Offset, o.LeaderEpoch)
		}
	case "list":
		for _, l := range s.table.List(filter(a.str("states", "")), filter(a.str("types", ""))) {
			fmt.Fprintf(&s.out, "  %s type=%q %v\n", l.Group, l.ProtocolType, l.State)
		}
	default:
		s.step(s.event(words[0], a))
	}
}

func filter(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

func (s *script) event(cmd string, a args) Event {
	s.request++
	g := a.str("g", "")
	switch cmd {
	case "join":
		return Join{
			Request: s.request, Group: g, MemberID: a.str("id", ""), InstanceID: a.str("instance", ""), ClientID: "client", ClientHost: "/host",
			FreshMemberID: a.str("fresh", ""), SessionTimeout: types.Millis(a.num("session", 10000)),
			RebalanceTimeout: types.Millis(a.num("rebalance", 30000)), ProtocolType: a.str("type", "consumer"), Protocols: a.protocols(),
			RequireKnownMember: a.flag("known"), CanSkipAssignment: a.flag("skip"),
		}
	case "sync":
		ev := Sync{
			Request: s.request, Group: g, MemberID: a.str("id", ""), InstanceID: a.str("instance", ""), Generation: int32(a.num("gen", 0)),
			ProtocolType: a.str("type", ""), Protocol: a.str("proto", ""),
		}
		for _, p := range filter(a.str("assign", "")) {
			id, data, _ := strings.Cut(p, ":")
			ev.Assignments = append(ev.Assignments, Assignment{MemberID: id, Data: []byte(data)})
		}
		return ev
	case "heartbeat":
		return Heartbeat{Request: s.request, Group: g, MemberID: a.str("id", ""), InstanceID: a.str("instance", ""), Generation: int32(a.num("gen", 0))}
	case "leave":
		ev := Leave{Request: s.request, Group: g}
		for _, id := range strings.Split(a.str("id", ""), ",") {
			ev.Members = append(ev.Members, LeavingMember{MemberID: id, InstanceID: a.str("instance", "")})
		}
		return ev
	case "commit":
		ev := Commit{
			Request: s.request, Group: g, MemberID: a.str("id", ""), InstanceID: a.str("instance", ""),
			Generation: int32(a.num("gen", -1)), UnknownGroupIsNotFound: a.flag("v9"),
		}
		for _, w := range a.partitions() {
			tp, offset, epoch, _ := a.partition(w)
			ev.Offsets = append(ev.Offsets, CommitOffset{
				Topic: tp.Topic, Partition: tp.Partition, Offset: types.Offset(offset), LeaderEpoch: types.LeaderEpoch(epoch),
				Metadata: a.str("metadata", ""), Retention: types.Millis(a.num("retention", -1)),
			})
		}
		return ev
	}
	return s.adminEvent(cmd, a)
}

func (s *script) adminEvent(cmd string, a args) Event {
	g := a.str("g", "")
	switch cmd {
	case "delete-offsets":
		ev := DeleteOffsets{Request: s.request, Group: g}
		for _, w := range a.partitions() {
			tp, _, _, _ := a.partition(w)
			ev.Partitions = append(ev.Partitions, tp)
		}
		return ev
	case "delete-group":
		return DeleteGroup{Request: s.request, Group: g}
	case "mirror":
		ev := MirrorOffsets{Request: s.request, Group: g}
		for _, w := range a.partitions() {
			tp, offset, epoch, end := a.partition(w)
			ev.Offsets = append(ev.Offsets, MirrorOffset{
				Topic: tp.Topic, Partition: tp.Partition, Offset: types.Offset(offset), LeaderEpoch: types.LeaderEpoch(epoch), LogEnd: types.Offset(end),
			})
		}
		return ev
	case "clamp":
		ev := Clamp{Request: s.request}
		for _, w := range a.partitions() {
			tp, offset, _, _ := a.partition(w)
			ev.Cuts = append(ev.Cuts, Cut{TopicPartition: tp, Offset: types.Offset(offset)})
		}
		return ev
	case "forget":
		var ev ForgetTopics
		for _, w := range a.words {
			ev.Topics = append(ev.Topics, DeletedTopic{Name: w})
		}
		return ev
	case "sweep":
		return SweepOffsets{}
	case "unpark":
		return Unpark{Code: codeNamed(a.t, a.words[0])}
	case "resign":
		return Resign{Code: codeNamed(a.t, a.words[0])}
	}
	a.t.Fatalf("unknown command %q", cmd)
	return nil
}

func codeNamed(t *testing.T, name string) errcode.Code {
	for c := errcode.UnknownServerError; c <= errcode.ControllerIDNotRegistered; c++ {
		if c.String() == name {
			return c
		}
	}
	t.Fatalf("unknown code %q", name)
	return errcode.None
}

func (s *script) step(ev Event) {
	s.fx.Reset()
	s.table.Step(s.now, ev, &s.fx)
	s.effects()
}

// effects prints what a step wants; without hold, writes succeed at once.
func (s *script) effects() {
	for _, r := range s.fx.Replies {
		fmt.Fprintf(&s.out, "%d #%d %s\n", s.now, r.Request, reply(r.Response))
	}
	appends := append([]Append(nil), s.fx.Appends...)
	for _, ap := range appends {
		for _, r := range ap.Records {
			fmt.Fprintf(&s.out, "%d write %s\n", s.now, recordText(r))
		}
	}
	s.held = append(s.held, appends...)
	for !s.hold && len(s.held) > 0 {
		s.complete(errcode.None)
	}
}

func (s *script) complete(code errcode.Code) {
	ap := s.held[0]
	s.held = s.held[1:]
	if code == errcode.None {
		s.log = append(s.log, ap.Records...)
	}
	s.step(Appended{Token: ap.Token, Code: code})
}

func (s *script) written(a args) {
	n, code := len(s.held), errcode.None
	for _, w := range a.words {
		if w[0] >= '0' && w[0] <= '9' {
			n = int(a.parseNum(w))
		} else {
			code = codeNamed(a.t, w)
		}
	}
	for range n {
		s.complete(code)
	}
}

func (s *script) passTo(t types.Millis) {
	for {
		at, ok := s.table.Deadline()
		if !ok || at > t {
			break
		}
		s.now = max(s.now, at)
		s.step(Tick{})
	}
	s.now = t
}

func (s *script) reload() {
	s.table = NewTable(s.cfg)
	s.held = nil
	for _, r := range s.log {
		s.table.Replay(r)
	}
	s.fx.Reset()
	s.table.Loaded(s.now, &s.fx)
	s.effects()
}

func (s *script) describe(g string) {
	d := s.table.Describe(g)
	fmt.Fprintf(&s.out, "%v type=%q protocol=%q\n", d.State, d.ProtocolType, d.Protocol)
	for _, m := range d.Members {
		fmt.Fprintf(&s.out, "  %s instance=%q assignment=%q\n", m.MemberID, m.InstanceID, m.Assignment)
	}
}

func reply(r Response) string {
	switch r := r.(type) {
	case JoinResponse:
		if r.Code != errcode.None {
			return fmt.Sprintf("join %v member=%s", r.Code, r.MemberID)
		}
		s := fmt.Sprintf("join gen=%d protocol=%s/%s leader=%s member=%s", r.Generation, r.ProtocolType, r.Protocol, r.Leader, r.MemberID)
		if r.SkipAssignment {
			s += " skip"
		}
		for _, m := range r.Members {
			s += " [" + m.MemberID
			if m.InstanceID != "" {
				s += " instance=" + m.InstanceID
			}
			s += "]"
		}
		return s
	case SyncResponse:
		if r.Code != errcode.None {
			return fmt.Sprintf("sync %v", r.Code)
		}
		return fmt.Sprintf("sync %s/%s %q", r.ProtocolType, r.Protocol, r.Assignment)
	case CodeResponse:
		return r.Code.String()
	case LeaveResponse:
		if r.Code != errcode.None {
			return fmt.Sprintf("leave %v", r.Code)
		}
		return fmt.Sprintf("leave %v", r.Members)
	case CommitResponse:
		if r.Code != errcode.None {
			return fmt.Sprintf("offsets %v", r.Code)
		}
		return fmt.Sprintf("offsets %v", r.Partitions)
	case MirrorOffsetsResponse:
		if r.Code != errcode.None {
			return fmt.Sprintf("mirror %v", r.Code)
		}
		return fmt.Sprintf("mirror %v", r.Results)
	case ClampResponse:
		s := fmt.Sprintf("clamp %v", r.Code)
		for _, l := range r.Lowered {
			s += fmt.Sprintf(" %s:%v %d->%d", l.Group, l.TopicPartition, l.From, l.To)
		}
		return s
	}
	return fmt.Sprintf("%#v", r)
}

func recordText(r Record) string {
	switch r := r.(type) {
	case OffsetRecord:
		if r.Value == nil {
			return fmt.Sprintf("offset %s %v -", r.Group, r.TopicPartition)
		}
		return fmt.Sprintf("offset %s %v %d@%d", r.Group, r.TopicPartition, r.Value.Offset, r.Value.LeaderEpoch)
	case GroupRecord:
		if r.Value == nil {
			return fmt.Sprintf("group %s -", r.Group)
		}
		s := fmt.Sprintf("group %s gen=%d protocol=%s/%s leader=%s", r.Group, r.Value.Generation, r.Value.ProtocolType, r.Value.Protocol, r.Value.Leader)
		for _, m := range r.Value.Members {
			s += fmt.Sprintf(" [%s %q]", m.MemberID, m.Assignment)
		}
		return s
	}
	return "?"
}
