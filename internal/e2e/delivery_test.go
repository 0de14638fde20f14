//go:build e2e

package e2e

import (
	"context"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func delivering() {
	It("takes a signed body at the Service's IP and name, once, and delivers it byte for byte", func(ctx SpecContext) {
		p := newPipeline(ctx, "delivery")
		body, err := os.ReadFile("../../hack/demo/push.json")
		Expect(err).NotTo(HaveOccurred())

		By("sending to the IP")
		first := p.accept(ctx, "push-1", body)
		By("sending it again")
		a, err := p.sender.send(ctx, "push-1", body)
		Expect(err).NotTo(HaveOccurred())
		Expect(a.status).To(Equal(200))
		Expect(a.Status).To(Equal("duplicate"))
		Expect(a.EventID).To(Equal(first))
		By("sending it again to the name, from a pod")
		Expect(sendFromPod(ctx, p, "sender-1", "push-1", body)).To(And(ContainSubstring("HTTP 200"), ContainSubstring(first)))
		By("sending another one to the name")
		Expect(sendFromPod(ctx, p, "sender-2", "push-2", body)).To(ContainSubstring("HTTP 202"))
		By("sending without and with a wrong signature")
		for _, wrong := range []string{"", "a guess"} {
			a, err := p.sender.with(wrong).send(ctx, "push-3", body)
			Expect(err).NotTo(HaveOccurred())
			Expect(a.status).To(Equal(401), "signed with %q", wrong)
		}

		By("looking at what arrived")
		var records []delivered
		Eventually(ctx, func(g Gomega) {
			records, err = p.handler.records(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(records).To(HaveLen(2))
		}).Should(Succeed())
		for _, d := range records {
			Expect(d).To(And(HaveField("SHA256", digest(body)), HaveField("Path", p.path()), HaveField("Run", 1), HaveField("Attempt", 1)))
		}
		Expect(records[0].ID).To(Equal(first))
		Expect(records[1].ID).NotTo(Equal(first))
	}, SpecTimeout(3*time.Minute))
}

// sendFromPod runs ackrail send in a pod, to the Service's name, and returns
// what it says.
func sendFromPod(ctx context.Context, p *pipeline, name, key string, body []byte) string {
	GinkgoHelper()
	endpoint, err := yaml.Marshal(p.endpoint())
	Expect(err).NotTo(HaveOccurred())
	signing, err := yaml.Marshal(webhookSecret(p.ns, "github-webhook", secret))
	Expect(err).NotTo(HaveOccurred())
	files := newSecret(p.ns, name, "body", string(body))
	files.StringData["endpoint.yaml"] = string(endpoint) + "---\n" + string(signing)
	u := p.url(ctx)
	u.Path = ""
	podContext, containerContext := restricted()
	apply(ctx, files, &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.ns, Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy:   corev1.RestartPolicyNever,
			SecurityContext: podContext,
			Volumes:         []corev1.Volume{{Name: "files", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}}},
			Containers: []corev1.Container{{
				Name: "send", Image: env.image, ImagePullPolicy: corev1.PullIfNotPresent, SecurityContext: containerContext,
				Args: []string{
					"send", "-f", "/files/endpoint.yaml", "--endpoint", p.ns + "/" + p.name, "--event-type", "push",
					"--id", key, "--body", "/files/body", "--url", u.String(),
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "files", MountPath: "/files", ReadOnly: true}},
			}},
		},
	})
	kubectl(ctx, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/"+name, "-n", p.ns, "--timeout=60s")
	return kubectl(ctx, "logs", "-n", p.ns, name)
}
