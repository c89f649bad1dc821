package consumer

import (
	"fmt"

	"tidemark/internal/core/errcode"
)

// Refusal is why a request isn't carried out: Kafka's code, and a sentence for people.
type Refusal struct {
	Code    errcode.Code
	Message string
}

// noMember refuses who is no member of the group.
func (g *Group) noMember(id string) *Refusal {
	return refuse(errcode.UnknownMemberID, "Member %s is not a member of group %s.", id, g.id)
}

func refuse(code errcode.Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}
