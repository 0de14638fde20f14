//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func rights() {
	It("may do what it needs, and nothing else", func(ctx SpecContext) {
		account := managerAccount(ctx)
		for question, want := range map[string]string{
			"get secrets":                                "yes",
			"list secrets":                               "no",
			"watch secrets":                              "no",
			"update secrets":                             "no",
			"create pods":                                "no",
			"create pods --subresource=exec":             "no",
			"get pods --subresource=log":                 "no",
			"create deployments.apps":                    "yes",
			"patch deployments.apps":                     "yes",
			"delete deployments.apps":                    "no",
			"watch webhookendpoints.ackrail.io":          "yes",
			"update webhookendpoints.ackrail.io":         "no",
			"delete webhookendpoints.ackrail.io":         "no",
			"create eventreplays.ackrail.io":             "no",
			"create clusterrolebindings":                 "no",
			"escalate clusterroles":                      "no",
			"impersonate serviceaccounts":                "no",
			"create serviceaccounts":                     "yes",
			"create serviceaccounts --subresource=token": "no",
			"patch nodes":                                "no",
			"patch customresourcedefinitions":            "no",
			"* *":                                        "no",
		} {
			Expect(canI(ctx, account, "default", question)).To(Equal(want), question)
		}
	}, SpecTimeout(2*time.Minute))

	It("uses every right that it has", func(ctx SpecContext) {
		if env.auditLog == "" {
			Skip("the cluster's audit log cannot be read: set E2E_AUDIT_LOG to its path")
		}
		if suite, _ := GinkgoConfiguration(); len(suite.FocusStrings)+len(suite.SkipStrings) > 0 {
			Skip("a part of the specs shows a part of the uses")
		}
		account := managerAccount(ctx)
		used := map[string]bool{}
		all, err := calls(auditStart, account)
		Expect(err).NotTo(HaveOccurred())
		for _, c := range all {
			if c.ResponseStatus.Code == 403 && !strings.HasPrefix(c.ObjectRef.Namespace, run) {
				Fail("refused: " + c.String())
			}
			used[c.Verb+" "+c.resource()] = true
			switch {
			case c.Verb == "patch" && c.ResponseStatus.Code == 201: // applying makes what is not there
				used["create "+c.resource()] = true
			case c.Verb == "watch": // begins with a list, which servers before 1.34 do not send on a watch
				used["list "+c.resource()] = true
			}
		}
		var unused []string
		for _, right := range rightsOf(ctx, account) {
			if !used[right] {
				unused = append(unused, right)
			}
		}
		Expect(unused).To(BeEmpty(), "rights that were not used")
	}, SpecTimeout(time.Minute))

	It("runs restricted pods without a token, also those of the data plane", func(ctx SpecContext) {
		p := newPipeline(ctx, "rights")
		for _, component := range []string{"ingress", "worker"} {
			for _, pod := range p.pods(ctx, component) {
				Expect(pod.Spec.AutomountServiceAccountToken).To(HaveValue(BeFalse()), pod.Name)
				for _, v := range pod.Spec.Volumes {
					Expect(hasToken(&v)).To(BeFalse(), "volume %s of %s", v.Name, pod.Name)
				}
			}
		}
		for _, ns := range []string{p.ns, system} {
			namespace, err := api.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(namespace.Labels).To(HaveKeyWithValue(policyLabel, "restricted"))
			// What a namespace enforces says nothing of the pods that were there before.
			out := kubectl(ctx, "label", "--dry-run=server", "--overwrite", "namespace", ns, policyLabel+"=restricted")
			Expect(out).NotTo(ContainSubstring("violate"))
		}
	}, SpecTimeout(3*time.Minute))
}

// canI asks whether an account may do something in a namespace.
func canI(ctx context.Context, account, ns, question string) string {
	// It fails for "no", which it prints like "yes"; other failures print nothing.
	out, _ := tryKubectl(ctx, "", append([]string{"auth", "can-i", "--as", account, "-n", ns}, strings.Fields(question)...)...)
	return strings.TrimSpace(out)
}

func hasToken(v *corev1.Volume) bool {
	return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
		return s.ServiceAccountToken != nil
	})
}

// unseen are rights whose use is not to be seen here: events are created or
// patched as the API server's answers come, reviews happen when metrics are
// scraped, and finalizers are asked about, for owner references that block
// deletion, by an admission plugin that not every cluster has.
var unseen = []string{"events", "tokenreviews", "subjectaccessreviews", "webhookendpoints/finalizers"}

// rightsOf returns what the cluster roles that are bound to an account grant,
// as verb and group/resource.
func rightsOf(ctx context.Context, account string) []string {
	GinkgoHelper()
	bindings, err := api.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	found := map[string]bool{}
	for _, b := range bindings.Items {
		if !slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool {
			return s.Kind == "ServiceAccount" && "system:serviceaccount:"+s.Namespace+":"+s.Name == account
		}) {
			continue
		}
		role, err := api.RbacV1().ClusterRoles().Get(ctx, b.RoleRef.Name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		for _, rule := range role.Rules {
			for _, right := range rightsOfRule(&rule) {
				found[right] = true
			}
		}
	}
	Expect(found).NotTo(BeEmpty())
	var rights []string
	for right := range found {
		rights = append(rights, right)
	}
	slices.Sort(rights)
	return rights
}

func rightsOfRule(rule *rbacv1.PolicyRule) (rights []string) {
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			if slices.Contains(unseen, resource) {
				continue
			}
			if group != "" {
				resource = group + "/" + resource
			}
			for _, verb := range rule.Verbs {
				rights = append(rights, fmt.Sprintf("%s %s", verb, resource))
			}
		}
	}
	return rights
}
