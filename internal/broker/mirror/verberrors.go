package mirror

import "errors"

// Kinds of errors of the verbs; each is wrapped in a sentence that names the mirror and the way out.
var (
	// ErrUnknownMirror: there is no mirror of that name.
	ErrUnknownMirror = errors.New("no such mirror")
	// ErrExists: a mirror of that name is there already.
	ErrExists = errors.New("mirror exists")
	// ErrState: the verb doesn't fit the mirror's state.
	ErrState = errors.New("not possible in this state")
	// ErrSpec: what was asked for can't be understood.
	ErrSpec = errors.New("bad mirror")
	// ErrPlan: the verb needs a preview's plan, or the one quoted no longer holds (R24).
	ErrPlan = errors.New("a plan is needed")
	// ErrRefusedParts: partitions were refused; the sentence says which and why.
	ErrRefusedParts = errors.New("refused")
	// ErrUnknownDrill: there is no fork of that name.
	ErrUnknownDrill = errors.New("no such drill")
	// ErrNone: there is nothing of the kind yet.
	ErrNone = errors.New("none yet")
)
