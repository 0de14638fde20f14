//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// runLabel marks what a run of the tests has made, and policyLabel is the
// strictest of the Pod Security Standards.
const (
	runLabel    = "ackrail.io/e2e"
	policyLabel = "pod-security.kubernetes.io/enforce"
)

// tryKubectl runs kubectl as a user would, and returns what it prints. The
// error has what it says on standard error.
func tryKubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	return command(ctx, stdin, env.kubectl, args...)
}

// kubectl is tryKubectl where a failure fails the spec.
func kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, err := tryKubectl(ctx, "", args...)
	Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(out)
}

// helm runs helm.
func helm(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, err := command(ctx, "", env.helm, args...)
	Expect(err).NotTo(HaveOccurred())
	return out
}

func command(ctx context.Context, stdin, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// apply applies objects with kubectl.
func apply(ctx context.Context, objects ...any) {
	GinkgoHelper()
	Expect(tryApply(ctx, objects...)).Error().NotTo(HaveOccurred())
}

func tryApply(ctx context.Context, objects ...any) (string, error) {
	var manifests strings.Builder
	for _, object := range objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&manifests, "---\n%s", text)
	}
	return tryKubectl(ctx, manifests.String(), "apply", "-f", "-")
}

// get reads an object through kubectl into a typed one.
func get[T any](ctx context.Context, args ...string) (T, error) {
	var object T
	out, err := tryKubectl(ctx, "", append(append([]string{"get"}, args...), "-o", "json")...)
	if err == nil {
		err = json.Unmarshal([]byte(out), &object)
	}
	return object, err
}

// newNamespace makes a namespace for restricted pods whose deletion begins at
// the end of the container or spec.
func newNamespace(ctx context.Context, name string) string {
	GinkgoHelper()
	name = run + "-" + name
	_, err := api.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   name,
		Labels: map[string]string{runLabel: run, policyLabel: "restricted"},
	}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		kubectl(ctx, "delete", "namespace", name, "--wait=false")
	}, NodeTimeout(time.Minute))
	return name
}

// waitGone waits until the namespaces are gone whose deletion has begun.
func waitGone(ctx context.Context, but ...string) {
	GinkgoHelper()
	Eventually(ctx, func() []string { return ownNamespaces(ctx) }).
		WithTimeout(2 * time.Minute).WithPolling(time.Second).Should(HaveEach(BeElementOf(but)))
}

// ownNamespaces returns the namespaces of this run.
func ownNamespaces(ctx context.Context) []string {
	out, err := tryKubectl(ctx, "", "get", "namespaces", "-l", runLabel+"="+run, "-o", "jsonpath={.items[*].metadata.name}")
	if err != nil {
		GinkgoWriter.Println(err)
	}
	return strings.Fields(out)
}

// direct says whether this process reaches Service IPs by itself; else
// requests go through the API server.
var direct bool

func findRoute(ctx context.Context) {
	GinkgoHelper()
	service, err := api.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	dialer := net.Dialer{Timeout: 2 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(service.Spec.ClusterIP, "443"))
	if err != nil {
		GinkgoWriter.Println("Service IPs are not reached from here: requests go through the API server's proxy")
		return
	}
	direct = true
	Expect(conn.Close()).To(Succeed())
}

// podsOf returns the pods of a selector that are not being deleted.
func podsOf(ctx context.Context, ns, selector string) []corev1.Pod {
	GinkgoHelper()
	list, err := api.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: selector})
	Expect(err).NotTo(HaveOccurred())
	var pods []corev1.Pod
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			pods = append(pods, pod)
		}
	}
	return pods
}

// kill ends the first container of a pod with SIGKILL: its process where it
// runs on this machine, else the pod without grace.
func kill(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	pids := processesOf(containerOf(pod))
	for _, pid := range pids {
		By(fmt.Sprintf("kill -KILL %d (%s)", pid, pod.Name))
		err := syscall.Kill(pid, syscall.SIGKILL)
		if !errors.Is(err, syscall.ESRCH) {
			Expect(err).NotTo(HaveOccurred())
		}
	}
	if len(pids) == 0 {
		kubectl(ctx, "delete", "pod", "-n", pod.Namespace, pod.Name, "--grace-period=0", "--force")
	}
}

// containerOf returns the id of the first container of a pod.
func containerOf(pod *corev1.Pod) string {
	GinkgoHelper()
	Expect(pod.Status.ContainerStatuses).NotTo(BeEmpty())
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	Expect(id).NotTo(BeEmpty())
	return id
}

// processesOf returns the processes in a container's control group.
func processesOf(container string) []int {
	var pids []int
	entries, err := fs.ReadDir(os.DirFS("/proc"), ".")
	if err != nil {
		return nil // not Linux
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		groups, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cgroup"))
		if err == nil && strings.Contains(string(groups), container) {
			pids = append(pids, pid)
		}
	}
	return pids
}
