//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ackrail/ackrail/api/v1alpha1"
)

func missingSecret(e *v1alpha1.WebhookEndpoint) { e.Spec.Source.SecretRefs[0].Name = "no-such-secret" }

func invalid() {
	var good *pipeline
	BeforeAll(func(ctx SpecContext) { good = newPipeline(ctx, "invalid") }, NodeTimeout(3*time.Minute))

	It("tells why each of them cannot work, in conditions and an event, and goes on with the others", func(ctx SpecContext) {
		began := time.Now()
		apply(ctx, newSecret(good.ns, "wrong-dsn", "uri", "not a database"),
			newSecret(good.ns, "refusing", "uri", "postgres://nobody:hush@127.0.0.1:1/nothing"),
			newSecret(good.ns, "silent", "uri", "postgres://nobody:hush@192.0.2.1:5432/nothing"))
		database := func(name string) func(*v1alpha1.WebhookEndpoint) {
			return func(e *v1alpha1.WebhookEndpoint) { e.Spec.Database.SecretRef.Name = name }
		}
		cases := map[string]struct {
			change    func(*v1alpha1.WebhookEndpoint)
			condition string
			reason    string
		}{
			"missing-secret":   {missingSecret, v1alpha1.ConditionSecretsResolved, v1alpha1.ReasonSecretNotFound},
			"missing-database": {database("no-such-database"), v1alpha1.ConditionSecretsResolved, v1alpha1.ReasonSecretNotFound},
			"wrong-dsn":        {database("wrong-dsn"), v1alpha1.ConditionStoreReady, v1alpha1.ReasonInvalidDatabaseURL},
			"refusing":         {database("refusing"), v1alpha1.ConditionStoreReady, v1alpha1.ReasonDatabaseUnreachable},
			"silent":           {database("silent"), v1alpha1.ConditionStoreReady, v1alpha1.ReasonDatabaseUnreachable},
		}
		for name, tc := range cases {
			apply(ctx, good.endpoint(named(name), tc.change))
		}
		for name, tc := range cases {
			By(name)
			p := &pipeline{ns: good.ns, name: name}
			Eventually(ctx, func(g Gomega) {
				e, err := get[v1alpha1.WebhookEndpoint](ctx, "whe", "-n", p.ns, p.name)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(e.Status.Conditions).To(And(
					haveCondition(tc.condition, metav1.ConditionFalse, tc.reason),
					haveCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, tc.reason)))
			}).Should(Succeed())
			Eventually(ctx, func() string {
				return kubectl(ctx, "get", "events", "-n", p.ns, "--field-selector",
					"involvedObject.kind=WebhookEndpoint,involvedObject.name="+name, "-o", "jsonpath={.items[*].reason}")
			}).Should(ContainSubstring(tc.reason))
			Expect(kubectl(ctx, "get", "whe,events", "-n", p.ns, "-o", "yaml")).NotTo(ContainSubstring("hush"), "a password is shown")
		}

		By("accepting and delivering at the good one, and making another good one ready")
		ids := good.acceptMany(ctx, "invalid", 5)
		good.handler.waitFor(ctx, 1, ids)
		another := &pipeline{ns: good.ns, name: "another"}
		apply(ctx, good.endpoint(named("another")))
		another.waitReady(ctx)

		By("not trying without end")
		if env.auditLog == "" {
			AddReportEntry("Not checked: how often the manager wrote", "the cluster's audit log cannot be read")
			return
		}
		waitQuiet(ctx, managerAccount(ctx))
		for name := range cases {
			var found []string
			for _, w := range writes(began, managerAccount(ctx)) {
				if strings.Contains(w, good.ns+"/"+name) {
					found = append(found, w)
				}
			}
			// Some ten children once or twice, and a status for each step.
			Expect(len(found)).To(BeNumerically("<", 40), fmt.Sprintf("writes for %s: %s", name, strings.Join(found, "\n")))
		}
	}, SpecTimeout(6*time.Minute))

	It("refuses, with what to do, what cannot be meant", func(ctx SpecContext) {
		for want, change := range map[string]func(*v1alpha1.WebhookEndpoint){
			"raise worker.leaseSeconds or lower http.timeoutSeconds": func(e *v1alpha1.WebhookEndpoint) { e.Spec.Destinations[0].HTTP.TimeoutSeconds = 10 },
			"name the Secret that holds the webhook secret":          func(e *v1alpha1.WebhookEndpoint) { e.Spec.Source.SecretRefs = nil },
			"must be an absolute http or https URL":                  func(e *v1alpha1.WebhookEndpoint) { e.Spec.Destinations[0].HTTP.URL = "handler:8080" },
		} {
			_, err := tryApply(ctx, good.endpoint(named("refused"), change))
			Expect(err).To(MatchError(ContainSubstring(want)))
		}
		Expect(kubectl(ctx, "get", "whe", "refused", "-n", good.ns, "--ignore-not-found")).To(BeEmpty())
	}, SpecTimeout(time.Minute))
}
