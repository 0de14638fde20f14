package webhookendpoint

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/conditions"
	"github.com/ackrail/ackrail/internal/event"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 600, time.UTC)

// rolledOut is a Deployment of two pods that has nothing left to do.
func rolledOut(change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	replicas := int32(2)
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "github-ingress", Generation: 3},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
		},
		Status: appsv1.DeploymentStatus{
			ObservedGeneration: 3, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2,
			Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"}},
		},
	}
	for _, f := range change {
		f(d)
	}
	return d
}

func progressing(reason string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Status.Conditions[0].Reason, d.Status.Conditions[0].Message = reason, "timed out"
	}
}

func available(n int32) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Status.AvailableReplicas = n }
}

func TestObserve(t *testing.T) {
	for _, tc := range []struct {
		name   string
		d      *appsv1.Deployment
		want   string
		state  string
		reason *fault
	}{
		{name: "none", want: "False NotApplied: Nothing was applied yet"},
		{name: "none, and why", reason: &fault{reason: "NameConflict", message: "Taken"}, want: "False NameConflict: Taken"},
		{name: "complete", d: rolledOut(), want: "True Available: 2 of 2 pods are available"},
		{name: "one missing", d: rolledOut(available(1)), want: "True Available: 1 of 2 pods are available"},
		{name: "all missing", d: rolledOut(available(0)), want: "False Unavailable: 0 of 2 pods are available"},
		{
			name: "the only one missing", d: rolledOut(available(0), func(d *appsv1.Deployment) {
				*d.Spec.Replicas, d.Status.Replicas, d.Status.UpdatedReplicas = 1, 1, 1
			}),
			want: "False Unavailable: 0 of 1 pods are available",
		},
		{
			name: "not looked at yet", d: rolledOut(func(d *appsv1.Deployment) { d.Generation++ }),
			want: "True RollingOut: 0 of 2 pods are up to date, 2 are available", state: "rolling",
		},
		{
			name: "not looked at yet, failed before", d: rolledOut(progressing("ProgressDeadlineExceeded"), func(d *appsv1.Deployment) { d.Generation++ }),
			want: "True RollingOut: 0 of 2 pods are up to date, 2 are available", state: "rolling",
		},
		{
			name: "one updated", d: rolledOut(func(d *appsv1.Deployment) { d.Status.Replicas, d.Status.UpdatedReplicas = 3, 1 }),
			want: "True RollingOut: 1 of 2 pods are up to date, 2 are available", state: "rolling",
		},
		{
			name: "an old one left", d: rolledOut(func(d *appsv1.Deployment) { d.Status.Replicas = 3 }),
			want: "True RollingOut: 2 of 2 pods are up to date, 2 are available", state: "rolling",
		},
		{
			name: "an old one going", d: rolledOut(func(d *appsv1.Deployment) { d.Status.TerminatingReplicas = ptr.To[int32](1) }),
			want: "True RollingOut: 2 of 2 pods are up to date, 2 are available, 1 on their way out", state: "rolling",
		},
		{
			name: "none going", d: rolledOut(func(d *appsv1.Deployment) { d.Status.TerminatingReplicas = ptr.To[int32](0) }),
			want: "True Available: 2 of 2 pods are available",
		},
		{
			name: "new, and none is up", d: rolledOut(available(0), progressing("ReplicaSetUpdated")),
			want: "False RollingOut: 2 of 2 pods are up to date, 0 are available", state: "rolling",
		},
		{
			name: "overdue", d: rolledOut(available(1), progressing("ProgressDeadlineExceeded")),
			want: "True RolloutFailed: 1 of 2 pods are available; timed out; see kubectl describe pods -n payments -l a=b", state: "failed",
		},
		{
			name: "refused", d: rolledOut(available(0), func(d *appsv1.Deployment) {
				d.Status.Conditions = append(d.Status.Conditions, appsv1.DeploymentCondition{
					Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota",
				})
			}),
			want: "False RolloutFailed: 0 of 2 pods are available; exceeded quota; see kubectl describe pods -n payments -l a=b", state: "failed",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := observe(v1alpha1.ConditionIngressAvailable, tc.d, tc.reason)
			if text := brief(got.condition); text != tc.want {
				t.Errorf("got %q, want %q", text, tc.want)
			}
			if got.rolling != (tc.state == "rolling") || got.failed != (tc.state == "failed") {
				t.Errorf("rolling %t, failed %t, want %s", got.rolling, got.failed, tc.state)
			}
		})
	}
}

func brief(c metav1.Condition) string { return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message) }

// healthy is a scope in which nothing is wrong.
func healthy(change ...func(*scope)) *scope {
	s := &scope{
		endpoint: &v1alpha1.WebhookEndpoint{
			ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "github", Generation: 4},
			Spec:       v1alpha1.WebhookEndpointSpec{Suspend: v1alpha1.SuspendNone},
		},
		databaseURL: "postgres://db/app", applied: true, ingress: rolledOut(), worker: rolledOut(),
		counts: []event.Counts{{}},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func TestSummary(t *testing.T) {
	missing := &fault{reason: v1alpha1.ReasonSecretNotFound, message: "There is no Secret"}
	away := &fault{reason: v1alpha1.ReasonDatabaseUnreachable, message: "Away"}
	invalid := &fault{reason: v1alpha1.ReasonInvalidDatabaseURL, message: "Malformed", final: true}
	conflict := &fault{reason: v1alpha1.ReasonNameConflict, message: "Taken", final: true}
	leftover := &fault{reason: v1alpha1.ReasonNotApplied, message: "Left", working: true}
	rolling := rolledOut(progressing("ReplicaSetUpdated"))
	failed := rolledOut(progressing("ProgressDeadlineExceeded"))
	for _, tc := range []struct {
		name string
		in   *scope
		// want are the conditions that are not True with reason Available or
		// Resolved.
		want []string
	}{
		{"healthy", healthy(), nil},
		{"deliveries suspended", healthy(func(s *scope) { s.endpoint.Spec.Suspend = v1alpha1.SuspendDeliveries }), []string{"Ready True Suspended"}},
		{"all suspended", healthy(func(s *scope) { s.endpoint.Spec.Suspend = v1alpha1.SuspendAll }), []string{"Ready False Suspended"}},
		{"suspended and broken", healthy(func(s *scope) { s.endpoint.Spec.Suspend, s.store = v1alpha1.SuspendAll, away }), []string{
			"Ready False DatabaseUnreachable", "StoreReady False DatabaseUnreachable",
		}},
		{"webhook secret missing", healthy(func(s *scope) { s.secrets = missing }), []string{"Ready False SecretNotFound", "SecretsResolved False SecretNotFound"}},
		{"database secret missing", healthy(func(s *scope) {
			s.secrets, s.databaseURL, s.applied, s.ingress, s.worker = missing, "", false, nil, nil
		}), []string{
			"Ready False SecretNotFound", "SecretsResolved False SecretNotFound", "StoreReady Unknown NotApplied",
			"IngressAvailable False NotApplied", "WorkerAvailable False NotApplied",
		}},
		{"database secret unreadable", healthy(func(s *scope) {
			s.secrets, s.databaseURL, s.applied = &fault{reason: v1alpha1.ReasonSecretUnreadable, message: "Forbidden", working: true}, "", false
		}), []string{
			"Ready False SecretUnreadable", "SecretsResolved False SecretUnreadable", "StoreReady Unknown NotApplied", "Reconciling True SecretUnreadable",
		}},
		{"database away", healthy(func(s *scope) { s.store = away }), []string{"Ready False DatabaseUnreachable", "StoreReady False DatabaseUnreachable"}},
		{"database URL invalid, before and after the first apply", healthy(func(s *scope) { s.store, s.applied, s.ingress = invalid, false, nil }), []string{
			"Ready False InvalidDatabaseURL", "StoreReady False InvalidDatabaseURL", "IngressAvailable False NotApplied", "Stalled True InvalidDatabaseURL",
		}},
		{"name taken", healthy(func(s *scope) { s.apply, s.applied, s.ingress, s.worker = conflict, false, nil, nil }), []string{
			"Ready False NameConflict", "IngressAvailable False NameConflict", "WorkerAvailable False NameConflict", "Stalled True NameConflict",
		}},
		{"name taken, pods from before", healthy(func(s *scope) { s.apply, s.applied = conflict, false }), []string{"Ready False NameConflict", "Stalled True NameConflict"}},
		{"leftover", healthy(func(s *scope) { s.apply, s.applied, s.ingress, s.worker = leftover, false, nil, nil }), []string{
			"Ready False NotApplied", "IngressAvailable False NotApplied", "WorkerAvailable False NotApplied", "Reconciling True NotApplied",
		}},
		{"rolling", healthy(func(s *scope) { s.worker = rolling }), []string{"Ready False RollingOut", "WorkerAvailable True RollingOut", "Reconciling True RollingOut"}},
		{"rollout failed while the other rolls", healthy(func(s *scope) { s.ingress, s.worker = rolling, failed }), []string{
			"Ready False RollingOut", "IngressAvailable True RollingOut", "WorkerAvailable True RolloutFailed", "Stalled True RolloutFailed",
		}},
		{"secret missing and name taken", healthy(func(s *scope) { s.secrets, s.apply = missing, conflict }), []string{
			"Ready False SecretNotFound", "SecretsResolved False SecretNotFound", "Stalled True NameConflict",
		}},
		{"pods away", healthy(func(s *scope) { s.ingress = rolledOut(available(0)) }), []string{"Ready False Unavailable", "IngressAvailable False Unavailable"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			after := status(tc.in, now)
			var got []string
			for _, c := range after.Conditions {
				if c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonAvailable && c.Reason != v1alpha1.ReasonResolved {
					got = append(got, fmt.Sprintf("%s %s %s", c.Type, c.Status, c.Reason))
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			all := contract
			all.Reasons = knownReasons(t)
			if err := all.Check(after.Conditions, 4); err != nil {
				t.Error(err)
			}
			// The same findings change nothing.
			tc.in.endpoint.Status = after
			if again := status(tc.in, now.Add(time.Hour)); !equality.Semantic.DeepEqual(after, again) {
				t.Errorf("another status (-first +second):\n%s", cmp.Diff(after, again))
			}
		})
	}
}

func knownReasons(t *testing.T) []string {
	t.Helper()
	all, err := reasons("../../api/v1alpha1/conditions.go")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestStatusKeepsWhatIsNotKnown(t *testing.T) {
	s := healthy(func(s *scope) { s.applied, s.counts = false, nil })
	s.endpoint.Status.URL = "http://before"
	s.endpoint.Status.Deliveries = &v1alpha1.DeliveryCounts{Dead: 7}
	got := status(s, now)
	if got.URL != "http://before" || got.Deliveries == nil || got.Deliveries.Dead != 7 || got.ObservedGeneration != 4 {
		t.Errorf("got %+v", got)
	}
	s.applied, s.counts = true, []event.Counts{{Dead: 1}, {Dead: 2}}
	got = status(s, now)
	if got.URL != "http://github-ingress.payments.svc/hooks/payments/github" || got.Deliveries.Dead != 3 {
		t.Errorf("got %+v", got)
	}
}

func TestDeliveries(t *testing.T) {
	at := func(d time.Duration) *metav1.Time {
		m := metav1.NewTime(now.Add(d).Truncate(time.Second))
		return &m
	}
	for _, tc := range []struct {
		name   string
		counts []event.Counts
		before *metav1.Time
		want   v1alpha1.DeliveryCounts
	}{
		{"nothing", []event.Counts{{}}, at(-time.Minute), v1alpha1.DeliveryCounts{}},
		{
			"of several destinations",
			[]event.Counts{{Pending: 1, Claimed: 2, Failed: 4, Dead: 8, OldestDue: time.Second}, {Pending: 16, Claimed: 32, Failed: 64, Dead: 128, OldestDue: time.Minute}},
			nil, v1alpha1.DeliveryCounts{Pending: 51, Failed: 68, Dead: 136, OldestDueTime: at(-time.Minute)},
		},
		{"about the same oldest", []event.Counts{{Pending: 1, OldestDue: time.Minute}}, at(-58 * time.Second), v1alpha1.DeliveryCounts{Pending: 1, OldestDueTime: at(-58 * time.Second)}},
		{"another oldest", []event.Counts{{Pending: 1, OldestDue: time.Minute}}, at(-50 * time.Second), v1alpha1.DeliveryCounts{Pending: 1, OldestDueTime: at(-time.Minute)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := deliveries(tc.counts, &v1alpha1.DeliveryCounts{OldestDueTime: tc.before}, now)
			if diff := cmp.Diff(&tc.want, got); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSumUp(t *testing.T) {
	if got := sumUp(nil); got != nil {
		t.Errorf("got %+v", got)
	}
	var faults []*fault
	for _, name := range []string{"a", "a", "b", "c", "d", "e"} {
		faults = append(faults, &fault{reason: v1alpha1.ReasonSecretNotFound, message: "there is no Secret " + name})
	}
	faults[5].reason = v1alpha1.ReasonSecretKeyNotFound
	want := &fault{reason: v1alpha1.ReasonSecretNotFound, message: "There is no Secret a; there is no Secret b; there is no Secret c; 2 more"}
	if got := sumUp(faults); *got != *want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestNews(t *testing.T) {
	const ready, store = v1alpha1.ConditionReady, v1alpha1.ConditionStoreReady
	c := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return conditions.New(kind, status, reason, "Text")
	}
	good := []metav1.Condition{c(v1alpha1.ConditionSecretsResolved, "True", "Resolved"), c(store, "True", "Available"), c(ready, "True", "Available")}
	with := func(all []metav1.Condition, changed ...metav1.Condition) []metav1.Condition {
		all = append([]metav1.Condition(nil), all...)
		for _, now := range changed {
			for i := range all {
				if all[i].Type == now.Type {
					all[i] = now
				}
			}
		}
		return all
	}
	down := with(good, c(store, "False", "DatabaseUnreachable"), c(ready, "False", "DatabaseUnreachable"))
	rolling := with(good, c(ready, "False", "RollingOut"))
	for _, tc := range []struct {
		name          string
		before, after []metav1.Condition
		suspend       v1alpha1.Suspend
		created       []string
		want          []string
	}{
		{"the first look", nil, rolling, "None", []string{"ConfigMap", "Service", "Service"}, []string{"Normal Created: Created ConfigMap and Service"}},
		{"the first look, and no database", nil, down, "None", nil, []string{"Warning DatabaseUnreachable: Text"}},
		{"up", rolling, good, "None", nil, []string{"Normal Ready: Text"}},
		{"no change", good, good, "None", nil, nil},
		{"rolling", good, rolling, "None", nil, nil},
		{"down", good, down, "None", nil, []string{"Warning DatabaseUnreachable: Text"}},
		{"still down", down, down, "None", nil, nil},
		{"down for another reason", down, with(down, c(store, "False", "MigrationFailed"), c(ready, "False", "MigrationFailed")), "None", nil, []string{"Warning MigrationFailed: Text"}},
		{"up again", down, good, "None", nil, []string{"Normal StoreReady: Text", "Normal Ready: Text"}},
		{"suspended", rolling, with(good, c(ready, "False", "Suspended")), "All", nil, []string{"Normal Suspended: Text"}},
		{"resuming", with(good, c(ready, "False", "Suspended")), rolling, "None", nil, []string{"Normal Resumed: spec.suspend is None: requests are taken and delivered again"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := healthy(func(s *scope) {
				s.created, s.endpoint.Status.Conditions, s.endpoint.Spec.Suspend = tc.created, tc.before, tc.suspend
			})
			var got []string
			for _, n := range news(s, &v1alpha1.WebhookEndpointStatus{Conditions: tc.after}) {
				got = append(got, fmt.Sprintf("%s %s: %s", n.kind, n.reason, n.note))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFarewell(t *testing.T) {
	e := healthy().endpoint
	if n, ok := farewell(e); ok {
		t.Errorf("got %+v of an endpoint that was never counted", n)
	}
	e.Status.Deliveries = &v1alpha1.DeliveryCounts{}
	if n, ok := farewell(e); ok {
		t.Errorf("got %+v of an endpoint that owes nothing", n)
	}
	e.Status.Deliveries = &v1alpha1.DeliveryCounts{Dead: 1}
	if n, ok := farewell(e); !ok || !strings.Contains(n.note, "0 deliveries were not made and 1 were dead") {
		t.Errorf("got %+v, %t", n, ok)
	}
}
