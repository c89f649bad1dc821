package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// The mechanisms that a user's password can be kept for. PLAIN has none of its own:
// it is checked against either.
const (
	mechanism256 = "SCRAM-SHA-256"
	mechanism512 = "SCRAM-SHA-512"
)

// userCmd is `tidemark user …`.
type userCmd struct {
	List   userListCmd   `cmd:"" help:"List users and the mechanisms that they have a password for."`
	Add    userAddCmd    `cmd:"" help:"Make a user."`
	Passwd userPasswdCmd `cmd:"" help:"Change a user's password. Connections that are logged in stay."`
	Remove userRemoveCmd `cmd:"" help:"Remove a user, or its password for some mechanisms. Connections that are logged in stay."`
}

// userRow is one credential as `user list` prints it.
type userRow struct {
	User       string `json:"user"`
	Mechanism  string `json:"mechanism"`
	Iterations int32  `json:"iterations"`
}

type userListCmd struct {
	Target
	Name []string `arg:"" optional:"" help:"Only these users."`
}

func (c *userListCmd) Run(ctx context.Context, s Streams) error {
	adm, closeClient, err := c.admin()
	if err != nil {
		return err
	}
	defer closeClient()
	users, err := adm.DescribeUserSCRAMs(ctx, c.Name...)
	if err != nil {
		return c.reach(err)
	}
	rows := []userRow{}
	for _, u := range users.Sorted() {
		if u.Err != nil {
			return c.reach(fmt.Errorf("user %s: %w", u.User, kafkaError(u.Err, u.ErrMessage)))
		}
		for _, info := range u.CredInfos {
			rows = append(rows, userRow{User: u.User, Mechanism: info.Mechanism.String(), Iterations: info.Iterations})
		}
	}
	return c.print(s.Out, rows, func() table {
		out := table{columns: []string{"USER", "MECHANISM", "ITERATIONS"}}
		for _, r := range rows {
			out.rows = append(out.rows, []string{r.User, r.Mechanism, fmt.Sprint(r.Iterations)})
		}
		return out
	})
}

// credentialFlags choose what of a user is meant.
type credentialFlags struct {
	Name      string   `arg:"" help:"The user's name, without User:."`
	Mechanism []string `help:"Only this mechanism, SCRAM-SHA-256 or SCRAM-SHA-512; repeatable." placeholder:"NAME"`
}

// name refuses the principal where the user's name is wanted: as a name it would be
// the user of the principal User:User:NAME.
func (c *credentialFlags) name() (string, error) {
	if rest, isPrincipal := strings.CutPrefix(c.Name, "User:"); isPrincipal {
		return "", fmt.Errorf("%w: a user's name has no User: in front: %s", errUsage, rest)
	}
	return c.Name, nil
}

// mechanisms are those of the flag, or all of otherwise.
func (c *credentialFlags) mechanisms(otherwise []kadm.ScramMechanism) ([]kadm.ScramMechanism, error) {
	var out []kadm.ScramMechanism
	for _, name := range c.Mechanism {
		switch strings.ToUpper(name) {
		case mechanism256:
			out = append(out, kadm.ScramSha256)
		case mechanism512:
			out = append(out, kadm.ScramSha512)
		default:
			return nil, fmt.Errorf("%w: --mechanism %s: want %s or %s", errUsage, name, mechanism256, mechanism512)
		}
	}
	if len(out) == 0 {
		return otherwise, nil
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// account is a user whose credentials are read, and may be changed.
type account struct {
	target Target
	adm    *kadm.Client
	close  func()
	name   string
	has    map[kadm.ScramMechanism]int32 // iterations by mechanism; empty for a user that there isn't
}

// account asks for what the user has. Whoever gets one closes it.
func (c *credentialFlags) account(ctx context.Context, t Target) (*account, error) {
	name, err := c.name()
	if err != nil {
		return nil, err
	}
	a := &account{target: t, name: name, has: make(map[kadm.ScramMechanism]int32)}
	if a.adm, a.close, err = t.admin(); err != nil {
		return nil, err
	}
	if err := a.read(ctx); err != nil {
		a.close()
		return nil, t.reach(err)
	}
	return a, nil
}

func (a *account) read(ctx context.Context) error {
	users, err := a.adm.DescribeUserSCRAMs(ctx, a.name)
	if err != nil {
		return err
	}
	u := users[a.name]
	if u.Err != nil && !errors.Is(u.Err, kerr.ResourceNotFound) {
		return kafkaError(u.Err, u.ErrMessage)
	}
	for _, info := range u.CredInfos {
		a.has[info.Mechanism] = info.Iterations
	}
	return nil
}

// setPassword asks for a password and writes it for each mechanism by a request of its
// own: a user may appear once in a request of Kafka's.
func (a *account) setPassword(ctx context.Context, s Streams, from *passwordFlags, mechanisms []kadm.ScramMechanism, iterations func(kadm.ScramMechanism) int32) error {
	password, err := from.password(s, a.name)
	if err != nil {
		return err
	}
	for i, m := range mechanisms {
		err := a.alter(ctx, m, nil, []kadm.UpsertSCRAM{{User: a.name, Mechanism: m, Iterations: iterations(m), Password: password}})
		if err != nil && i > 0 {
			err = fmt.Errorf("%w (the password for %s is set: the same command again does the rest)", err, mechanismNames(mechanisms[:i]))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// alter writes or removes what the user has for one mechanism.
func (a *account) alter(ctx context.Context, m kadm.ScramMechanism, remove []kadm.DeleteSCRAM, set []kadm.UpsertSCRAM) error {
	out, err := a.adm.AlterUserSCRAMs(ctx, remove, set)
	if err == nil {
		err = kafkaError(out[a.name].Err, out[a.name].ErrMessage)
	}
	if err != nil {
		return a.target.reach(fmt.Errorf("user %s, %s: %w", a.name, m, err))
	}
	return nil
}

// having gives those of the mechanisms that the user has a password for.
func (a *account) having(list []kadm.ScramMechanism) []kadm.ScramMechanism {
	return slices.DeleteFunc(slices.Clone(list), func(m kadm.ScramMechanism) bool { _, ok := a.has[m]; return !ok })
}

// allMechanisms are those that a password can be kept for.
func allMechanisms() []kadm.ScramMechanism {
	return []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512}
}

func mechanismNames(list []kadm.ScramMechanism) string {
	var names []string
	for _, m := range list {
		names = append(names, m.String())
	}
	return strings.Join(names, ", ")
}

// iterationsDefault is how often a new password is hashed; Kafka takes 4,096 to 16,384.
const iterationsDefault = 8192

type userAddCmd struct {
	Target
	credentialFlags
	passwordFlags
	Iterations int32 `help:"How often the password is hashed, 4096 to 16384 times." default:"8192"`
}

func (c *userAddCmd) Run(ctx context.Context, s Streams) error {
	mechanisms, err := c.mechanisms(allMechanisms())
	if err != nil {
		return err
	}
	user, err := c.account(ctx, c.Target)
	if err != nil {
		return err
	}
	defer user.close()
	// The protocol has no write that depends on what is there: of two who add one user
	// at the same moment the later one's password holds.
	for _, m := range mechanisms {
		if _, exists := user.has[m]; exists {
			return fmt.Errorf("user %s exists already, with a password for %s: tidemark user passwd %s changes it", user.name, m, user.name)
		}
	}
	if err := user.setPassword(ctx, s, &c.passwordFlags, mechanisms, func(kadm.ScramMechanism) int32 { return c.Iterations }); err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "added %s (%s)\n", user.name, mechanismNames(mechanisms))
	return nil
}

type userPasswdCmd struct {
	Target
	credentialFlags
	passwordFlags
	Iterations int32 `help:"How often the password is hashed, 4096 to 16384 times; 0: as before." default:"0"`
}

func (c *userPasswdCmd) Run(ctx context.Context, s Streams) error {
	user, err := c.account(ctx, c.Target)
	if err != nil {
		return err
	}
	defer user.close()
	if len(user.has) == 0 {
		return fmt.Errorf("there is no user %s: tidemark user add %s makes it", user.name, user.name)
	}
	all := user.having(allMechanisms())
	mechanisms, err := c.mechanisms(all)
	if err != nil {
		return err
	}
	iterations := func(m kadm.ScramMechanism) int32 {
		return cmp.Or(c.Iterations, user.has[m], iterationsDefault)
	}
	if err := user.setPassword(ctx, s, &c.passwordFlags, mechanisms, iterations); err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "changed the password of %s (%s)\n", user.name, mechanismNames(mechanisms))
	if rest := slices.DeleteFunc(all, func(m kadm.ScramMechanism) bool { return slices.Contains(mechanisms, m) }); len(rest) > 0 {
		fmt.Fprintf(s.Err, "%s still has the password it had for %s; PLAIN takes either\n", user.name, mechanismNames(rest))
	}
	return nil
}

type userRemoveCmd struct {
	Target
	credentialFlags
	Yes bool `short:"y" help:"Don't ask."`
}

func (c *userRemoveCmd) Run(ctx context.Context, s Streams) error {
	asked, err := c.mechanisms(allMechanisms())
	if err != nil {
		return err
	}
	if err := askable(s, c.Yes); err != nil {
		return err
	}
	user, err := c.account(ctx, c.Target)
	if err != nil {
		return err
	}
	defer user.close()
	wanted := user.having(asked)
	if len(wanted) == 0 {
		return fmt.Errorf("there is no user %s with such a password: tidemark user list shows who there is", user.name)
	}
	if err := confirm(s, c.Yes, fmt.Sprintf("User %s can't log in any more by %s.", user.name, mechanismNames(wanted)), user.name); err != nil {
		return err
	}
	for _, m := range wanted {
		if err := user.alter(ctx, m, []kadm.DeleteSCRAM{{User: user.name, Mechanism: m}}, nil); err != nil {
			return err
		}
	}
	fmt.Fprintf(s.Out, "removed %s (%s)\n", user.name, mechanismNames(wanted))
	if len(wanted) == len(user.has) {
		fmt.Fprintf(s.Err, "what ACLs say of User:%s stays: tidemark acl list --principal User:%s\n", user.name, user.name)
	}
	return nil
}
