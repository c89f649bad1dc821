package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/acl"
	"tidemark/internal/wire"
)

// clusterRules are those of the APIs about the cluster, its configs, its access
// control and its own brokers.
func clusterRules() []rule {
	return append(securityRules(), []rule{
		{wire.KeyDescribeConfigs, eachOf(func(in *kmsg.DescribeConfigsRequest) *[]kmsg.DescribeConfigsRequestResource { return &in.Resources },
			func(c *Call, _ *kmsg.DescribeConfigsRequest, r *kmsg.DescribeConfigsRequestResource) wire.ErrCode {
				return c.mayConfig(acl.DescribeConfigs, r.ResourceType, r.ResourceName)
			},
			func(_ *kmsg.DescribeConfigsRequest, out *kmsg.DescribeConfigsResponse, r *kmsg.DescribeConfigsRequestResource, code wire.ErrCode) {
				to := kmsg.NewDescribeConfigsResponseResource()
				to.ResourceType, to.ResourceName, to.ErrorCode = r.ResourceType, r.ResourceName, int16(code)
				out.Resources = append(out.Resources, to)
			})},
		{wire.KeyAlterConfigs, eachOf(func(in *kmsg.AlterConfigsRequest) *[]kmsg.AlterConfigsRequestResource { return &in.Resources },
			func(c *Call, _ *kmsg.AlterConfigsRequest, r *kmsg.AlterConfigsRequestResource) wire.ErrCode {
				return c.mayConfig(acl.AlterConfigs, r.ResourceType, r.ResourceName)
			},
			func(_ *kmsg.AlterConfigsRequest, out *kmsg.AlterConfigsResponse, r *kmsg.AlterConfigsRequestResource, code wire.ErrCode) {
				to := kmsg.NewAlterConfigsResponseResource()
				to.ResourceType, to.ResourceName, to.ErrorCode = r.ResourceType, r.ResourceName, int16(code)
				out.Resources = append(out.Resources, to)
			})},
		{wire.KeyIncrementalAlterConfigs, eachOf(func(in *kmsg.IncrementalAlterConfigsRequest) *[]kmsg.IncrementalAlterConfigsRequestResource {
			return &in.Resources
		},
			func(c *Call, _ *kmsg.IncrementalAlterConfigsRequest, r *kmsg.IncrementalAlterConfigsRequestResource) wire.ErrCode {
				return c.mayConfig(acl.AlterConfigs, r.ResourceType, r.ResourceName)
			},
			func(_ *kmsg.IncrementalAlterConfigsRequest, out *kmsg.IncrementalAlterConfigsResponse, r *kmsg.IncrementalAlterConfigsRequestResource, code wire.ErrCode) {
				to := kmsg.NewIncrementalAlterConfigsResponseResource()
				to.ResourceType, to.ResourceName, to.ErrorCode = r.ResourceType, r.ResourceName, int16(code)
				out.Resources = append(out.Resources, to)
			})},
		{wire.KeyListConfigResources, onCluster(acl.DescribeConfigs, func(_ *kmsg.ListConfigResourcesRequest, out *kmsg.ListConfigResourcesResponse, code wire.ErrCode) {
			out.ErrorCode = int16(code)
		})},
		{wire.KeyDescribeLogDirs, onCluster(acl.Describe, func(_ *kmsg.DescribeLogDirsRequest, out *kmsg.DescribeLogDirsResponse, code wire.ErrCode) {
			out.ErrorCode = int16(code) // before version 3 nothing is all that can be said
		})},
		{wire.KeyAlterReplicaLogDirs, onCluster(acl.Alter, refuseAlterReplicaLogDirs)},
		{wire.KeyElectLeaders, onCluster(acl.Alter, refuseElectLeaders)},
		{wire.KeyAlterPartitionReassignments, onCluster(acl.Alter, func(_ *kmsg.AlterPartitionAssignmentsRequest, out *kmsg.AlterPartitionAssignmentsResponse, code wire.ErrCode) {
			out.ErrorCode = int16(code)
		})},
		{wire.KeyListPartitionReassignments, onCluster(acl.Describe, func(_ *kmsg.ListPartitionReassignmentsRequest, out *kmsg.ListPartitionReassignmentsResponse, code wire.ErrCode) {
			out.ErrorCode = int16(code)
		})},
		{wire.KeyDescribeClientQuotas, onCluster(acl.DescribeConfigs, func(_ *kmsg.DescribeClientQuotasRequest, out *kmsg.DescribeClientQuotasResponse, code wire.ErrCode) {
			out.ErrorCode, out.Entries = int16(code), nil
		})},
		{wire.KeyAlterClientQuotas, onCluster(acl.AlterConfigs, refuseAlterClientQuotas)},
		{wire.KeyDescribeQuorum, onCluster(acl.Describe, func(_ *kmsg.DescribeQuorumRequest, out *kmsg.DescribeQuorumResponse, code wire.ErrCode) {
			out.ErrorCode = int16(code)
		})},
		{wire.KeyUpdateFeatures, onCluster(acl.Alter, func(_ *kmsg.UpdateFeaturesRequest, out *kmsg.UpdateFeaturesResponse, code wire.ErrCode) {
			out.ErrorCode = int16(code)
		})},
		{wire.KeyUnregisterBroker, onCluster(acl.Alter, func(_ *kmsg.UnregisterBrokerRequest, out *kmsg.UnregisterBrokerResponse, code wire.ErrCode) {
			out.ErrorCode = int16(code)
		})},
		{wire.KeyMirrorVerb, asWhole(func(c *Call, _ *wire.MirrorVerbRequest) wire.ErrCode { return c.mayActForCluster() },
			func(_ *wire.MirrorVerbRequest, out *wire.MirrorVerbResponse, code wire.ErrCode) {
				out.ErrorCode, out.Message = code, "this takes CLUSTER_ACTION or ALTER on the cluster"
			})},
		{wire.KeyWakeFetch, onCluster(acl.ClusterAction, func(_ *wire.WakeFetchRequest, out *wire.WakeFetchResponse, code wire.ErrCode) {
			out.ErrorCode = code
		})},
	}...)
}

// securityRules are those of ACLs and credentials.
func securityRules() []rule {
	return []rule{
		{wire.KeyDescribeScramKeys, asWhole(func(c *Call, _ *wire.ScramKeysRequest) wire.ErrCode { return c.mayAskKeys() },
			func(_ *wire.ScramKeysRequest, out *wire.ScramKeysResponse, code wire.ErrCode) {
				out.ErrorCode, out.Message = code, "users' keys are given to principals with CLUSTER_ACTION or ALTER on the cluster, by TLS or SASL"
			})},
		{wire.KeyDescribeAcls, onCluster(acl.Describe, func(_ *kmsg.DescribeACLsRequest, out *kmsg.DescribeACLsResponse, code wire.ErrCode) {
			out.ErrorCode = int16(code)
		})},
		{wire.KeyCreateAcls, onCluster(acl.Alter, func(in *kmsg.CreateACLsRequest, out *kmsg.CreateACLsResponse, code wire.ErrCode) {
			for range in.Creations {
				out.Results = append(out.Results, kmsg.CreateACLsResponseResult{ErrorCode: int16(code)})
			}
		})},
		{wire.KeyDeleteAcls, onCluster(acl.Alter, func(in *kmsg.DeleteACLsRequest, out *kmsg.DeleteACLsResponse, code wire.ErrCode) {
			for range in.Filters {
				out.Results = append(out.Results, kmsg.DeleteACLsResponseResult{ErrorCode: int16(code)})
			}
		})},
		{wire.KeyDescribeUserScramCredentials, onCluster(acl.Describe, func(_ *kmsg.DescribeUserSCRAMCredentialsRequest, out *kmsg.DescribeUserSCRAMCredentialsResponse, code wire.ErrCode) {
			out.ErrorCode = int16(code)
		})},
		{wire.KeyAlterUserScramCredentials, onCluster(acl.Alter, func(in *kmsg.AlterUserSCRAMCredentialsRequest, out *kmsg.AlterUserSCRAMCredentialsResponse, code wire.ErrCode) {
			for _, user := range alteredUsers(in) {
				out.Results = append(out.Results, kmsg.AlterUserSCRAMCredentialsResponseResult{User: user, ErrorCode: int16(code)})
			}
		})},
	}
}

// mayAskKeys is for who may have users' keys: by an authorizer's word alone, and
// never nobody.
func (c *Call) mayAskKeys() wire.ErrCode {
	if c.Req.Principal == acl.Anonymous {
		return wire.ErrClusterAuthorizationFailed
	}
	return c.mayActForCluster()
}

// mayActForCluster is for what brokers, and mirrors at their source, ask of each other.
func (c *Call) mayActForCluster() wire.ErrCode {
	return codeUnless(c.quietly().mayCluster(acl.ClusterAction) || c.mayCluster(acl.Alter), acl.Cluster)
}

// mayConfig asks for an operation on the configs of a resource. Of kinds that have
// none here the handler says so.
func (c *Call) mayConfig(op acl.Operation, kind kmsg.ConfigResourceType, name string) wire.ErrCode {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		return codeUnless(c.mayTopic(op, name), acl.Topic)
	case kmsg.ConfigResourceTypeGroupConfig:
		return codeUnless(c.may(op, acl.Group, name), acl.Group)
	default:
		return codeUnless(c.mayCluster(op), acl.Cluster)
	}
}

func refuseElectLeaders(in *kmsg.ElectLeadersRequest, out *kmsg.ElectLeadersResponse, code wire.ErrCode) {
	out.ErrorCode = int16(code)
	for _, t := range in.Topics { // version 0 has no other place for it
		to := kmsg.NewElectLeadersResponseTopic()
		to.Topic = t.Topic
		for _, n := range t.Partitions {
			p := kmsg.NewElectLeadersResponseTopicPartition()
			p.Partition, p.ErrorCode = n, int16(code)
			to.Partitions = append(to.Partitions, p)
		}
		out.Topics = append(out.Topics, to)
	}
}

func refuseAlterReplicaLogDirs(in *kmsg.AlterReplicaLogDirsRequest, out *kmsg.AlterReplicaLogDirsResponse, code wire.ErrCode) {
	for _, d := range in.Dirs {
		for _, t := range d.Topics {
			to := kmsg.NewAlterReplicaLogDirsResponseTopic()
			to.Topic = t.Topic
			for _, n := range t.Partitions {
				to.Partitions = append(to.Partitions, kmsg.AlterReplicaLogDirsResponseTopicPartition{Partition: n, ErrorCode: int16(code)})
			}
			out.Topics = append(out.Topics, to)
		}
	}
}

func refuseAlterClientQuotas(in *kmsg.AlterClientQuotasRequest, out *kmsg.AlterClientQuotasResponse, code wire.ErrCode) {
	for _, e := range in.Entries {
		to := kmsg.NewAlterClientQuotasResponseEntry()
		to.ErrorCode = int16(code)
		for _, part := range e.Entity {
			to.Entity = append(to.Entity, kmsg.AlterClientQuotasResponseEntryEntity{Type: part.Type, Name: part.Name})
		}
		out.Entries = append(out.Entries, to)
	}
}

// draftRules are those of the APIs of proposals that aren't final (draftAPIs).
func draftRules() []rule {
	return []rule{
		{wire.KeyListClusterMirrors, onCluster(acl.Describe, func(_ *wire.ListClusterMirrorsRequest, out *wire.ListClusterMirrorsResponse, code wire.ErrCode) {
			out.ErrorCode = code
		})},
		{wire.KeyDescribeClusterMirrors, onCluster(acl.Describe, func(_ *wire.DescribeClusterMirrorsRequest, out *wire.DescribeClusterMirrorsResponse, code wire.ErrCode) {
			out.ErrorCode = code
		})},
	}
}
