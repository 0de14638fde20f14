package webhookendpoint

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/resources"
	"github.com/ackrail/ackrail/internal/store"
)

// children returns empty objects of an endpoint's children, by what they are.
func children(endpoint string) map[string]client.Object {
	in, out, pipeline := resources.Name(endpoint, resources.ComponentIngress), resources.Name(endpoint, resources.ComponentWorker), resources.PipelineName(endpoint)
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: w.namespace, Name: name} }
	return map[string]client.Object{
		"service account":           &corev1.ServiceAccount{ObjectMeta: meta(pipeline)},
		"configuration":             &corev1.ConfigMap{ObjectMeta: meta(pipeline)},
		"service":                   &corev1.Service{ObjectMeta: meta(in)},
		"ingress network policy":    &networkingv1.NetworkPolicy{ObjectMeta: meta(in)},
		"ingress disruption budget": &policyv1.PodDisruptionBudget{ObjectMeta: meta(in)},
		"ingress deployment":        &appsv1.Deployment{ObjectMeta: meta(in)},
		"worker network policy":     &networkingv1.NetworkPolicy{ObjectMeta: meta(out)},
		"worker disruption budget":  &policyv1.PodDisruptionBudget{ObjectMeta: meta(out)},
		"worker deployment":         &appsv1.Deployment{ObjectMeta: meta(out)},
	}
}

func expectChildren(ctx SpecContext, e *v1alpha1.WebhookEndpoint) {
	GinkgoHelper()
	for what, obj := range children(e.Name) {
		Eventually(ctx, func() error { return admin.Get(ctx, client.ObjectKeyFromObject(obj), obj) }).
			WithTimeout(patience).WithPolling(poll).Should(Succeed(), what)
		Expect(metav1.IsControlledBy(obj, e)).To(BeTrue(), what)
		Expect(obj.GetLabels()).To(HaveKeyWithValue(resources.LabelManagedBy, resources.ManagedBy), what)
		Expect(obj.GetLabels()).To(HaveKeyWithValue(resources.LabelInstance, resources.InstanceName(e.Name)), what)
	}
}

func expectNoChildren(ctx SpecContext, endpoint string) {
	GinkgoHelper()
	for what, obj := range children(endpoint) {
		Expect(client.IgnoreNotFound(admin.Get(ctx, client.ObjectKeyFromObject(obj), obj))).To(Succeed(), what)
		Expect(obj.GetUID()).To(BeEmpty(), what+" exists")
	}
}

var _ = Describe("An endpoint", func() {
	It("is served from apply to ready, and then costs no writes", func(ctx SpecContext) {
		w.apply(ctx, w.secrets()...)
		e := w.endpoint("github")
		w.apply(ctx, e)
		expectChildren(ctx, e)
		w.conditionOf(ctx, "github", v1alpha1.ConditionReady).Should(Equal("False RollingOut: Ingress: 0 of 2 pods are up to date, 0 are available"))
		w.conditionOf(ctx, "github", v1alpha1.ConditionReconciling).Should(HavePrefix("True RollingOut"))
		w.expectReady(ctx, "github")
		w.conditionOf(ctx, "github", v1alpha1.ConditionReady).Should(Equal("True Available: Requests are taken and delivered"))
		w.conditionOf(ctx, "github", v1alpha1.ConditionIngressAvailable).Should(Equal("True Available: 2 of 2 pods are available"))
		w.conditionOf(ctx, "github", v1alpha1.ConditionWorkerAvailable).Should(Equal("True Available: 1 of 1 pods are available"))
		w.conditionOf(ctx, "github", v1alpha1.ConditionReconciling).Should(Equal("none"))

		Expect(w.get(ctx, "github", e)).To(Succeed())
		Expect(e.Status.URL).To(Equal("http://github-ingress." + w.namespace + ".svc/hooks/" + w.namespace + "/github"))
		Expect(e.Status.Deliveries).To(Equal(&v1alpha1.DeliveryCounts{}))
		Eventually(ctx, w.events(ctx, "github")).WithTimeout(patience).Should(ConsistOf(
			"Normal Created: Created ServiceAccount, ConfigMap, Service, NetworkPolicy, PodDisruptionBudget and Deployment",
			"Normal Ready: Requests are taken and delivered",
		))
		w.expectNoWrites(ctx)

		By("starting the manager anew")
		w.start(image)
		w.expectNoWrites(ctx)
	})

	It("has children of valid names, whatever its own", func(ctx SpecContext) {
		w.apply(ctx, w.secrets()...)
		for _, name := range []string{strings.Repeat("long-", 50) + "nam", "hooks.example.com", "1password"} {
			e := w.endpoint(name)
			w.apply(ctx, e)
			expectChildren(ctx, e)
			w.expectReady(ctx, name)
		}
		w.expectNoWrites(ctx)
	})

	It("counts what its destinations are owed", func(ctx SpecContext) {
		w.apply(ctx, w.secrets()...)
		w.apply(ctx, w.endpoint("github"))
		w.expectReady(ctx, "github")
		s, err := store.Open(w.database, store.Options{Name: "test"})
		Expect(err).NotTo(HaveOccurred())
		defer s.Close()
		enqueuer := store.NewEnqueuer(s, store.EnqueuerOptions{})
		defer enqueuer.Close()
		before := time.Now()
		for i := range 3 {
			_, err := enqueuer.Enqueue(ctx, store.Submission{
				Event: submission(w.namespace, "github", fmt.Sprint(i)), Destinations: []string{"handler"},
				KeepEvent: time.Hour, KeepKey: time.Hour,
			})
			Expect(err).NotTo(HaveOccurred())
		}
		e := &v1alpha1.WebhookEndpoint{}
		Eventually(ctx, func() int64 {
			Expect(w.get(ctx, "github", e)).To(Succeed())
			return e.Status.Deliveries.Pending
		}).WithTimeout(patience).WithPolling(poll).Should(Equal(int64(3)))
		Expect(e.Status.Deliveries.OldestDueTime.Time).To(BeTemporally("~", before, 5*time.Second))

		By("letting them wait, which is no news")
		w.expectNoWrites(ctx)

		By("deleting the endpoint, which keeps them")
		Expect(admin.Delete(ctx, e)).To(Succeed())
		Eventually(ctx, w.events(ctx, "github")).WithTimeout(patience).Should(ContainElement(
			"Warning DeliveriesKept: Deleted while 3 deliveries were not made and 0 were dead, by the last count: " +
				"they stay in the database; apply the endpoint again to deliver them"))
		w.apply(ctx, w.endpoint("github"))
		Eventually(ctx, func() int64 {
			Expect(w.get(ctx, "github", e)).To(Succeed())
			if e.Status.Deliveries == nil {
				return 0
			}
			return e.Status.Deliveries.Pending
		}).WithTimeout(patience).WithPolling(poll).Should(Equal(int64(3)))
	})

	It("tells what is dead, and warns before it is purged", func(ctx SpecContext) {
		w.apply(ctx, w.secrets()...)
		w.apply(ctx, w.endpoint("github"))
		w.expectReady(ctx, "github")
		s, err := store.Open(w.database, store.Options{Name: "test"})
		Expect(err).NotTo(HaveOccurred())
		defer s.Close()
		enqueuer := store.NewEnqueuer(s, store.EnqueuerOptions{})
		defer enqueuer.Close()
		to := event.DestinationRef{Endpoint: event.EndpointRef{Namespace: w.namespace, Name: "github"}, Name: "removed"}
		// die makes a dead letter that is purged after some time.
		die := func(key string, reason event.Reason, keep time.Duration) {
			GinkgoHelper()
			_, err := enqueuer.Enqueue(ctx, store.Submission{
				Event: submission(w.namespace, "github", key), Destinations: []string{to.Name}, KeepEvent: time.Hour, KeepKey: time.Hour,
			})
			Expect(err).NotTo(HaveOccurred())
			claims, err := s.Claim(ctx, "worker", []store.Want{{
				Destination: to, Most: 1, MostBytes: 1 << 20, Lease: time.Minute, MaxAttempts: 3, KeepLedger: time.Hour,
			}})
			Expect(err).NotTo(HaveOccurred())
			Expect(claims).To(HaveLen(1))
			took, err := s.Complete(ctx, []store.Outcome{{Claim: claims[0], Verdict: event.VerdictDead, Reason: reason, KeepLedger: time.Hour, KeepEnded: keep}})
			Expect(err).NotTo(HaveOccurred())
			Expect(took).To(Equal([]bool{true}))
		}
		e := &v1alpha1.WebhookEndpoint{}
		tells := func(total int64) *v1alpha1.DeadLetterCounts {
			GinkgoHelper()
			Eventually(ctx, func() int64 {
				Expect(w.get(ctx, "github", e)).To(Succeed())
				if e.Status.DeadLetters == nil {
					return 0
				}
				return e.Status.DeadLetters.Total
			}).WithTimeout(patience).WithPolling(poll).Should(Equal(total))
			return e.Status.DeadLetters
		}
		die("a", event.ReasonPermanentStatus, 48*time.Hour)
		die("b", event.ReasonPermanentStatus, 48*time.Hour)
		die("c", event.ReasonOutcomeUnknown, 48*time.Hour)
		got := tells(3)
		Expect(got.Reasons).To(Equal([]v1alpha1.DeadReasonCount{{Reason: "PermanentStatus", Count: 2}, {Reason: "OutcomeUnknown", Count: 1}}))
		Expect(got.Destinations).To(Equal([]v1alpha1.DeadDestinationCount{{Name: "removed", Count: 3}}))
		Expect(got.OldestTime.Time).To(BeTemporally("~", time.Now(), time.Minute))
		Expect(got.PurgeWarning).To(BeNil())
		w.expectNoWrites(ctx)

		By("letting one come close to its end")
		die("d", event.ReasonPermanentStatus, 23*time.Hour)
		Expect(tells(4).PurgeWarning.Count).To(Equal(int64(1)))
		warnings := func() (all []string) {
			for _, line := range w.events(ctx, "github")() {
				if strings.HasPrefix(line, "Warning DeadLettersExpiring: ") {
					all = append(all, line)
				}
			}
			return all
		}
		Eventually(ctx, warnings).WithTimeout(patience).Should(ConsistOf(And(
			ContainSubstring("when retention.deadLettersSeconds is over: 1. "),
			ContainSubstring(fmt.Sprintf("ackrail events export -n %s --endpoint github", w.namespace)))))
		w.expectNoWrites(ctx)
		Expect(warnings()).To(HaveLen(1))
	})

	It("is left alone while it is being deleted", func(ctx SpecContext) {
		w.apply(ctx, w.secrets()...)
		e := w.endpoint("github", func(e *v1alpha1.WebhookEndpoint) { e.Finalizers = []string{"example.com/hold"} })
		w.apply(ctx, e)
		w.expectReady(ctx, "github")
		Expect(admin.Delete(ctx, e)).To(Succeed())
		w.apply(ctx, w.endpoint("another")) // whose passes show that the controller works
		w.expectReady(ctx, "another")
		service := children("github")["service"]
		Expect(admin.Delete(ctx, service)).To(Succeed())
		w.expectNoWrites(ctx)
		Expect(client.IgnoreNotFound(admin.Get(ctx, client.ObjectKeyFromObject(service), &corev1.Service{}))).To(Succeed())
		update(ctx, e, func(e *v1alpha1.WebhookEndpoint) { e.Finalizers = nil })
	})

	It("says what suspending does", func(ctx SpecContext) {
		w.apply(ctx, w.secrets()...)
		e := w.endpoint("github")
		w.apply(ctx, e)
		w.expectReady(ctx, "github")
		suspend := func(s v1alpha1.Suspend) {
			update(ctx, e, func(e *v1alpha1.WebhookEndpoint) { e.Spec.Suspend = s })
			w.conditionOf(ctx, "github", v1alpha1.ConditionReady).Should(HavePrefix("False RollingOut"))
			w.rollOut(ctx, "github")
		}
		suspend(v1alpha1.SuspendDeliveries)
		w.conditionOf(ctx, "github", v1alpha1.ConditionReady).Should(HavePrefix("True Suspended"))
		suspend(v1alpha1.SuspendAll)
		w.conditionOf(ctx, "github", v1alpha1.ConditionReady).Should(HavePrefix("False Suspended"))
		suspend(v1alpha1.SuspendNone)
		w.conditionOf(ctx, "github", v1alpha1.ConditionReady).Should(HavePrefix("True Available"))
		Eventually(ctx, w.events(ctx, "github")).WithTimeout(patience).Should(ContainElements(
			HavePrefix("Normal Suspended: spec.suspend is Deliveries"),
			HavePrefix("Normal Suspended: spec.suspend is All"),
			HavePrefix("Normal Resumed"),
		))
	})
})

var _ = Describe("A Secret", func() {
	It("may come later", func(ctx SpecContext) {
		w.apply(ctx, w.secret("ackrail-database", "uri", w.database))
		e := w.endpoint("github", func(e *v1alpha1.WebhookEndpoint) {
			e.Spec.Destinations[0].HTTP.SigningSecretRef = &v1alpha1.SecretKeyRef{Name: "signing", Key: "key"}
		})
		w.apply(ctx, e)
		const both = `False SecretNotFound: There is no Secret "github-webhook"; there is no Secret "signing"`
		w.conditionOf(ctx, "github", v1alpha1.ConditionSecretsResolved).Should(Equal(both))
		w.conditionOf(ctx, "github", v1alpha1.ConditionReady).Should(Equal(both))
		expectChildren(ctx, e) // pods refuse what they cannot verify
		w.rollOut(ctx, "github")
		w.conditionOf(ctx, "github", v1alpha1.ConditionIngressAvailable).Should(HavePrefix("True"))
		w.conditionOf(ctx, "github", v1alpha1.ConditionReady).Should(Equal(both))
		w.expectNoWrites(ctx)

		webhook := w.secret("github-webhook", "typo", "s3cr3t")
		w.apply(ctx, webhook, w.secret("signing", "key", "whsec_c2VjcmV0"))
		w.conditionOf(ctx, "github", v1alpha1.ConditionSecretsResolved).Should(Equal(`False SecretKeyNotFound: Secret "github-webhook" has no key "secret", or it is empty`))
		update(ctx, webhook, func(s *corev1.Secret) { s.Data["secret"] = []byte("\n") })
		w.expectNoWrites(ctx) // an empty one is none
		update(ctx, webhook, func(s *corev1.Secret) { s.Data["secret"] = []byte("s3cr3t") })
		w.conditionOf(ctx, "github", v1alpha1.ConditionReady).Should(HavePrefix("True"))
		Eventually(ctx, w.events(ctx, "github")).WithTimeout(patience).Should(ConsistOf(
			HavePrefix("Normal Created"),
			`Warning SecretNotFound: There is no Secret "github-webhook"; there is no Secret "signing"`,
			`Warning SecretKeyNotFound: Secret "github-webhook" has no key "secret", or it is empty`,
			HavePrefix("Normal SecretsResolved"), HavePrefix("Normal Ready"),
		))
	})

	It("may change its value without a pod being replaced", func(ctx SpecContext) {
		secrets := w.secrets()
		w.apply(ctx, secrets...)
		w.apply(ctx, w.endpoint("github"))
		w.expectReady(ctx, "github")
		update(ctx, secrets[1].(*corev1.Secret), func(s *corev1.Secret) { s.Data["secret"] = []byte("another") })
		update(ctx, secrets[0].(*corev1.Secret), func(s *corev1.Secret) { s.Data["uri"] = append(s.Data["uri"], "&application_name=rotated"...) })
		w.expectNoWrites(ctx)
	})

	It("of the database is waited for before anything is applied, and missed later without harm", func(ctx SpecContext) {
		e := w.endpoint("github")
		w.apply(ctx, w.secret("github-webhook", "secret", "s3cr3t"), e)
		w.conditionOf(ctx, "github", v1alpha1.ConditionReady).Should(Equal(`False SecretNotFound: There is no Secret "ackrail-database"`))
		w.conditionOf(ctx, "github", v1alpha1.ConditionStoreReady).Should(HavePrefix("Unknown NotApplied"))
		w.conditionOf(ctx, "github", v1alpha1.ConditionIngressAvailable).Should(HavePrefix("False NotApplied"))
		expectNoChildren(ctx, "github")

		database := w.secret("ackrail-database", "uri", w.database)
		w.apply(ctx, database)
		w.expectReady(ctx, "github")
		Expect(admin.Delete(ctx, database)).To(Succeed())
		w.conditionOf(ctx, "github", v1alpha1.ConditionReady).Should(HavePrefix("False SecretNotFound"))
		w.conditionOf(ctx, "github", v1alpha1.ConditionIngressAvailable).Should(HavePrefix("True Available"))
		expectChildren(ctx, e)
		Expect(w.get(ctx, "github", e)).To(Succeed())
		Expect(e.Status.URL).NotTo(BeEmpty())
		Expect(e.Status.Deliveries).NotTo(BeNil())
	})
})

var _ = Describe("A database", func() {
	It("whose URL is invalid stops its endpoint, and no other", func(ctx SpecContext) {
		w.apply(ctx, w.secrets()...)
		w.apply(ctx, w.secret("broken", "uri", "mysql://root:hunter2@db/app"))
		w.apply(ctx, w.endpoint("broken", withDatabase("broken")), w.endpoint("github"))
		w.conditionOf(ctx, "broken", v1alpha1.ConditionStoreReady).Should(And(HavePrefix("False InvalidDatabaseURL"), Not(ContainSubstring("hunter2"))))
		w.conditionOf(ctx, "broken", v1alpha1.ConditionStalled).Should(HavePrefix("True InvalidDatabaseURL"))
		expectNoChildren(ctx, "broken")
		w.expectReady(ctx, "github")
		Eventually(ctx, w.events(ctx, "broken")).WithTimeout(patience).Should(ConsistOf(HavePrefix("Warning InvalidDatabaseURL")))
		w.expectNoWrites(ctx)
	})

	It("that is away is told of, and its pods are there when it comes back", func(ctx SpecContext) {
		w.apply(ctx, w.secrets()...)
		away := w.secret("away", "uri", fmt.Sprintf("postgres://u:hunter2@127.0.0.1:%d/app", closedPort()))
		e := w.endpoint("away", withDatabase("away"))
		w.apply(ctx, away, e, w.endpoint("github"))
		w.conditionOf(ctx, "away", v1alpha1.ConditionStoreReady).Should(And(HavePrefix("False DatabaseUnreachable"), Not(ContainSubstring("hunter2"))))
		expectChildren(ctx, e)
		w.expectReady(ctx, "github")
		w.rollOut(ctx, "away")
		w.conditionOf(ctx, "away", v1alpha1.ConditionIngressAvailable).Should(HavePrefix("True"))
		w.conditionOf(ctx, "away", v1alpha1.ConditionReady).Should(HavePrefix("False DatabaseUnreachable"))
		w.expectNoWrites(ctx)

		update(ctx, away, func(s *corev1.Secret) { s.Data["uri"] = []byte(w.database) })
		w.conditionOf(ctx, "away", v1alpha1.ConditionStoreReady).Should(HavePrefix("True"))
		// The port is another one now, which the network policy follows.
		w.conditionOf(ctx, "away", v1alpha1.ConditionReady).Should(HavePrefix("True"))
		Eventually(ctx, w.events(ctx, "away")).WithTimeout(patience).Should(ContainElements(
			HavePrefix("Warning DatabaseUnreachable"), HavePrefix("Normal StoreReady"), HavePrefix("Normal Ready")))
		w.expectNoWrites(ctx)
	})

	It("that cannot be migrated is told of", func(ctx SpecContext) {
		w.apply(ctx, w.secrets()...)
		w.apply(ctx, w.secret("system", "uri", strings.Replace(w.database, "search_path=", "search_path=pg_catalog%2C", 1)))
		w.apply(ctx, w.endpoint("system", withDatabase("system")))
		w.conditionOf(ctx, "system", v1alpha1.ConditionStoreReady).Should(HavePrefix("False MigrationFailed"))
		w.conditionOf(ctx, "system", v1alpha1.ConditionReady).Should(HavePrefix("False MigrationFailed"))
	})
})

func withDatabase(secret string) func(*v1alpha1.WebhookEndpoint) {
	return func(e *v1alpha1.WebhookEndpoint) { e.Spec.Database.SecretRef.Name = secret }
}

// generations returns those of an endpoint's Deployments: each change of a
// template is one more.
func generations(ctx context.Context, endpoint string) [2]int64 {
	GinkgoHelper()
	return [2]int64{
		w.deployment(ctx, endpoint, resources.ComponentIngress).Generation,
		w.deployment(ctx, endpoint, resources.ComponentWorker).Generation,
	}
}
