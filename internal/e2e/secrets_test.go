//go:build e2e

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/ackrail/ackrail/api/v1alpha1"
)

// synced is by when the kubelet has brought a Secret's new value to its pods.
const synced = 90 * time.Second

// Two endpoints run side by side, since each step waits for the kubelet.
func secrets() {
	var rotated, deleted, emptied *pipeline
	BeforeAll(func(ctx SpecContext) {
		rotated = newPipeline(ctx, "secrets")
		deleted = &pipeline{ns: rotated.ns, name: "deleted", handler: rotated.handler}
		emptied = &pipeline{ns: rotated.ns, name: "emptied", handler: rotated.handler}
		apply(ctx, webhookSecret(rotated.ns, "next-webhook", "the next secret"), webhookSecret(rotated.ns, "other-webhook", "another secret"),
			webhookSecret(rotated.ns, "third-webhook", "a third secret"))
		apply(ctx,
			rotated.endpoint(func(e *v1alpha1.WebhookEndpoint) {
				e.Spec.Source.SecretRefs = append(e.Spec.Source.SecretRefs, v1alpha1.SecretKeyRef{Name: "next-webhook", Key: "secret"})
			}),
			deleted.endpoint(func(e *v1alpha1.WebhookEndpoint) { e.Spec.Source.SecretRefs[0].Name = "other-webhook" }),
			emptied.endpoint(func(e *v1alpha1.WebhookEndpoint) { e.Spec.Source.SecretRefs[0].Name = "third-webhook" }))
		rotated.waitReady(ctx)
		deleted.waitReady(ctx)
		// Until the former pods have gone, some requests meet one that knows
		// one secret only.
		rotated.waitRolledOut(ctx)
		deleted.sender = newSender(ctx, deleted.url(ctx), "another secret")
		emptied.waitReady(ctx)
		emptied.sender = newSender(ctx, emptied.url(ctx), "a third secret")
	}, NodeTimeout(4*time.Minute))

	It("accepts either of two secrets while one takes over from the other", func(ctx SpecContext) {
		for key, value := range map[string]string{"overlap-old": secret, "overlap-next": "the next secret"} {
			Expect(statusOf(ctx, rotated.sender.with(value), key)).To(Equal(202), key)
		}
	}, SpecTimeout(time.Minute))

	It("accepts a new value, and refuses while the Secret is gone or empty, without restarting a pod", Label("fault"), func(ctx SpecContext) {
		before := identities(ctx, rotated.ns)
		began := time.Now()
		breaks(3, "a Secret changed, one deleted, one emptied, then put back")
		kubectl(ctx, "patch", "secret", "next-webhook", "-n", rotated.ns, "--type=merge", "-p", `{"stringData":{"secret":"the one after"}}`)
		kubectl(ctx, "delete", "secret", "other-webhook", "-n", deleted.ns)
		kubectl(ctx, "patch", "secret", "third-webhook", "-n", emptied.ns, "--type=merge", "-p", `{"data":{"secret":""}}`)

		By("saying that a Secret is missing, and that another is empty")
		for p, reason := range map[*pipeline]string{deleted: v1alpha1.ReasonSecretNotFound, emptied: v1alpha1.ReasonSecretKeyNotFound} {
			Eventually(ctx, func() []metav1.Condition { return p.get(ctx).Status.Conditions }).WithTimeout(synced).Should(And(
				haveCondition(v1alpha1.ConditionSecretsResolved, metav1.ConditionFalse, reason),
				haveCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, reason)))
		}

		By("accepting the new value at every pod, no longer the former")
		Eventually(ctx, always(10, func() int { return statusOf(ctx, rotated.sender.with("the one after"), unique("rotated")) })).
			WithTimeout(synced - time.Since(began)).WithPolling(time.Second).Should(Equal(202))
		AddReportEntry("From kubectl patch to acceptance", time.Since(began).Round(time.Second).String())
		Expect(statusOf(ctx, rotated.sender.with("the next secret"), "former")).To(Equal(401))
		Expect(statusOf(ctx, rotated.sender, "still")).To(Equal(202))

		By("refusing signed and unsigned requests while there is no secret")
		for _, p := range []*pipeline{deleted, emptied} {
			unsigned, signedWithNothing := p.sender.with(""), p.sender.with("\x00") // which an empty key is, filled up
			Eventually(ctx, func(g Gomega) {
				g.Expect(statusOf(ctx, unsigned, unique("unsigned"))).To(BeElementOf(401, 503))
				g.Expect(statusOf(ctx, signedWithNothing, unique("nothing"))).To(BeElementOf(401, 503))
				for range 10 {
					g.Expect(statusOf(ctx, p.sender, unique("gone"))).To(BeElementOf(401, 503), p.name)
				}
			}).WithTimeout(synced).WithPolling(time.Second).Should(Succeed())
		}

		By("recovering when they are back")
		apply(ctx, webhookSecret(deleted.ns, "other-webhook", "another secret"), webhookSecret(emptied.ns, "third-webhook", "a third secret"))
		for _, p := range []*pipeline{deleted, emptied} {
			Eventually(ctx, always(10, func() int { return statusOf(ctx, p.sender, unique("back")) })).
				WithTimeout(synced).WithPolling(time.Second).Should(Equal(202), p.name)
			Expect(statusOf(ctx, p.sender.with(""), "unsigned")).To(Equal(401))
			p.waitReady(ctx)
		}
		Expect(identities(ctx, rotated.ns)).To(Equal(before), "pods and their restarts")
	}, SpecTimeout(6*time.Minute))
}

// statusOf returns the status that a small event is answered with.
func statusOf(ctx context.Context, s *sender, key string) int {
	GinkgoHelper()
	a, err := s.send(ctx, key, []byte(`{"secret":"test"}`))
	Expect(err).NotTo(HaveOccurred())
	return a.status
}

// always returns what f returns n times in a row, else -1: requests go to one
// pod or another.
func always(n int, f func() int) func() int {
	return func() int {
		first := f()
		for range n - 1 {
			if f() != first {
				return -1
			}
		}
		return first
	}
}

// identities tells the pods of a namespace and how often they were restarted.
func identities(ctx context.Context, ns string) map[string]int32 {
	GinkgoHelper()
	ids := map[string]int32{}
	for _, pod := range podsOf(ctx, ns, "") {
		ids[pod.Name+" "+string(pod.UID)] = restarts(&pod)
	}
	return ids
}

func restarts(pod *corev1.Pod) (n int32) {
	for _, status := range pod.Status.ContainerStatuses {
		n += status.RestartCount
	}
	return n
}

// unique makes a key that was not used before.
func unique(prefix string) string { return prefix + "-" + string(uuid.NewUUID()) }
