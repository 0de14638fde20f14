package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// everything sets every value to something else than its default.
const everything = `
nameOverride: rail
fullnameOverride: ackrail
extraLabels: {team: payments, app.kubernetes.io/name: not-this}
image: {repository: registry.example:5000/ackrail, tag: v1, digest: "sha256:` +
	`0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", pullPolicy: Always}
imagePullSecrets: [{name: registry}]
dataPlane: {image: "registry.example:5000/ackrail:v0"}
replicas: 2
leaderElection: {enabled: false}
logLevel: debug
logFormat: text
extraArgs: ["--kube-api-qps=10"]
crds: {keep: false}
rbac: {aggregateRoles: false}
serviceAccount: {name: someone, annotations: {example.com/role: ackrail}}
metrics: {port: 9443, certificateSecret: metrics-certificate}
serviceMonitor: {enabled: true, interval: 1m30s, labels: {release: prometheus}}
podDisruptionBudget: {enabled: true, maxUnavailable: 50%}
networkPolicy: {enabled: true, metricsFrom: [{namespaceSelector: {matchLabels: {monitoring: "true"}}}]}
resources: {requests: {cpu: 1, memory: 1.5Gi}}
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{key: dedicated, operator: Exists, effect: NoSchedule}]
affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: spot, operator: DoesNotExist}]}}]}}
topologySpreadConstraints:
- {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway}
- {maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}}
priorityClassName: system-cluster-critical
podLabels: {team: operators, colour: blue}
podAnnotations: {example.com/note: "yes"}
`

const namespaced = "watchNamespaces: [payments, orders]\n"

func TestLint(t *testing.T) {
	for name, values := range map[string]string{"default": "", "everything": everything, "namespaced": namespaced} {
		t.Run(name, func(t *testing.T) {
			var given map[string]any
			if err := json.Unmarshal(toJSON(t, values), &given); err != nil {
				t.Fatal(err)
			}
			lint := action.NewLint()
			lint.Strict, lint.Namespace = true, namespace
			result := lint.Run([]string{chartDir}, given)
			if result.TotalChartsLinted != 1 || action.HasWarningsOrErrors(result) {
				t.Errorf("linted %d charts: %v, %v", result.TotalChartsLinted, result.Messages, result.Errors)
			}
		})
	}
}

// What a change of the chart changes shows in these files: go test -update .
func TestGolden(t *testing.T) {
	for name, values := range map[string]string{"default": "", "everything": everything, "namespaced": namespaced} {
		t.Run(name, func(t *testing.T) {
			all, notes := render(t, values)
			for k, o := range all {
				if strings.Contains(k, "Role") && o.GetName() == "ackrail-manager" && o.Object["rules"] != nil {
					o.Object["rules"] = "those of config/rbac/role.yaml"
				}
			}
			got := all.without("CustomResourceDefinition").text(t) + "---\n# " + strings.ReplaceAll(strings.TrimSpace(notes), "\n", "\n# ") + "\n"
			got = strings.ReplaceAll(got, "# \n", "#\n")
			file := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got), go test -update . accepts it:\n%s", file, diff)
			}
		})
	}
}

// The chart and config/default are two ways to the same objects.
func TestMakesWhatConfigMakes(t *testing.T) {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../config/default")
	if err != nil {
		t.Fatal(err)
	}
	stream, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	want := parse(t, string(stream)).without("Namespace") // Helm makes that.
	got, _ := render(t, "crds: {keep: false}")
	if diff := cmp.Diff(want.keys(), got.keys()); diff != "" {
		t.Fatalf("objects (-config +chart):\n%s", diff)
	}
	for k, o := range got {
		if diff := cmp.Diff(comparable(want[k]), comparable(o)); diff != "" {
			t.Errorf("%s (-config +chart):\n%s", k, diff)
		}
	}
}

// comparable leaves out the labels that only Helm's users expect.
func comparable(o *unstructured.Unstructured) map[string]any {
	o = o.DeepCopy()
	for _, path := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}} {
		for _, label := range []string{"app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"} {
			unstructured.RemoveNestedField(o.Object, append(slices.Clone(path), label)...)
		}
	}
	return o.Object
}

// An API server that is asked to be strict would accept all of it.
func TestFieldsAreKnown(t *testing.T) {
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for name, values := range map[string]string{"default": "", "everything": everything, "namespaced": namespaced} {
		t.Run(name, func(t *testing.T) {
			all, _ := render(t, values)
			for k, o := range all.without("CustomResourceDefinition", "ServiceMonitor") {
				data, err := o.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				if _, _, err := decoder.Decode(data, nil, nil); err != nil {
					t.Errorf("%s: %v", k, err)
				}
			}
		})
	}
}

// The check is that of the API server's admission.
func TestPodsAreRestricted(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range map[string]string{"default": "", "everything": everything, "namespaced": namespaced} {
		t.Run(name, func(t *testing.T) {
			all, _ := render(t, values)
			var d appsv1.Deployment
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(all.get(t, "Deployment "+namespace+"/ackrail-manager").Object, &d); err != nil {
				t.Fatal(err)
			}
			level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
			result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &d.Spec.Template.ObjectMeta, &d.Spec.Template.Spec))
			if !result.Allowed {
				t.Errorf("refused: %s: %s", result.ForbiddenReason(), result.ForbiddenDetail())
			}
			if c := d.Spec.Template.Spec.Containers[0]; c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
				t.Error("the root file system can be written to")
			}
		})
	}
}

func TestWatchNamespaces(t *testing.T) {
	all, notes := render(t, namespaced)
	want := []string{
		"CustomResourceDefinition eventreplays.ackrail.io", "CustomResourceDefinition webhookendpoints.ackrail.io",
		"Deployment ackrail-system/ackrail-manager",
		"Role ackrail-system/ackrail-leader-election", "Role orders/ackrail-manager", "Role payments/ackrail-manager",
		"RoleBinding ackrail-system/ackrail-leader-election", "RoleBinding orders/ackrail-manager", "RoleBinding payments/ackrail-manager",
		"ServiceAccount ackrail-system/ackrail-manager",
	}
	if diff := cmp.Diff(want, all.keys()); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	clusterwide, _ := render(t, "")
	wantRules := clusterwide.get(t, "ClusterRole ackrail-manager").Object["rules"]
	if diff := cmp.Diff(wantRules, all.get(t, "Role orders/ackrail-manager").Object["rules"]); diff != "" {
		t.Errorf("rules (-cluster +namespace):\n%s", diff)
	}
	args := all.args(t)
	for _, arg := range []string{"--watch-namespaces=payments,orders", "--metrics-bind-address=0"} {
		if !slices.Contains(args, arg) {
			t.Errorf("no %s in %q", arg, args)
		}
	}
	if !strings.Contains(notes, "in payments, orders") || !strings.Contains(notes, "It serves no metrics") {
		t.Errorf("the notes do not tell:\n%s", notes)
	}

	open, _ := render(t, namespaced+"metrics: {secure: false}\nserviceMonitor: {enabled: true}")
	for _, k := range open.keys() {
		if strings.HasPrefix(k, "ClusterRole") {
			t.Errorf("has a %s", k)
		}
	}
	if args := open.args(t); !slices.Contains(args, "--metrics-bind-address=:8443") || !slices.Contains(args, "--metrics-secure=false") {
		t.Errorf("metrics are not served in the open: %q", args)
	}
}

func TestDefinitions(t *testing.T) {
	const kept = "helm.sh/resource-policy"
	for _, tc := range []struct {
		values string
		want   int
		keep   string
	}{
		{"", 2, "keep"},
		{"crds: {keep: false}", 2, ""},
		{"crds: {enabled: false}", 0, ""},
	} {
		all, _ := render(t, tc.values)
		found := 0
		for k, o := range all {
			if o.GetKind() == "CustomResourceDefinition" {
				found++
				if got := o.GetAnnotations()[kept]; got != tc.keep {
					t.Errorf("%s: %s has policy %q, want %q", tc.values, k, got, tc.keep)
				}
			}
		}
		if found != tc.want {
			t.Errorf("%s: %d definitions, want %d", tc.values, found, tc.want)
		}
	}
}

func TestCertificateOnlyWhereItIsUsed(t *testing.T) {
	for values, want := range map[string]bool{
		"metrics: {certificateSecret: c}":                                true,
		"metrics: {certificateSecret: c, secure: false}":                 false,
		"metrics: {certificateSecret: c, enabled: false}":                false,
		"{metrics: {certificateSecret: c}, watchNamespaces: [payments]}": false,
	} {
		all, _ := render(t, values)
		_, mounted, err := unstructured.NestedSlice(all.get(t, "Deployment "+namespace+"/ackrail-manager").Object, "spec", "template", "spec", "volumes")
		if err != nil {
			t.Fatal(err)
		}
		if given := slices.Contains(all.args(t), "--metrics-cert-dir=/etc/ackrail/metrics"); mounted != want || given != want {
			t.Errorf("%s: certificate mounted %v, given %v, want %v", values, mounted, given, want)
		}
	}
}

func TestImages(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	for _, tc := range []struct {
		values             string
		manager, dataPlane string
	}{
		{"", "docker.io/ackrail/ackrail:dev", "docker.io/ackrail/ackrail:dev"},
		{"image: {tag: v1.2.3}", "docker.io/ackrail/ackrail:v1.2.3", "docker.io/ackrail/ackrail:v1.2.3"},
		{"image: {tag: v1.2.3, digest: '" + digest + "'}", "docker.io/ackrail/ackrail@" + digest, "docker.io/ackrail/ackrail@" + digest},
		{"image: {repository: r.example/a}\ndataPlane: {image: r.example/b:1}", "r.example/a:dev", "r.example/b:1"},
	} {
		all, _ := render(t, tc.values)
		containers, _, err := unstructured.NestedSlice(all.get(t, "Deployment "+namespace+"/ackrail-manager").Object, "spec", "template", "spec", "containers")
		if err != nil {
			t.Fatal(err)
		}
		if got := containers[0].(map[string]any)["image"]; got != tc.manager {
			t.Errorf("%s: manager runs %v, want %s", tc.values, got, tc.manager)
		}
		if args := all.args(t); !slices.Contains(args, "--image="+tc.dataPlane) {
			t.Errorf("%s: args %q, want --image=%s", tc.values, args, tc.dataPlane)
		}
	}
}

func TestNames(t *testing.T) {
	for release, want := range map[string]string{"ackrail": "ackrail-manager", "my-ackrail": "my-ackrail-manager", "rails": "rails-ackrail-manager"} {
		manifest, notes, err := tryRender(t, release, "")
		if err != nil {
			t.Fatal(err)
		}
		parse(t, manifest).get(t, "Deployment "+namespace+"/"+want)
		if next := "kubectl -n ackrail-system rollout status deployment/" + want; !strings.Contains(notes, next) {
			t.Errorf("the notes do not say %s:\n%s", next, notes)
		}
	}
}

func TestAccounts(t *testing.T) {
	for _, tc := range []struct {
		values, account string
		made            bool
	}{
		{"", "ackrail-manager", true},
		{"serviceAccount: {name: someone}", "someone", true},
		{"serviceAccount: {create: false, name: someone}", "someone", false},
		{"serviceAccount: {create: false}", "default", false},
	} {
		all, _ := render(t, tc.values)
		if made := all["ServiceAccount "+namespace+"/"+tc.account] != nil; made != tc.made {
			t.Errorf("%s: account made: %v, want %v", tc.values, made, tc.made)
		}
		name, _, err := unstructured.NestedString(all.get(t, "Deployment "+namespace+"/ackrail-manager").Object, "spec", "template", "spec", "serviceAccountName")
		if err != nil || name != tc.account {
			t.Errorf("%s: runs as %q, %v, want %s", tc.values, name, err, tc.account)
		}
		for k, o := range all {
			subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
			for _, subject := range subjects {
				if got := subject.(map[string]any)["name"]; got != tc.account {
					t.Errorf("%s: %s binds %v, want %s", tc.values, k, got, tc.account)
				}
			}
		}
	}
}

func TestRulesAreLeast(t *testing.T) {
	all, _ := render(t, "")
	for k, o := range all {
		rules, _, err := unstructured.NestedSlice(o.Object, "rules")
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range rules {
			data, err := json.Marshal(rule)
			if err != nil {
				t.Fatal(err)
			}
			for _, refused := range []string{`"*"`, "pods/exec", "pods/portforward", `"impersonate"`, `"escalate"`, `"bind"`} {
				if strings.Contains(string(data), refused) {
					t.Errorf("%s: %s in %s", k, refused, data)
				}
			}
			if strings.Contains(string(data), `"secrets"`) && !strings.Contains(string(data), `"verbs":["get"]`) {
				t.Errorf("%s: more than get of Secrets: %s", k, data)
			}
		}
	}
}
