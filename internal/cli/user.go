package cli

import (
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

// credentialsOf gives what a user has, by mechanism; nothing for one that there isn't.
func credentialsOf(ctx context.Context, adm *kadm.Client, user string) (map[kadm.ScramMechanism]int32, error) {
	users, err := adm.DescribeUserSCRAMs(ctx, user)
	if err != nil {
		return nil, err
	}
	u := users[user]
	if u.Err != nil && !errors.Is(u.Err, kerr.ResourceNotFound) {
		return nil, kafkaError(u.Err, u.ErrMessage)
	}
	has := make(map[kadm.ScramMechanism]int32)
	for _, info := range u.CredInfos {
		has[info.Mechanism] = info.Iterations
	}
	return has, nil
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
	user, err := c.name()
	if err != nil {
		return err
	}
	mechanisms, err := c.mechanisms([]kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512})
	if err != nil {
		return err
	}
	adm, closeClient, err := c.admin()
	if err != nil {
		return err
	}
	defer closeClient()
	// The protocol has no write that depends on what is there: of two who add one user
	// at the same moment the later one's password holds.
	has, err := credentialsOf(ctx, adm, user)
	if err != nil {
		return c.reach(err)
	}
	for _, m := range mechanisms {
		if _, exists := has[m]; exists {
			return fmt.Errorf("user %s exists already, with a password for %s: tidemark user passwd %s changes it", user, m, user)
		}
	}
	password, err := c.password(s, user)
	if err != nil {
		return err
	}
	if err := setPasswords(ctx, adm, user, password, mechanisms, func(kadm.ScramMechanism) int32 { return c.Iterations }); err != nil {
		return c.reach(err)
	}
	fmt.Fprintf(s.Out, "added %s (%s)\n", user, mechanismNames(mechanisms))
	return nil
}

// setPasswords writes a password for each mechanism by a request of its own: a user
// may appear once in a request of Kafka's.
func setPasswords(ctx context.Context, adm *kadm.Client, user, password string, mechanisms []kadm.ScramMechanism, iterations func(kadm.ScramMechanism) int32) error {
	for i, m := range mechanisms {
		out, err := adm.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{{User: user, Mechanism: m, Iterations: iterations(m), Password: password}})
		if err := alterFault(user, out, err); err != nil {
			if i > 0 {
				err = fmt.Errorf("%w (the password for %s is set: the same command again does the rest)", err, mechanismNames(mechanisms[:i]))
			}
			return fmt.Errorf("user %s, %s: %w", user, m, err)
		}
	}
	return nil
}

func alterFault(user string, out kadm.AlteredUserSCRAMs, err error) error {
	if err != nil {
		return err
	}
	return kafkaError(out[user].Err, out[user].ErrMessage)
}

type userPasswdCmd struct {
	Target
	credentialFlags
	passwordFlags
	Iterations int32 `help:"How often the password is hashed, 4096 to 16384 times; 0: as before." default:"0"`
}

func (c *userPasswdCmd) Run(ctx context.Context, s Streams) error {
	user, err := c.name()
	if err != nil {
		return err
	}
	adm, closeClient, err := c.admin()
	if err != nil {
		return err
	}
	defer closeClient()
	has, err := credentialsOf(ctx, adm, user)
	if err != nil {
		return c.reach(err)
	}
	if len(has) == 0 {
		return fmt.Errorf("there is no user %s: tidemark user add %s makes it", user, user)
	}
	var all []kadm.ScramMechanism
	for _, m := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
		if _, ok := has[m]; ok {
			all = append(all, m)
		}
	}
	mechanisms, err := c.mechanisms(all)
	if err != nil {
		return err
	}
	password, err := c.password(s, user)
	if err != nil {
		return err
	}
	iterations := func(m kadm.ScramMechanism) int32 {
		if before, ok := has[m]; ok && c.Iterations == 0 {
			return before
		}
		if c.Iterations == 0 {
			return iterationsDefault
		}
		return c.Iterations
	}
	if err := setPasswords(ctx, adm, user, password, mechanisms, iterations); err != nil {
		return c.reach(err)
	}
	fmt.Fprintf(s.Out, "changed the password of %s (%s)\n", user, mechanismNames(mechanisms))
	if rest := slices.DeleteFunc(all, func(m kadm.ScramMechanism) bool { return slices.Contains(mechanisms, m) }); len(rest) > 0 {
		fmt.Fprintf(s.Err, "%s still has the password it had for %s; PLAIN takes either\n", user, mechanismNames(rest))
	}
	return nil
}

type userRemoveCmd struct {
	Target
	credentialFlags
	Yes bool `short:"y" help:"Don't ask."`
}

func (c *userRemoveCmd) Run(ctx context.Context, s Streams) error {
	user, err := c.name()
	if err != nil {
		return err
	}
	if err := askable(s, c.Yes); err != nil {
		return err
	}
	adm, closeClient, err := c.admin()
	if err != nil {
		return err
	}
	defer closeClient()
	has, err := credentialsOf(ctx, adm, user)
	if err != nil {
		return c.reach(err)
	}
	wanted, err := c.mechanisms([]kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512})
	if err != nil {
		return err
	}
	wanted = slices.DeleteFunc(slices.Clone(wanted), func(m kadm.ScramMechanism) bool { _, ok := has[m]; return !ok })
	if len(wanted) == 0 {
		return fmt.Errorf("there is no user %s with such a password: tidemark user list shows who there is", user)
	}
	if err := confirm(s, c.Yes, fmt.Sprintf("User %s can't log in any more by %s.", user, mechanismNames(wanted)), user); err != nil {
		return err
	}
	for _, m := range wanted {
		out, err := adm.AlterUserSCRAMs(ctx, []kadm.DeleteSCRAM{{User: user, Mechanism: m}}, nil)
		if err := alterFault(user, out, err); err != nil {
			return c.reach(fmt.Errorf("user %s, %s: %w", user, m, err))
		}
	}
	fmt.Fprintf(s.Out, "removed %s (%s)\n", user, mechanismNames(wanted))
	if len(wanted) == len(has) {
		fmt.Fprintf(s.Err, "what ACLs say of User:%s stays: tidemark acl list --principal User:%s\n", user, user)
	}
	return nil
}
