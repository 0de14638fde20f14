//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/format"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// settings are what hack/e2e tells by environment variables.
type settings struct {
	kubectl, helm, chart string
	// image is what the chart installs, next what it is upgraded to.
	image, next, sink string
	// databaseURL is of a database that pods reach; each pipeline gets a
	// schema of its own in it.
	databaseURL string
	// auditLog is the file that the API server logs requests to, empty where
	// it cannot be read.
	auditLog string
	// artifacts is the folder for what is known about failures.
	artifacts string
	// idle is for how long the manager is watched doing nothing.
	idle time.Duration
	// outage is for how long the API server is silent.
	outage time.Duration
}

var (
	env    settings
	config *rest.Config
	api    kubernetes.Interface
	// run tells the namespaces and schemas of this run from others'.
	run = fmt.Sprintf("e2e-%d", time.Now().Unix()%1_000_000)
)

func TestE2E(t *testing.T) {
	RegisterFailHandler(Fail)
	format.MaxLength = 4_000
	RunSpecs(t, "End to end")
}

func readSettings() (settings, error) {
	s := settings{
		kubectl:     cmp.Or(os.Getenv("E2E_KUBECTL"), "kubectl"),
		helm:        cmp.Or(os.Getenv("E2E_HELM"), "helm"),
		chart:       cmp.Or(os.Getenv("E2E_CHART"), "../../charts/ackrail"),
		image:       cmp.Or(os.Getenv("E2E_IMAGE"), "docker.io/ackrail/ackrail:dev"),
		next:        os.Getenv("E2E_NEXT_IMAGE"),
		sink:        cmp.Or(os.Getenv("E2E_SINK_IMAGE"), "docker.io/ackrail/sink:dev"),
		databaseURL: os.Getenv("DATABASE_URL"),
		auditLog:    os.Getenv("E2E_AUDIT_LOG"),
	}
	var err error
	if s.idle, err = time.ParseDuration(cmp.Or(os.Getenv("E2E_IDLE"), "60s")); err != nil {
		return s, fmt.Errorf("E2E_IDLE: %w", err)
	}
	if s.outage, err = time.ParseDuration(cmp.Or(os.Getenv("E2E_OUTAGE"), "20s")); err != nil {
		return s, fmt.Errorf("E2E_OUTAGE: %w", err)
	}
	if s.databaseURL == "" {
		return s, fmt.Errorf("DATABASE_URL: want the URL of a database that pods reach; make e2e sets it")
	}
	if s.artifacts, err = filepath.Abs(cmp.Or(os.Getenv("E2E_ARTIFACTS"), "../../bin/e2e")); err != nil {
		return s, fmt.Errorf("E2E_ARTIFACTS: %w", err)
	}
	return s, os.MkdirAll(s.artifacts, 0o755)
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(250 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	var err error
	env, err = readSettings()
	Expect(err).NotTo(HaveOccurred())
	config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	Expect(err).NotTo(HaveOccurred())
	config.QPS, config.Burst = -1, -1
	api, err = kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	findRoute(ctx)
	refuseOthers(ctx)
	auditStart = time.Now()
	DeferCleanup(func(ctx SpecContext) { removeProduct(ctx) }, NodeTimeout(3*time.Minute))
	done := false
	defer func() {
		if !done {
			dump(context.WithoutCancel(ctx), "install")
		}
	}()
	install(ctx)
	done = true
}, NodeTimeout(3*time.Minute))

// The parts run in this order: what looks back at everything comes late, what
// takes the product away last.
var _ = Describe("Ackrail", Ordered, ContinueOnFailure, func() {
	JustAfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			dump(ctx, CurrentSpecReport().LeafNodeText)
		}
	}, NodeTimeout(time.Minute))
	Context("installed by helm", installed)
	Context("taking webhooks", delivering)
	Context("losing pods and processes", Label("fault"), faults)
	Context("replaying", replaying)
	Context("through outages", Label("fault"), outages)
	Context("with secrets that change", secrets)
	Context("with children that others change", drift)
	Context("with objects that cannot work", invalid)
	Context("changing under load", changing)
	Context("upgraded", upgraded)
	Context("granted rights", rights)
	Context("uninstalled", uninstalled)
})

// What went wrong comes last in the log, where it is looked for first.
var _ = ReportAfterSuite("what went wrong", func(report Report) {
	for i := range report.SpecReports {
		spec := &report.SpecReports[i]
		if spec.Failed() {
			message := spec.FailureMessage()
			fmt.Printf("\n%s: %s\n%s\n", spec.State, spec.LeafNodeText, message[:min(len(message), 1500)])
		}
	}
})

// dump writes what may explain a failure to a folder, whose name it prints.
func dump(ctx context.Context, failed string) {
	name := strings.Map(func(r rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789", r) {
			return r
		}
		return '-'
	}, strings.ToLower(failed))
	dir := filepath.Join(env.artifacts, run, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		GinkgoWriter.Println(err)
		return
	}
	save := func(file string, args ...string) {
		out, err := tryKubectl(ctx, "", args...)
		if err != nil {
			out += "\n" + err.Error()
		}
		_ = os.WriteFile(filepath.Join(dir, file), []byte(out), 0o600)
	}
	spaces := append(ownNamespaces(ctx), system)
	for _, ns := range spaces {
		save(ns+"-objects.txt", "get", "all,whe,replay,configmap,pdb,networkpolicy,serviceaccount", "-n", ns, "-o", "wide")
		save(ns+"-ackrail.yaml", "get", "whe,replay", "-n", ns, "-o", "yaml")
		save(ns+"-describe.txt", "describe", "whe,replay,deployment,pod", "-n", ns)
		save(ns+"-events.txt", "get", "events", "-n", ns, "--sort-by=.lastTimestamp")
		pods, _ := tryKubectl(ctx, "", "get", "pods", "-n", ns, "-o", "name")
		for pod := range strings.FieldsSeq(pods) {
			base := ns + "-" + strings.TrimPrefix(pod, "pod/")
			save(base+".log", "logs", "-n", ns, pod, "--all-containers", "--tail=2000")
			save(base+"-previous.log", "logs", "-n", ns, pod, "--all-containers", "--previous", "--tail=2000")
		}
	}
	fmt.Fprintf(GinkgoWriter, "\nState at the failure: %s\n", dir)
	AddReportEntry("State at the failure", dir)
}
