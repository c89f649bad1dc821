package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"

	"tidemark/internal/core/acl"
)

// aclCmd is `tidemark acl …`.
type aclCmd struct {
	List   aclListCmd   `cmd:"" help:"List access control entries."`
	Add    aclAddCmd    `cmd:"" help:"Allow or deny something."`
	Remove aclRemoveCmd `cmd:"" help:"Remove access control entries: those that add with the same options makes, or, without principals, all of the resources named."`
}

// aclRow is one entry as `acl list` prints it, in Kafka's words.
type aclRow struct {
	Permission   string `json:"permissionType"`
	Principal    string `json:"principal"`
	Host         string `json:"host"`
	Operation    string `json:"operation"`
	ResourceType string `json:"resourceType"`
	PatternType  string `json:"patternType"`
	Name         string `json:"resourceName"`
}

func rowsOf(list []acl.Binding) []aclRow {
	rows := []aclRow{}
	for _, b := range list {
		rows = append(rows, aclRow{Permission: b.Permission.String(), Principal: b.Principal, Host: b.Host, Operation: b.Operation.String(),
			ResourceType: b.Resource.String(), PatternType: b.Pattern.String(), Name: b.Name})
	}
	return rows
}

func aclTable(rows []aclRow) table {
	out := table{columns: []string{"PERMISSION", "PRINCIPAL", "HOST", "OPERATION", "RESOURCE", "PATTERN", "NAME"}}
	for _, r := range rows {
		out.rows = append(out.rows, []string{r.Permission, r.Principal, r.Host, r.Operation, r.ResourceType, r.PatternType, r.Name})
	}
	return out
}

type aclListCmd struct {
	Target
	aclResources
	Principal []string `help:"Only entries of this principal, TYPE:NAME; repeatable." placeholder:"User:NAME" sep:"none"`
}

func (c *aclListCmd) Run(ctx context.Context, s Streams) error {
	filters, err := c.filters()
	if err != nil {
		return err
	}
	adm, closeClient, err := c.admin()
	if err != nil {
		return err
	}
	defer closeClient()
	all, err := allBindings(ctx, adm)
	if err != nil {
		return c.reach(err)
	}
	rows := rowsOf(slices.DeleteFunc(matching(all, filters), func(b acl.Binding) bool {
		return len(c.Principal) > 0 && !slices.Contains(c.Principal, b.Principal)
	}))
	return c.print(s.Out, rows, func() table { return aclTable(rows) })
}

// allBindings asks for every entry of the cluster; filters are applied here, so that
// one question serves all of them.
func allBindings(ctx context.Context, adm *kadm.Client) ([]acl.Binding, error) {
	everything := kadm.NewACLs().AnyResource().Operations().ResourcePatternType(kadm.ACLPatternAny).Allow().AllowHosts().Deny().DenyHosts()
	results, err := adm.DescribeACLs(ctx, everything)
	if err != nil {
		return nil, err
	}
	var out []acl.Binding
	for _, r := range results {
		if r.Err != nil {
			return nil, kafkaError(r.Err, r.ErrMessage)
		}
		for _, d := range r.Described {
			out = append(out, acl.Binding{Resource: acl.ResourceType(d.Type), Pattern: acl.PatternType(d.Pattern), Name: d.Name,
				Principal: d.Principal, Host: d.Host, Operation: acl.Operation(d.Operation), Permission: acl.Permission(d.Permission)})
		}
	}
	slices.SortFunc(out, acl.Compare)
	return slices.Compact(out), nil
}

// matching gives the bindings that at least one filter finds; no filter finds everything.
func matching(all []acl.Binding, filters []acl.Filter) []acl.Binding {
	return slices.DeleteFunc(slices.Clone(all), func(b acl.Binding) bool {
		return len(filters) > 0 && !slices.ContainsFunc(filters, func(f acl.Filter) bool { return f.Matches(b) })
	})
}

// exactly builds the one entry, for the requests of the client library.
func exactly(b acl.Binding) (*kadm.ACLBuilder, error) {
	one := kadm.NewACLs().ResourcePatternType(kadm.ACLPattern(b.Pattern)).Operations(kadm.ACLOperation(b.Operation))
	switch b.Resource {
	case acl.Topic:
		one.Topics(b.Name)
	case acl.Group:
		one.Groups(b.Name)
	case acl.Cluster:
		one.Clusters()
	case acl.TransactionalID:
		one.TransactionalIDs(b.Name)
	case acl.DelegationToken:
		one.DelegationTokens(b.Name)
	default:
		return nil, fmt.Errorf("%s: entries about resources of type %s are changed with kafka-acls", b, b.Resource)
	}
	if b.Permission == acl.Deny {
		return one.Deny(b.Principal).DenyHosts(b.Host), nil
	}
	return one.Allow(b.Principal).AllowHosts(b.Host), nil
}

type aclAddCmd struct {
	Target
	aclResources
	aclEntries
	DryRun bool `help:"Show what would be added, change nothing."`
}

func (c *aclAddCmd) Run(ctx context.Context, s Streams) error {
	wanted, err := c.bindings(&c.aclResources)
	if err != nil {
		return err
	}
	adm, closeClient, err := c.admin()
	if err != nil {
		return err
	}
	defer closeClient()
	if !c.DryRun {
		// Each by itself: what is there already counts as done, so that the same command
		// again finishes what was interrupted.
		for i, b := range wanted {
			if err := createACL(ctx, adm, b); err != nil {
				return c.reach(fmt.Errorf("%s: %w (%d of %d entries are made)", b, err, i, len(wanted)))
			}
		}
	}
	rows := rowsOf(wanted)
	return c.print(s.Out, rows, func() table { return aclTable(rows) })
}

func createACL(ctx context.Context, adm *kadm.Client, b acl.Binding) error {
	one, err := exactly(b)
	if err != nil {
		return err
	}
	results, err := adm.CreateACLs(ctx, one)
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.Err != nil {
			return kafkaError(r.Err, r.ErrMessage)
		}
	}
	return nil
}

type aclRemoveCmd struct {
	Target
	aclResources
	aclEntries
	DryRun bool `help:"Show what would be removed, change nothing."`
	Yes    bool `short:"y" help:"Don't ask."`
}

func (c *aclRemoveCmd) Run(ctx context.Context, s Streams) error {
	filters, err := c.removal(&c.aclResources)
	if err != nil {
		return err
	}
	if !c.DryRun {
		if err := askable(s, c.Yes); err != nil {
			return err
		}
	}
	adm, closeClient, err := c.admin()
	if err != nil {
		return err
	}
	defer closeClient()
	all, err := allBindings(ctx, adm)
	if err != nil {
		return c.reach(err)
	}
	found := matching(all, filters)
	if len(found) == 0 {
		return fmt.Errorf("no entry is like that: tidemark acl list shows what there is; --operation (ALL unless given), hosts and --resource-pattern-type must be the entry's own")
	}
	rows := rowsOf(found)
	if !c.DryRun {
		if err := c.removeAll(ctx, adm, s, found); err != nil {
			return err
		}
	}
	return c.print(s.Out, rows, func() table { return aclTable(rows) })
}

// removeAll removes what was shown, and nothing that came meanwhile.
func (c *aclRemoveCmd) removeAll(ctx context.Context, adm *kadm.Client, s Streams, found []acl.Binding) error {
	var lines []string
	for _, b := range found {
		lines = append(lines, "  "+b.String())
	}
	if err := confirm(s, c.Yes, "This removes:\n"+strings.Join(lines, "\n"), "remove"); err != nil {
		return err
	}
	for i, b := range found {
		one, err := exactly(b)
		if err != nil {
			return err
		}
		results, err := adm.DeleteACLs(ctx, one)
		for _, r := range results {
			if err == nil && r.Err != nil {
				err = kafkaError(r.Err, r.ErrMessage)
			}
		}
		if err != nil {
			return c.reach(fmt.Errorf("%s: %w (%d of %d entries are removed)", b, err, i, len(found)))
		}
	}
	return nil
}
