package cli

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
)

// replayDesk is where replays of payments/github are created: a cluster with a
// manager, and the database with its dead letters.
type replayDesk struct {
	*cluster
	store *store.Store
}

// run runs ackrail replay create NAME in the namespace, as a plugin of kubectl.
func (d *replayDesk) run(name string, args ...string) rig.Finished {
	d.t.Helper()
	return rig.RunCmd(d.t, asPlugin(d.t, d.args(name, args...)...), "")
}

func (d *replayDesk) args(name string, args ...string) []string {
	return append([]string{"replay", "create", name, "--endpoint", "github", "-n", "payments", "--kubeconfig", d.kubeconfig}, args...)
}

// replays returns the names of what is in the namespace.
func (d *replayDesk) replays() (names []string) {
	d.t.Helper()
	var list v1alpha1.EventReplayList
	if err := d.client.List(d.t.Context(), &list, client.InNamespace("payments")); err != nil {
		d.t.Fatal(err)
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// work delivers like a worker, each with the verdict, until the process ends.
func (d *replayDesk) work(p *rig.Process, v event.Verdict) {
	d.t.Helper()
	testenv.Eventually(d.t, time.Minute, func() error {
		if !p.Running() {
			return nil
		}
		d.deliver(v)
		return errNotYet
	})
}

// deliver ends all that is due and returns how much that was.
func (d *replayDesk) deliver(v event.Verdict) int {
	d.t.Helper()
	to := event.DestinationRef{Endpoint: event.EndpointRef{Namespace: "payments", Name: "github"}, Name: "handler"}
	claims, err := d.store.Claim(d.t.Context(), "worker", []store.Want{{
		Destination: to, Most: 100, MostBytes: 1 << 20, Lease: time.Minute, MaxAttempts: 1, KeepLedger: time.Hour,
	}})
	if err != nil {
		d.t.Fatal(err)
	}
	var outcomes []store.Outcome
	for _, c := range claims {
		o := store.Outcome{Claim: c, Verdict: v, Status: 204, KeepLedger: time.Hour, KeepEnded: time.Hour}
		if v == event.VerdictDead {
			o.Status, o.Reason = 422, event.ReasonPermanentStatus
		}
		outcomes = append(outcomes, o)
	}
	if _, err := d.store.Complete(d.t.Context(), outcomes); err != nil {
		d.t.Fatal(err)
	}
	return len(claims)
}

// refuses checks a command that must fail with one line, whatever comes before it.
func (d *replayDesk) refuses(want string, f rig.Finished) {
	d.t.Helper()
	last := f.Stderr[strings.LastIndex(strings.TrimSuffix(f.Stderr, "\n"), "\n")+1:]
	if f.Code != 1 || f.Stdout != "" || last != "Error: "+want+"\n" {
		d.t.Errorf("it ended with code %d, %q and said\n%s\nwant\n%s", f.Code, f.Stdout, f.Stderr, want)
	}
}

func (c *cluster) replayCreate() {
	url, s := newDeadLetters(c.t, 6)
	d := &replayDesk{cluster: c, store: s}
	d.refuses(`--namespace: the cluster has no namespace "payments"`, d.run("early", "--all"))
	c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "payments"}})
	d.refuses("timed out after 1s waiting for EventReplay payments/early-plan-ID: no manager has looked at it yet; nothing was replayed",
		masked(d.run("early", "--all", "--dry-run=server", "--timeout", "1s")))
	weak := c.writeKubeconfig(&clientcmdapi.AuthInfo{Token: c.token("payments", "weak")})
	d.refuses(`creating the EventReplay: eventreplays.ackrail.io is forbidden: User "system:serviceaccount:payments:weak" `+
		`cannot create resource "eventreplays" in API group "ackrail.io" in the namespace "payments"`, d.run("early", "--all", "--kubeconfig", weak))

	m := c.startManager("--watch-namespaces", "payments")
	m.waitUntilReady()
	d.refuses(`--endpoint: there is no WebhookEndpoint "github" in namespace "payments"`, d.run("early", "--all", "--dry-run=server"))
	c.create(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "ackrail-database"}, StringData: map[string]string{"uri": url}},
		&v1alpha1.WebhookEndpoint{
			ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "github"},
			Spec: v1alpha1.WebhookEndpointSpec{
				Source:       v1alpha1.Source{Provider: "GitHub", SecretRefs: []v1alpha1.SecretKeyRef{{Name: "github", Key: "secret"}}},
				Destinations: []v1alpha1.Destination{{Name: "handler", HTTP: v1alpha1.HTTPDestination{URL: "http://127.0.0.1:9/"}}},
			},
		})
	d.plans()
	if names := d.replays(); len(names) > 0 {
		c.t.Errorf("plans have left %v", names)
	}
	d.creates()
	d.waits()
	c.ends(m)
}

var planName = regexp.MustCompile(`-plan-[a-z0-9]{5}`)

// sampleLines are the ids of six events.
var sampleLines = regexp.MustCompile(`Such as event:  [0-9a-f-]{36}\n(?: {16}[0-9a-f-]{36}\n){5}`)

// masked hides generated names.
func masked(f rig.Finished) rig.Finished {
	f.Stderr = planName.ReplaceAllString(f.Stderr, "-plan-ID")
	return f
}

// A plan counts, and leaves nothing.
func (d *replayDesk) plans() {
	f := d.run("after-fix", "--destination", "handler,other", "--received-after", "2020-01-31T12:00:00+01:00", "--reason", "PermanentStatus", "--max-per-second", "2", "--dry-run=server")
	const want = `EventReplay:    payments/after-fix
Endpoint:       github
States:         dead
Destinations:   handler, other
Types:          <all>
Events:         <all>
Received:       from 2020-01-31T11:00:00Z
Died:           <at any time>
Reasons:        PermanentStatus
Last status:    <all>
Would replay:   6 deliveries
Takes:          at least 2s, at 2 per second
IDS

Nothing was changed. Without --dry-run, it is created.
`
	got := sampleLines.ReplaceAllString(f.Stdout, "IDS\n")
	if f.Code != 0 || got != want {
		d.t.Errorf("the plan ended with code %d, said %q and is\n%s\nwant\n%s", f.Code, f.Stderr, f.Stdout, want)
	}
	if f := d.run("after-fix", "--all", "--limit", "4", "--dry-run=server"); !strings.Contains(f.Stdout, "\nWould replay:   4 deliveries, which is the limit: there may be more\n") {
		d.t.Errorf("the plan with a limit ended with code %d, %q, %q", f.Code, f.Stdout, f.Stderr)
	}
	if f := d.run("after-fix", "--all", "--dry-run=server", "-o", "name"); f.Code != 0 || f.Stdout != "eventreplay.ackrail.io/after-fix\n" {
		d.t.Errorf("the plan's name ended with code %d, %q, %q", f.Code, f.Stdout, f.Stderr)
	}
	f = d.run("after-fix", "--all", "--dry-run=server", "-o", "yaml")
	var counted v1alpha1.EventReplay
	if err := yaml.Unmarshal([]byte(f.Stdout), &counted); err != nil || counted.Status.Matched != 6 || counted.Spec.Mode != v1alpha1.ReplayModeDryRun {
		d.t.Errorf("the plan as YAML: %v, %s", err, f.Stdout)
	}
}

// What is created is what the flags say, with and without a cluster.
func (d *replayDesk) creates() {
	flags := []string{"--type", "push", "--state", "dead,done", "--event-id", "019a2d4e-7c31-7b52-9a0f-3f1c5d7e9b24", "--limit", "3", "--suspend", "--ttl", "1h"}
	printed := d.run("first", append(flags, "--dry-run=client")...)
	if f := d.run("first", flags...); f.Code != 0 || f.Stdout != "eventreplay.ackrail.io/first created\n" || f.Stderr != "" {
		d.t.Errorf("it ended with code %d, %q, %q", f.Code, f.Stdout, f.Stderr)
	}
	hour := int32(3600)
	want := v1alpha1.EventReplaySpec{
		EndpointRef: v1alpha1.EndpointRef{Name: "github"}, Mode: v1alpha1.ReplayModeRun, Limit: 3, Suspend: true, TTLSecondsAfterFinished: &hour,
		Selector: v1alpha1.ReplaySelector{
			States: []v1alpha1.ReplayState{"Dead", "Done"}, Types: []string{"push"}, EventIDs: []string{"019a2d4e-7c31-7b52-9a0f-3f1c5d7e9b24"},
		},
	}
	var offline, created v1alpha1.EventReplay
	if err := yaml.Unmarshal([]byte(printed.Stdout), &offline); err != nil || printed.Code != 0 {
		d.t.Errorf("%v: %+v", err, printed)
	}
	if err := d.client.Get(d.t.Context(), client.ObjectKey{Namespace: "payments", Name: "first"}, &created); err != nil {
		d.t.Fatal(err)
	}
	for what, spec := range map[string]v1alpha1.EventReplaySpec{"printed": offline.Spec, "created": created.Spec} {
		if diff := cmp.Diff(want, spec); diff != "" {
			d.t.Errorf("what was %s (-want +got):\n%s", what, diff)
		}
	}
	for _, mode := range []string{"none", "server"} {
		d.refuses("EventReplay payments/first exists already: choose another NAME", d.run("first", "--all", "--dry-run", mode))
	}
}

// Waiting ends with the replay, and with success only if all is well.
func (d *replayDesk) waits() {
	f := d.run("slow", "--all", "--limit", "2", "--wait", "--timeout", "3s")
	if want := "Error: timed out after 3s waiting for EventReplay payments/slow: 0 of 2 ended, 0 dead; it goes on in the cluster\n"; f.Code != 1 || !strings.HasSuffix(f.Stderr, want) {
		d.t.Errorf("without a worker it ended with code %d and said %s", f.Code, f.Stderr)
	}
	if n := d.deliver(event.VerdictDead); n != 2 {
		d.t.Errorf("%d runs were started, want 2", n)
	}
	p := d.start("doomed", "--all", "--wait")
	d.work(p, event.VerdictDead)
	d.ended(p, 1, "eventreplay.ackrail.io/doomed created\n", "Error: EventReplay payments/doomed is complete, but not all is well: 0 runs succeeded, 6 are dead again\n")

	p = d.start("cut-short", "--all", "--wait", "--max-per-second", "1")
	d.prints(p, "payments/cut-short: 0 of 6 ended, 0 dead")
	p.Signal(syscall.SIGINT)
	<-p.Ended()
	d.ended(p, 1, "", "Error: interrupted: waiting for EventReplay payments/cut-short; it goes on in the cluster")
	if names := d.replays(); !slices.Contains(names, "cut-short") {
		d.t.Errorf("the interrupted one is gone: %v", names)
	}
	p = d.start("well", "--all", "--wait")
	d.work(p, event.VerdictDone)
	d.ended(p, 0, "eventreplay.ackrail.io/well created\n", "eventreplay.ackrail.io/well complete: ")

	p = d.start("deleted", "--all", "--state", "done", "--wait", "--limit", "1")
	d.prints(p, "payments/deleted: 0 of 1 ended, 0 dead")
	if err := d.client.Delete(d.t.Context(), &v1alpha1.EventReplay{ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "deleted"}}); err != nil {
		d.t.Fatal(err)
	}
	<-p.Ended()
	d.ended(p, 1, "", "Error: EventReplay payments/deleted was deleted before its end was seen")

	p = d.start("nothing", "--type", "unheard-of", "--wait", "-o", "json")
	<-p.Ended()
	d.ended(p, 0, `"reason": "NothingMatched"`, "}")
}

func (d *replayDesk) start(name string, args ...string) *rig.Process {
	d.t.Helper()
	return rig.Start(d.t, d.args(name, args...)...)
}

// prints waits until a process has printed something.
func (d *replayDesk) prints(p *rig.Process, want string) {
	d.t.Helper()
	testenv.Eventually(d.t, time.Minute, func() error {
		switch {
		case strings.Contains(p.Output(), want):
			return nil
		case !p.Running():
			return errors.New("it ended")
		}
		return errNotYet
	})
}

// ended checks how a process has ended: its code, something that it printed,
// and how its last line begins.
func (d *replayDesk) ended(p *rig.Process, code int, want, last string) {
	d.t.Helper()
	text := p.Output()
	end := text[strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n")+1:]
	if got := p.ExitCode(); got != code || !strings.Contains(text, want) || !strings.HasPrefix(end, last) {
		d.t.Errorf("it ended with code %d and printed\n%s\nwant code %d, %q, and in the end %q", got, text, code, want, last)
	}
}

func TestPointInTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"":                          "<nil>",
		"2h":                        "2026-03-01T10:00:00Z",
		"90m30s":                    "2026-03-01T10:29:30Z",
		"0s":                        "2026-03-01T12:00:00Z",
		"2026-01-31T12:00:00+01:00": "2026-01-31T11:00:00Z",
		"-1h":                       "error",
		"2026-01-31":                "error",
		"2":                         "error",
	} {
		got := "<nil>"
		at, err := pointInTime("received-after", text, now)
		if err != nil {
			got = "error"
		} else if at != nil {
			got = at.Format(time.RFC3339)
		}
		if got != want {
			t.Errorf("%q: %s (%v), want %s", text, got, err, want)
		}
	}
}

func TestReplayResult(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status v1alpha1.EventReplayStatus
		want   string
	}{
		{statusOf("Complete", "True", "Succeeded", "3 runs succeeded"), "3 runs succeeded"},
		{withSkipped(statusOf("Complete", "True", "Succeeded", "3 runs succeeded")), "3 runs succeeded, 2 skipped"},
		{statusOf("Failed", "True", "SpecChanged", "another spec"), "error: EventReplay a/b has failed: another spec"},
	} {
		r := &v1alpha1.EventReplay{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}, Status: tc.status}
		got, err := replayResult(r)
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestReplayProgress(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status  v1alpha1.EventReplayStatus
		suspend bool
		want    string
	}{
		{v1alpha1.EventReplayStatus{}, false, "no manager has looked at it yet"},
		{statusOf("Complete", "False", "Waiting", "Waiting for the database: gone"), false, "Waiting for the database: gone"},
		{withSkipped(statusOf("Complete", "False", "InProgress", "")), false, "2 of 0 ended, 0 dead, 2 skipped"},
		{statusOf("Complete", "False", "Suspended", ""), true, "0 of 0 ended, 0 dead, suspended"},
	} {
		r := &v1alpha1.EventReplay{Spec: v1alpha1.EventReplaySpec{Suspend: tc.suspend}, Status: tc.status}
		if got := progress(r); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func statusOf(kind string, value metav1.ConditionStatus, reason, message string) v1alpha1.EventReplayStatus {
	return v1alpha1.EventReplayStatus{Conditions: []metav1.Condition{{Type: kind, Status: value, Reason: reason, Message: message}}}
}

func withSkipped(s v1alpha1.EventReplayStatus) v1alpha1.EventReplayStatus {
	s.Skipped = 2
	return s
}

// A flag for every field that a fault may be about, and the other way round.
func TestFlagsOfFields(t *testing.T) {
	t.Parallel()
	cmd := newReplayCreate()
	for field, flag := range flagOf {
		name, isFlag := strings.CutPrefix(flag, "--")
		if isFlag && cmd.Flags().Lookup(name) == nil {
			t.Errorf("%s is said to be set by %s, which is no flag", field, flag)
		}
	}
	for _, name := range criteria {
		if cmd.Flags().Lookup(name) == nil {
			t.Errorf("the criterion --%s is no flag", name)
		}
	}
	var f replaySpecFlags
	got := f.explain([]error{errors.New("spec.colour: unknown"), errors.New("spec.selector.types[7]: is too long")}).Error()
	if want := "spec.colour: unknown\n--type: is too long"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
