package sim

import (
	"time"

	"tidemark/internal/broker"
	"tidemark/internal/broker/coordinator"
	"tidemark/internal/core/group/consumer"
)

// newGroupMutations switch off what groups of the new protocol rest on.
func newGroupMutations() []*Mutation {
	of := func(name, rule string, finds []string, r consumer.Rules) *Mutation {
		return &Mutation{Name: "kip848-" + name, Rule: "KIP-848: " + rule, Profile: "cluster-kip848", Finds: finds,
			Cluster: &clusterMutation{rules: broker.VirtualRules{Groups: coordinator.Rules{Members: r}}, adjust: consumersMove}}
	}
	return []*Mutation{
		of("release-unasked", "what a member is to let go of is another's with its next heartbeat", []string{"OneOwner", "CommitFenced"}, consumer.Rules{ReleaseUnasked: true}),
		of("forget-owners", "a new coordinator gives away what members have", []string{"OneOwner", "CommitFenced", "PANIC"}, consumer.Rules{ForgetOwners: true}),
		of("commit-unfenced", "who isn't a member any more may commit", []string{"CommitFenced"}, consumer.Rules{CommitUnfenced: true}),
		of("keeps-silent", "who is silent stays a member", []string{"Convergence"}, consumer.Rules{KeepsSilent: true}),
	}
}

// consumersMove has members come and go all the time, and coordinators move.
func consumersMove(o *ClusterOptions) {
	newGroupsAtWork(o)
	o.Length, o.Calm = time.Minute, 30*time.Second
	o.Rates = map[string]float64{"write": 120, "consumer-leave": 10, "consumer-pause": 10, "consumer-die": 6, "crash-coordinator": 4, "elect-preferred": 12}
}
