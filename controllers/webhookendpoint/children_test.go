package webhookendpoint

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/resources"
)

var _ = Describe("A child", func() {
	var e *v1alpha1.WebhookEndpoint

	BeforeEach(func(ctx SpecContext) {
		w.apply(ctx, w.secrets()...)
		e = w.endpoint("github")
		w.apply(ctx, e)
		w.expectReady(ctx, "github")
	})

	It("is brought back to what it should be, and keeps what others have added", func(ctx SpecContext) {
		all := children("github")
		for _, obj := range all {
			update(ctx, obj, func(obj client.Object) {
				obj.SetAnnotations(map[string]string{"example.com/note": "mine"})
				labels := obj.GetLabels()
				labels["example.com/team"] = "payments"
				labels[resources.LabelPartOf] = "something-else"
				obj.SetLabels(labels)
			})
		}
		update(ctx, all["ingress deployment"].(*appsv1.Deployment), func(d *appsv1.Deployment) {
			replicas := int32(7)
			d.Spec.Replicas = &replicas
			d.Spec.Template.Spec.Containers[0].Image = "registry.example.com/other:v9"
			d.Spec.Template.Spec.SecurityContext = nil
		})
		update(ctx, all["configuration"].(*corev1.ConfigMap), func(c *corev1.ConfigMap) {
			c.Data["pipeline.json"] = "{}"
			c.Data["mine"] = "stays"
		})
		update(ctx, all["service"].(*corev1.Service), func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(1) })
		update(ctx, all["worker network policy"].(*networkingv1.NetworkPolicy), func(p *networkingv1.NetworkPolicy) { p.Spec.Egress = nil })
		update(ctx, all["worker disruption budget"].(*policyv1.PodDisruptionBudget), func(p *policyv1.PodDisruptionBudget) {
			zero := intstr.FromInt32(0)
			p.Spec.MaxUnavailable = &zero
		})

		Eventually(ctx, func(g Gomega) {
			for what, obj := range all {
				g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed())
				g.Expect(obj.GetLabels()).To(HaveKeyWithValue(resources.LabelPartOf, "ackrail"), what)
			}
			d := all["ingress deployment"].(*appsv1.Deployment)
			g.Expect(*d.Spec.Replicas).To(Equal(int32(2)))
			g.Expect(d.Spec.Template.Spec.Containers[0].Image).To(Equal(image))
			g.Expect(d.Spec.Template.Spec.SecurityContext.RunAsNonRoot).To(HaveValue(BeTrue()))
			c := all["configuration"].(*corev1.ConfigMap)
			g.Expect(c.Data["pipeline.json"]).To(ContainSubstring(`"github"`))
			g.Expect(c.Data["mine"]).To(Equal("stays"))
			g.Expect(all["service"].(*corev1.Service).Spec.Ports).To(HaveLen(1))
			g.Expect(all["service"].(*corev1.Service).Spec.Ports[0].TargetPort.String()).To(Equal("http"))
			g.Expect(all["worker network policy"].(*networkingv1.NetworkPolicy).Spec.Egress).To(HaveLen(1))
			g.Expect(all["worker disruption budget"].(*policyv1.PodDisruptionBudget).Spec.MaxUnavailable.IntValue()).To(Equal(1))
		}).WithTimeout(patience).WithPolling(poll).Should(Succeed())
		for what, obj := range all {
			Expect(obj.GetAnnotations()).To(HaveKeyWithValue("example.com/note", "mine"), what)
			Expect(obj.GetLabels()).To(HaveKeyWithValue("example.com/team", "payments"), what)
		}
		w.rollOut(ctx, "github")
		w.conditionOf(ctx, "github", v1alpha1.ConditionReady).Should(HavePrefix("True"))
		w.expectNoWrites(ctx)
	})

	It("comes back when it was deleted", func(ctx SpecContext) {
		for _, obj := range children("github") {
			Expect(admin.Delete(ctx, obj)).To(Succeed())
		}
		expectChildren(ctx, e)
		w.expectReady(ctx, "github")
	})

	It("gets back its owner, and the label by which the cache knows it", func(ctx SpecContext) {
		for _, obj := range children("github") {
			update(ctx, obj, func(obj client.Object) {
				obj.SetOwnerReferences(nil)
				labels := obj.GetLabels()
				delete(labels, resources.LabelManagedBy)
				obj.SetLabels(labels)
			})
		}
		Eventually(ctx, func(g Gomega) {
			for what, obj := range children("github") {
				g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed())
				g.Expect(obj.GetLabels()).To(HaveKeyWithValue(resources.LabelManagedBy, resources.ManagedBy), what)
				g.Expect(metav1.IsControlledBy(obj, e)).To(BeTrue(), what)
			}
		}).WithTimeout(patience).WithPolling(poll).Should(Succeed())
		w.conditionOf(ctx, "github", v1alpha1.ConditionReady).Should(HavePrefix("True"))
		w.expectNoWrites(ctx)
	})

	It("is replaced once for a change of the spec, and not at all for its labels", func(ctx SpecContext) {
		before := generations(ctx, "github")
		hash := func(c resources.Component) string {
			return w.deployment(ctx, "github", c).Spec.Template.Annotations[resources.AnnotationConfigHash]
		}
		old := hash(resources.ComponentIngress)
		update(ctx, e, func(e *v1alpha1.WebhookEndpoint) { e.Spec.Destinations[0].HTTP.URL = "http://other:8080/" })
		w.expectReady(ctx, "github")
		Expect(generations(ctx, "github")).To(Equal([2]int64{before[0] + 1, before[1] + 1}))
		Expect(hash(resources.ComponentIngress)).NotTo(Equal(old))
		Expect(hash(resources.ComponentIngress)).To(Equal(hash(resources.ComponentWorker)))

		By("scaling, which replaces no pod")
		old = hash(resources.ComponentIngress)
		update(ctx, e, func(e *v1alpha1.WebhookEndpoint) { e.Spec.Worker.Replicas = 3 })
		w.expectReady(ctx, "github")
		Expect(generations(ctx, "github")).To(Equal([2]int64{before[0] + 1, before[1] + 2}))
		Expect(hash(resources.ComponentWorker)).To(Equal(old))

		By("labelling the endpoint, which is nobody's business")
		update(ctx, e, func(e *v1alpha1.WebhookEndpoint) { e.Labels = map[string]string{"a": "b"} })
		w.expectNoWrites(ctx)
	})

	It("is replaced once by a manager of another version", func(ctx SpecContext) {
		before := generations(ctx, "github")
		w.start("registry.example.com/ackrail:v2")
		Eventually(ctx, func() [2]int64 { return generations(ctx, "github") }).WithTimeout(patience).WithPolling(poll).
			Should(Equal([2]int64{before[0] + 1, before[1] + 1}))
		w.expectReady(ctx, "github")
		w.expectNoWrites(ctx)
		Expect(generations(ctx, "github")).To(Equal([2]int64{before[0] + 1, before[1] + 1}))
		Expect(w.deployment(ctx, "github", resources.ComponentWorker).Spec.Template.Spec.Containers[0].Image).To(Equal("registry.example.com/ackrail:v2"))
	})

	It("that does not come up is told of, with the reason", func(ctx SpecContext) {
		w.report(ctx, "github", resources.ComponentIngress, func(d *appsv1.Deployment) {
			d.Status.AvailableReplicas = 1
		})
		w.conditionOf(ctx, "github", v1alpha1.ConditionIngressAvailable).Should(Equal("True Available: 1 of 2 pods are available"))
		w.conditionOf(ctx, "github", v1alpha1.ConditionReady).Should(HavePrefix("True"))
		w.report(ctx, "github", resources.ComponentIngress, func(d *appsv1.Deployment) {
			d.Status.AvailableReplicas = 0
		})
		w.conditionOf(ctx, "github", v1alpha1.ConditionReady).Should(Equal("False Unavailable: Ingress: 0 of 2 pods are available"))
		w.report(ctx, "github", resources.ComponentWorker, func(d *appsv1.Deployment) {
			d.Status.Conditions = []appsv1.DeploymentCondition{{
				Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: "exceeded quota: compute",
			}}
		})
		w.conditionOf(ctx, "github", v1alpha1.ConditionWorkerAvailable).Should(And(HavePrefix("True RolloutFailed"), ContainSubstring("exceeded quota: compute")))
		w.conditionOf(ctx, "github", v1alpha1.ConditionStalled).Should(HavePrefix("True RolloutFailed: Worker: "))
		w.expectNoWrites(ctx)
	})
})

var _ = Describe("A name", func() {
	BeforeEach(func(ctx SpecContext) { w.apply(ctx, w.secrets()...) })

	It("that somebody else has taken is respected", func(ctx SpecContext) {
		taken := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "github-ingress"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1234}}},
		}
		w.apply(ctx, taken, w.endpoint("github"), w.endpoint("another"))
		w.conditionOf(ctx, "github", v1alpha1.ConditionReady).Should(Equal("False NameConflict: Service github-ingress exists and was not made for this object: delete or rename it"))
		w.conditionOf(ctx, "github", v1alpha1.ConditionStalled).Should(HavePrefix("True NameConflict"))
		w.expectReady(ctx, "another")
		w.expectNoWrites(ctx)
		Expect(w.get(ctx, "github-ingress", taken)).To(Succeed())
		Expect(taken.Spec.Ports[0].Port).To(Equal(int32(1234)))
		Expect(taken.OwnerReferences).To(BeEmpty())

		By("freeing the name")
		Expect(admin.Delete(ctx, taken)).To(Succeed())
		w.expectReady(ctx, "github")
		Eventually(ctx, w.events(ctx, "github")).WithTimeout(patience).Should(ContainElement(HavePrefix("Warning NameConflict")))
	})

	It("that a deleted namesake has left is waited for", func(ctx SpecContext) {
		yes := true
		left := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: "github-pipeline", Labels: map[string]string{resources.LabelManagedBy: resources.ManagedBy},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindWebhookEndpoint, Name: "github",
				UID: types.UID("3f0b8c1e-0000-4000-8000-000000000001"), Controller: &yes,
			}},
		}}
		w.apply(ctx, left, w.endpoint("github"))
		w.conditionOf(ctx, "github", v1alpha1.ConditionReady).Should(HavePrefix("False NotApplied: ConfigMap github-pipeline still belongs to an earlier WebhookEndpoint github"))
		w.conditionOf(ctx, "github", v1alpha1.ConditionReconciling).Should(HavePrefix("True NotApplied"))
		Expect(admin.Delete(ctx, left)).To(Succeed())
		w.expectReady(ctx, "github")
	})

	It("of an object that the API server refuses is told, and the endpoint goes on when it no longer does", func(ctx SpecContext) {
		quota := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "none"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/deployments.apps": resource.MustParse("0")}},
		}
		w.apply(ctx, quota)
		quota.Status.Hard = quota.Spec.Hard
		quota.Status.Used = corev1.ResourceList{"count/deployments.apps": resource.MustParse("0")}
		Expect(admin.Status().Update(ctx, quota)).To(Succeed())
		w.apply(ctx, w.endpoint("github"))
		w.conditionOf(ctx, "github", v1alpha1.ConditionReady).Should(And(HavePrefix("False ApplyFailed: "), ContainSubstring("exceeded quota")))
		w.conditionOf(ctx, "github", v1alpha1.ConditionStalled).Should(HavePrefix("True ApplyFailed"))
		Expect(admin.Delete(ctx, quota)).To(Succeed())
		w.expectReady(ctx, "github")
	})
})
