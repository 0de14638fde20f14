package resources

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"

	"github.com/ackrail/ackrail/api/v1alpha1"
)

// ingressNetworkPolicy lets requests and scrapes in, and lets out what an
// ingress needs: names and its database. Policies add up: where the network
// judges by another port than the URL's (a Service in front of the database
// that maps it), a further policy can allow that one.
func ingressNetworkPolicy(e *v1alpha1.WebhookEndpoint, databasePorts []int32) *networkingv1ac.NetworkPolicyApplyConfiguration {
	toDatabase := networkingv1ac.NetworkPolicyEgressRule().WithPorts(tcpPorts(databasePorts...)...)
	if len(databasePorts) == 0 {
		toDatabase.WithPorts(networkingv1ac.NetworkPolicyPort().WithProtocol(corev1.ProtocolTCP))
	}
	return networkPolicy(e, ComponentIngress, tcpPorts(httpPort, metricsPort), dns(), toDatabase)
}

// workerNetworkPolicy lets scrapes in, and everything out: destinations are
// wherever their URLs lead.
func workerNetworkPolicy(e *v1alpha1.WebhookEndpoint) *networkingv1ac.NetworkPolicyApplyConfiguration {
	return networkPolicy(e, ComponentWorker, tcpPorts(metricsPort), networkingv1ac.NetworkPolicyEgressRule())
}

func networkPolicy(
	e *v1alpha1.WebhookEndpoint, component Component,
	in []*networkingv1ac.NetworkPolicyPortApplyConfiguration, out ...*networkingv1ac.NetworkPolicyEgressRuleApplyConfiguration,
) *networkingv1ac.NetworkPolicyApplyConfiguration {
	return networkingv1ac.NetworkPolicy(Name(e.Name, component), e.Namespace).
		WithLabels(componentLabels(e, component)).
		WithOwnerReferences(owner(e)).
		WithSpec(networkingv1ac.NetworkPolicySpec().
			WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(selector(e, component))).
			WithPolicyTypes(networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress).
			WithIngress(networkingv1ac.NetworkPolicyIngressRule().WithPorts(in...)).
			WithEgress(out...))
}

// dns allows the port of DNS servers and the one that OpenShift's listen on.
func dns() *networkingv1ac.NetworkPolicyEgressRuleApplyConfiguration {
	rule := networkingv1ac.NetworkPolicyEgressRule()
	for _, port := range []int32{53, 5353} {
		for _, protocol := range []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP} {
			rule.WithPorts(networkingv1ac.NetworkPolicyPort().WithProtocol(protocol).WithPort(intstr.FromInt32(port)))
		}
	}
	return rule
}

func tcpPorts(ports ...int32) []*networkingv1ac.NetworkPolicyPortApplyConfiguration {
	var all []*networkingv1ac.NetworkPolicyPortApplyConfiguration
	for _, port := range ports {
		all = append(all, networkingv1ac.NetworkPolicyPort().WithProtocol(corev1.ProtocolTCP).WithPort(intstr.FromInt32(port)))
	}
	return all
}
