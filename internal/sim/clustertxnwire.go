package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
	src "tidemark/internal/source"
)

// What transactions say goes frame by frame through the brokers' handlers of requests.
//
// Produce requests are late, lost or twice like all messages here. Whatever else
// changes a transaction comes once and within its sender's patience, if at all, as it
// does over a connection that is closed then: before KIP-890 an end, or a marker, that
// comes after the next transaction of the same epoch has begun would end that one, and
// no broker can know. Those of clients that take a new epoch from every end come as they like.

// sending is one request of a client.
type sending struct {
	from    string
	to      *machine
	req     kmsg.Request
	timeout time.Duration
	onTime  bool // it comes once and within the time-out, or never
	// comes, if not nil, is told where the request is taken.
	comes func(m *machine)
}

// request sends a frame to a broker and waits for the answer; it runs in a task of p.
// said, if not nil, hears what the broker answers, before the answer is on its way.
func (w *txnWorld) request(s sending, said func(m *machine, resp kmsg.Response)) (kmsg.Response, error) {
	p := w.p
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID(s.from)).AppendRequest(nil, s.req, 1)[4:]
	var answer kmsg.Response
	settled, lost := false, false
	once := func(f func()) {
		if !settled {
			p.do(func() { settled = true; f() })
		}
	}
	arrives := w.k.arrival(s.timeout, s.onTime)
	w.c.net.call(s.from, s.to.name, fmt.Sprintf("api %d", s.req.Key()), s.timeout, func(reply func(func())) {
		if !s.to.serves() || !arrives() {
			return
		}
		s.to.task(func() {
			if s.comes != nil {
				s.comes(s.to)
			}
			s.to.answerFrame(s.req, frame, said, func(resp kmsg.Response) { reply(func() { once(func() { answer = resp }) }) })
		})
	}, func() { once(func() { lost = true }) })
	if err := p.until(p.context(), func() bool { return settled }); err != nil {
		return nil, err
	}
	if lost {
		w.k.probe("transaction: request timed out")
		return nil, errLost
	}
	return answer, nil
}

// arrival says of each copy of a message whether it is taken where it arrives: with
// onTime the first one is, within the patience of its sender.
func (k *kernel) arrival(patience time.Duration, onTime bool) func() bool {
	arrived, until := false, k.now+patience
	return func() bool {
		if onTime && (arrived || k.now > until) {
			return false
		}
		arrived = true
		return true
	}
}

// answerFrame has the broker answer a client's frame, and tells of it. What a node answers
// that has hung up meanwhile reaches nobody, so that whatever is told is heard by the judge too.
func (m *machine) answerFrame(req kmsg.Request, frame []byte, said func(m *machine, resp kmsg.Response), answered func(kmsg.Response)) {
	raw, err := m.node.Answer(m.node.Context(), append([]byte(nil), frame...))
	if err != nil || raw == nil || m.node.HasHungUp() {
		return
	}
	resp, err := parseAnswer(req, raw)
	if err != nil {
		m.c.check.fail("PANIC", "%s answers request %d version %d with what can't be read: %v", m.name, req.Key(), req.GetVersion(), err)
		return
	}
	if said != nil {
		said(m, resp)
	}
	answered(resp)
}

// parseAnswer reads an answer's frame, without its size.
func parseAnswer(req kmsg.Request, raw []byte) (kmsg.Response, error) {
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	body := raw[4:] // behind the correlation id
	if resp.IsFlexible() {
		tags, n := binary.Uvarint(body)
		if n <= 0 || tags != 0 {
			return nil, fmt.Errorf("header with %d tags", tags)
		}
		body = body[n:]
	}
	return resp, resp.ReadFrom(append([]byte(nil), body...))
}

// peerPatience is how long a broker waits for another one's answer about transactions.
const peerPatience = 6 * time.Second

// txnFrames has a broker ask another one: for markers, and about transactions.
func (l *peerLinks) txnFrames(to types.BrokerID) src.Exchange {
	p := l.m.p
	return func(ctx context.Context, request []byte) ([]byte, error) {
		var answer []byte
		arrives := l.m.k.arrival(peerPatience, true)
		err := l.m.askWithin(ctx, p, to, "transaction", peerPatience, func(at *machine, reply func(func())) {
			if !arrives() {
				return
			}
			key := int16(binary.BigEndian.Uint16(request))
			serve := func() {
				raw, err := at.node.Answer(at.node.Context(), append([]byte(nil), request...))
				if err != nil || raw == nil {
					return
				}
				answered := func() { reply(func() { answer = raw }) }
				if d := l.m.k.dice("slow answers"); key == l.m.c.mutation.slowAnswers && !l.m.c.healed && d.chance(0.3) {
					l.m.k.after(d.between(time.Second, peerPatience), "slow answer", answered)
					return
				}
				answered()
			}
			if d := l.m.k.dice("slow peers"); key == l.m.c.mutation.slowPeers && !l.m.c.healed && d.chance(0.3) {
				l.m.k.after(d.between(time.Second, peerPatience), "slow peer", func() { at.task(serve) })
				return
			}
			at.task(serve)
		})
		return answer, err
	}
}

// framesOf are the connections by which a broker asks others about transactions; nil where there are none.
func (m *machine) framesOf() func(types.BrokerID) src.Exchange {
	if m.c.o.Txns == 0 {
		return nil
	}
	return (&peerLinks{m: m}).txnFrames
}
