package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/pipeline"
	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
)

// museum is a history for people to look at: the destination handler took the
// events A and B, audit has moved out, broken failed as often as it may. C is
// in another namespace, D waits for a worker.
type museum struct {
	*rig.Rig
	sink *testenv.Sink
	// ids are event ids by letter, letters the reverse.
	ids     map[string]string
	letters *strings.Replacer
}

// museumBody is A's, which no text format can hold.
const museumBody = "\x00\xff {\"a\":\r\n1}\n"

func openEndpoint(e *pipeline.Endpoint) {
	e.Verification = pipeline.Verification{Provider: pipeline.ProviderNone}
	e.Identity = pipeline.Identity{IdempotencyKeyHeader: "X-Key", TypeHeader: "X-Kind"}
}

func newMuseum(t *testing.T) *museum {
	t.Helper()
	m := &museum{sink: testenv.NewSink(t), ids: map[string]string{}}
	m.sink.Handle(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/audit":
			http.Error(w, "moved out", http.StatusGone)
		case "/broken":
			http.Error(w, "sorry", http.StatusInternalServerError)
		}
	}))
	orders := rig.GitHub("orders", m.sink.URL()+"/handler", openEndpoint, func(e *pipeline.Endpoint) {
		broken := rig.Destination("broken", m.sink.URL()+"/broken")
		broken.Retry.MaxAttempts = 1
		e.Destinations = append(e.Destinations, rig.Destination("audit", m.sink.URL()+"/audit"), broken)
	})
	bell := rig.GitHub("bell", m.sink.URL()+"/bell", openEndpoint, func(e *pipeline.Endpoint) {
		e.Namespace, e.Path = "default", "/bell"
	})
	m.Rig = rig.New(t, testenv.Schema(t), nil, orders, bell)
	in, w := m.Ingress(0, m.URL), m.Worker(m.URL)
	m.take(in.URL+orders.Path, "A", "push", museumBody)
	m.take(in.URL+orders.Path, "B", "pull request", "{}")
	m.take(in.URL+bell.Path, "C", "", "ding")
	testenv.Eventually(t, patience, m.Look().Drained)
	w.Stop()
	m.take(in.URL+orders.Path, "D", "push", "{}")
	in.Stop()
	var pairs []string
	for letter, id := range m.ids {
		pairs = append(pairs, id, letter)
	}
	m.letters = strings.NewReplacer(pairs...)
	return m
}

func (m *museum) take(url, letter, kind, body string) {
	m.T.Helper()
	request, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		m.T.Fatal(err)
	}
	request.Header.Set("X-Key", "key-"+letter)
	request.Header.Set("Content-Type", "application/json")
	if kind != "" {
		request.Header.Set("X-Kind", kind)
	}
	response, err := rig.NewSender(m.T, 1).Client.Do(request)
	if err != nil {
		m.T.Fatal(err)
	}
	defer response.Body.Close()
	var said struct{ EventID string }
	if err := json.NewDecoder(response.Body).Decode(&said); err != nil || said.EventID == "" {
		m.T.Fatalf("event %s was answered with %s, %v", letter, response.Status, err)
	}
	m.ids[letter] = said.EventID
}

// run runs a command that uses the database. Letters in braces in the
// arguments stand for event ids.
func (m *museum) run(stdin, line string) rig.Finished {
	m.T.Helper()
	args := strings.Split(line, " ")
	for i := range args {
		for letter, id := range m.ids {
			args[i] = strings.ReplaceAll(args[i], "{"+letter+"}", id)
		}
	}
	cmd := rig.Command(m.T, args...)
	cmd.Env = append(cmd.Env, databaseEnv+"="+m.URL)
	return rig.RunCmd(m.T, cmd, stdin)
}

// prints runs a command that must succeed, and returns what it printed.
func (m *museum) prints(line string) string {
	m.T.Helper()
	f := m.run("", line)
	if f.Code != 0 || f.Stderr != "" {
		m.T.Fatalf("%s ended with code %d and said %q", line, f.Code, f.Stderr)
	}
	return f.Stdout
}

var (
	spanCell = regexp.MustCompile(`^(\d+(ms|[dhms]))+$`)
	timeCell = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ( \(.* ago\))?`)
	columns  = regexp.MustCompile(` {2,}`)
)

// cells returns text as lines of cells with a bar between, with letters for
// ids and words for what differs from run to run.
func (m *museum) cells(text string) []string {
	var lines []string
	for line := range strings.Lines(m.letters.Replace(text)) {
		cells := columns.Split(strings.TrimRight(line, " \n"), -1)
		for i, cell := range cells {
			if spanCell.MatchString(cell) {
				cells[i] = "0s"
			}
			cells[i] = timeCell.ReplaceAllString(cells[i], "TIME")
			cells[i] = strings.ReplaceAll(cells[i], processHost, "WORKER")
		}
		lines = append(lines, strings.Join(cells, "|"))
	}
	return lines
}

// processHost is how the names of worker processes begin.
var processHost = regexp.MustCompile(`\d+$`).ReplaceAllString(processName(), "")

func TestEventsForPeople(t *testing.T) {
	t.Parallel()
	m := newMuseum(t)
	t.Run("list", func(t *testing.T) { m.listed(t) })
	t.Run("list as data", func(t *testing.T) { m.listedAsData(t) })
	t.Run("show", func(t *testing.T) { m.shown(t) })
	t.Run("replay", func(t *testing.T) { m.replayed(t) })
}

func (m *museum) listed(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string
	}{
		{"-n test", []string{
			"EVENT|ENDPOINT|TYPE|DESTINATION|RUN|STATE|ATTEMPTS|REASON|AGE",
			"D|test/orders|push|audit|1|pending|0|-|0s",
			"D|test/orders|push|broken|1|pending|0|-|0s",
			"D|test/orders|push|handler|1|pending|0|-|0s",
			"B|test/orders|pull request|audit|1|dead|1|PermanentStatus|0s",
			"B|test/orders|pull request|broken|1|dead|1|AttemptsExhausted|0s",
			"B|test/orders|pull request|handler|1|done|1|-|0s",
			"A|test/orders|push|audit|1|dead|1|PermanentStatus|0s",
			"A|test/orders|push|broken|1|dead|1|AttemptsExhausted|0s",
			"A|test/orders|push|handler|1|done|1|-|0s",
		}},
		{"-A -o wide --endpoint test/orders --limit 6 --type push", []string{
			"EVENT|ENDPOINT|TYPE|DESTINATION|RUN|STATE|ATTEMPTS|REASON|AGE|STATUS|NEXT|ERROR",
			"D|test/orders|push|audit|1|pending|0|-|0s|-|now|-",
			"D|test/orders|push|broken|1|pending|0|-|0s|-|now|-",
			"D|test/orders|push|handler|1|pending|0|-|0s|-|now|-",
			"A|test/orders|push|audit|1|dead|1|PermanentStatus|0s|410|-|answered with status 410 Gone",
			"A|test/orders|push|broken|1|dead|1|AttemptsExhausted|0s|500|-|answered with status 500 Internal Server Error",
			"A|test/orders|push|handler|1|done|1|-|0s|200|-|-",
		}},
	} {
		got := m.cells(m.prints("events list " + c.args))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("events list %s (-want +got):\n%s", c.args, diff)
		}
	}
	for args, want := range map[string]string{
		"":                                  "C/handler",
		"-n default":                        "C/handler",
		"-A --state done":                   "C/handler B/handler A/handler",
		"-A --state Dead,pending --limit 3": "D/audit D/broken D/handler",
		"-n test --destination handler":     "D/handler B/handler A/handler",
		"--endpoint test/orders --state dead --type push":                "A/audit A/broken",
		"-n test --endpoint orders --type ping,push --destination audit": "D/audit A/audit",
		"-A --type push --type ping --state done":                        "A/handler",
	} {
		line := strings.TrimSuffix("events list "+args, " ")
		var got []string
		for _, row := range m.cells(m.prints(line))[1:] {
			cells := strings.Split(row, "|")
			got = append(got, cells[0]+"/"+cells[3])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s has %v, want %s", line, got, want)
		}
	}
	for _, args := range []string{"-n nowhere", "--state claimed", "-A --destination nobody"} {
		f := m.run("", "events list "+args)
		if f.Code != 0 || f.Stdout != "" || f.Stderr != "No deliveries found.\n" {
			t.Errorf("events list %s ended with code %d, %q, %q", args, f.Code, f.Stdout, f.Stderr)
		}
	}
}

// data decodes JSON of a command, with letters for ids and "TIME" for times.
func (m *museum) data(t *testing.T, text string) map[string]any {
	t.Helper()
	text = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]*"`).ReplaceAllString(m.letters.Replace(text), `"TIME"`)
	text = regexp.MustCompile(`,\s*"latencyMs": \d+`).ReplaceAllString(text, "")
	text = regexp.MustCompile(regexp.QuoteMeta(processHost)+`\d+`).ReplaceAllString(text, "WORKER")
	var data map[string]any
	if err := json.Unmarshal([]byte(text), &data); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return data
}

func (m *museum) listedAsData(t *testing.T) {
	asJSON := m.prints("events list -n test --destination audit -o json")
	row := func(event, kind, state string, size, attempts float64, more map[string]any) any {
		d := map[string]any{
			"eventId": event, "namespace": "test", "endpoint": "orders", "destination": "audit", "run": 1.0, "state": state,
			"attempts": attempts, "type": kind, "sizeBytes": size, "receivedAt": "TIME",
		}
		for k, v := range more {
			d[k] = v
		}
		return d
	}
	dead := map[string]any{
		"endedAt": "TIME", "reason": "PermanentStatus", "lastStatus": 410.0, "errorClass": "HTTPStatus", "lastError": "answered with status 410 Gone",
	}
	want := map[string]any{"items": []any{
		row("D", "push", "pending", 2, 0, map[string]any{"nextAt": "TIME"}),
		row("B", "pull request", "dead", 2, 1, dead),
		row("A", "push", "dead", float64(len(museumBody)), 1, dead),
	}}
	if diff := cmp.Diff(want, m.data(t, asJSON)); diff != "" {
		t.Errorf("events list -o json (-want +got):\n%s", diff)
	}
	sameAsYAML(t, asJSON, m.prints("events list -n test --destination audit -o yaml"))
	if got := m.data(t, m.prints("events list -n nowhere -o json")); !cmp.Equal(got, map[string]any{"items": []any{}}) {
		t.Errorf("an empty list is %v", got)
	}
}

// sameAsYAML checks that two outputs hold the same.
func sameAsYAML(t *testing.T, asJSON, asYAML string) {
	t.Helper()
	converted, err := yaml.YAMLToJSON([]byte(asYAML))
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if err := errors.Join(json.Unmarshal([]byte(asJSON), &a), json.Unmarshal(converted, &b)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("YAML differs (-json +yaml):\n%s", diff)
	}
}

func (m *museum) shown(t *testing.T) {
	want := []string{
		"Event:|A",
		"Endpoint:|test/orders",
		"Type:|push",
		"Idempotency key:|key-A",
		"Received:|TIME",
		fmt.Sprintf("Body:|%d bytes, application/json", len(museumBody)),
		"",
		"Deliveries:",
		"|DESTINATION|RUN|STATE|ATTEMPTS|REASON|STATUS|NEXT|LAST ERROR",
		"|audit|1|dead|1|PermanentStatus|410|-|answered with status 410 Gone",
		"|broken|1|dead|1|AttemptsExhausted|500|-|answered with status 500 Internal Server Error",
		"|handler|1|done|1|-|200|-|-",
		"",
		"Attempts:",
		"|DESTINATION|RUN|ATTEMPT|RESULT|STARTED|TOOK|STATUS|CLASS|ERROR|WORKER",
		"|audit|1|1|dead|TIME|0s|410|HTTPStatus|answered with status 410 Gone|WORKER",
		"|broken|1|1|dead|TIME|0s|500|HTTPStatus|answered with status 500 Internal Server Error|WORKER",
		"|handler|1|1|done|TIME|0s|200|-|-|WORKER",
	}
	got := m.cells(m.prints("events show {A}"))
	for i := range got {
		got[i] = regexp.MustCompile(`WORKER\d+$`).ReplaceAllString(got[i], "WORKER")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events show (-want +got):\n%s", diff)
	}
	if got := m.prints("events show {A} -o body"); got != museumBody {
		t.Errorf("the body is %q, want %q", got, museumBody)
	}

	asJSON := m.prints("events show {C} -o json")
	data := m.data(t, asJSON)
	headers := data["headers"]
	delete(data, "headers")
	wantData := map[string]any{
		"id": "C", "namespace": "default", "endpoint": "bell", "idempotencyKey": "key-C", "contentType": "application/json", "receivedAt": "TIME",
		"sizeBytes": 4.0, "bodyBase64": base64.StdEncoding.EncodeToString([]byte("ding")),
		"deliveries": []any{map[string]any{
			"eventId": "C", "namespace": "default", "endpoint": "bell", "destination": "handler", "run": 1.0, "state": "done", "attempts": 1.0,
			"sizeBytes": 4.0, "lastStatus": 200.0, "receivedAt": "TIME", "endedAt": "TIME",
		}},
		"attempts": []any{map[string]any{
			"destination": "handler", "run": 1.0, "attempt": 1.0, "result": "done", "worker": "WORKER", "startedAt": "TIME", "endedAt": "TIME", "status": 200.0,
		}},
	}
	if diff := cmp.Diff(wantData, data); diff != "" {
		t.Errorf("events show -o json (-want +got):\n%s", diff)
	}
	if kept, ok := headers.(map[string]any); !ok || !cmp.Equal(kept["X-Key"], []any{"key-C"}) {
		t.Errorf("headers %v", headers)
	}
	sameAsYAML(t, asJSON, m.prints("events show {C} -o yaml"))
	excerpts := m.data(t, m.prints("events show {B} -o json"))["attempts"].([]any)
	if got := excerpts[0].(map[string]any)["responseExcerpt"]; got != "moved out\n" {
		t.Errorf("the excerpt of the answer is %q", got)
	}
}

const museumReplay = `
apiVersion: ackrail.io/v1alpha1
kind: EventReplay
metadata: {name: NAME, namespace: test}
spec:
  endpointRef: {name: ENDPOINT}
  selector: SELECTOR
`

func replayManifest(name, endpoint, selector string) string {
	return strings.NewReplacer("NAME", name, "ENDPOINT", endpoint, "SELECTOR", selector).Replace(museumReplay)
}

// summary is what matters of a replay's status: matched, replayed, succeeded,
// dead, skipped, and the conditions.
func summary(r *v1alpha1.EventReplay) string {
	s := &r.Status
	text := fmt.Sprintf("%s %d %d %d %d %d", r.Name, s.Matched, s.Replayed, s.Succeeded, s.Dead, s.Skipped)
	for _, c := range s.Conditions {
		text += fmt.Sprintf(" %s=%s:%s", c.Type, c.Status, c.Reason)
	}
	return text
}

// replay runs a manifest and returns the statuses that it printed.
func (m *museum) replay(t *testing.T, manifest, flags string) (summaries []string, f rig.Finished) {
	t.Helper()
	f = m.run(manifest, strings.TrimSuffix("replay -f - "+flags, " "))
	for doc := range strings.SplitSeq(f.Stdout, "---\n") {
		if doc == "" {
			continue
		}
		var r v1alpha1.EventReplay
		if err := yaml.UnmarshalStrict([]byte(doc), &r); err != nil {
			t.Fatalf("%v: %s", err, doc)
		}
		summaries = append(summaries, summary(&r))
	}
	return summaries, f
}

func (m *museum) replayed(t *testing.T) {
	// Mended, but for broken.
	m.sink.Handle(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/broken" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	// A first run that D still owes is no matter of these replays.
	fixed := replayManifest("after-fix", "orders", "{destinations: [audit]}")
	check := func(what string, got []string, f rig.Finished, code int, stderr string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) || f.Code != code || f.Stderr != stderr {
			t.Errorf("%s: ended with code %d, %q and\n%s\nwant %d, %q and\n%s", what, f.Code, f.Stderr, strings.Join(got, "\n"),
				code, stderr, strings.Join(want, "\n"))
		}
	}

	const open = "after-fix 2 2 0 0 0 Planned=True:Matched Complete=False:InProgress Progressing=True:InProgress"
	got, f := m.replay(t, fixed, "")
	check("without a worker", got, f, 0, "", open)
	got, f = m.replay(t, fixed, "--wait --timeout 300ms")
	check("waiting in vain", got, f, 1, "test/after-fix: 0 of 2 ended, 0 dead\nError: EventReplay test/after-fix: timed out after 300ms waiting for 2 runs to end\n", open)
	got, f = m.replay(t, fixed, "--wait --timeout 0s")
	check("waiting not at all", got, f, 1, "Error: EventReplay test/after-fix: timed out after 0s waiting for 2 runs to end\n", open)

	m.Worker(m.URL)
	const done = "after-fix 2 2 2 0 0 Planned=True:Matched Complete=True:Succeeded"
	got, f = m.replay(t, fixed, "--wait")
	if !slices.Equal(got, []string{done}) || f.Code != 0 {
		t.Errorf("with a worker: ended with code %d, %q and %v", f.Code, f.Stderr, got)
	}
	m.replays(t, "/audit", "A", "B")
	got, f = m.replay(t, fixed, "--wait")
	check("again", got, f, 0, "", done)
	m.replays(t, "/audit", "A", "B")
	m.replayPrints(t, fixed)

	changed := "a replay of this name with another spec was started before"
	got, f = m.replay(t, replayManifest("after-fix", "orders", "{match: All}"), "")
	check("changed", got, f, 1, "Error: EventReplay test/after-fix: "+changed+": give this one another metadata.name\n",
		"after-fix 0 0 0 0 0 Planned=False:SpecChanged Complete=False:SpecChanged Failed=True:SpecChanged")

	several := strings.Join([]string{
		replayManifest("nowhere", "parcels", "{match: All}"),
		replayManifest("lost", "orders", "{states: [Missing], destinations: [nobody]}"),
		replayManifest("nothing", "orders", "{types: [tag]}"),
		replayManifest("broken-again", "orders", "{eventIDs: ["+m.ids["A"]+"], destinations: [broken]}"),
		replayManifest("once-more", "orders", "{states: [Done], destinations: [handler], types: [pull request]}"),
	}, "---")
	m.replay(t, several, "") // the next one has nothing left to tell on the way
	testenv.Eventually(t, patience, m.Look().Drained)
	got, f = m.replay(t, several, "--wait")
	check("several", got, f, 1,
		"Error: EventReplay test/nowhere: spec.endpointRef.name: endpoint test/parcels: the database knows no such endpoint: correct the name, or metadata.namespace\n"+
			`Error: EventReplay test/lost: spec.selector.destinations: destination "nobody": the database knows no such destination of the endpoint: correct the name, or start an ingress with it first`+"\n",
		"nowhere 0 0 0 0 0 Planned=False:EndpointNotFound Complete=False:EndpointNotFound Failed=True:EndpointNotFound",
		"lost 0 0 0 0 0 Planned=False:DestinationNotFound Complete=False:DestinationNotFound Failed=True:DestinationNotFound",
		"nothing 0 0 0 0 0 Planned=True:NothingMatched Complete=True:NothingMatched",
		"broken-again 1 1 0 1 0 Planned=True:Matched Complete=True:CompletedWithFailures",
		"once-more 1 1 1 0 0 Planned=True:Matched Complete=True:Succeeded")
	m.replays(t, "/handler", "B")

	want := []string{
		"EVENT|ENDPOINT|TYPE|DESTINATION|RUN|STATE|ATTEMPTS|REASON|AGE",
		"D|test/orders|push|audit|1|done|1|-|0s",
		"B|test/orders|pull request|audit|2|done|1|-|0s",
		"B|test/orders|pull request|audit|1|dead (replayed)|1|PermanentStatus|0s",
		"A|test/orders|push|audit|2|done|1|-|0s",
		"A|test/orders|push|audit|1|dead (replayed)|1|PermanentStatus|0s",
	}
	if diff := cmp.Diff(want, m.cells(m.prints("events list -n test --destination audit"))); diff != "" {
		t.Errorf("events list after the replays (-want +got):\n%s", diff)
	}
}

// replays checks whose second runs have arrived at a path of the sink.
func (m *museum) replays(t *testing.T, path string, want ...string) {
	t.Helper()
	var got []string
	for _, r := range m.sink.Requests() {
		if r.URI != path || r.Header.Get("Ackrail-Run") == "1" {
			continue
		}
		if r.Header.Get("Ackrail-Run") != "2" || r.Header.Get("Ackrail-Attempt") != "1" || r.Header.Get("Ackrail-Replay") == "" {
			t.Errorf("a replay arrived with headers %v", r.Header)
		}
		got = append(got, m.letters.Replace(r.ID()))
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("replays of %v have arrived at %s, want %v", got, path, want)
	}
}

// replayPrints checks the whole object that is printed, in both formats.
func (m *museum) replayPrints(t *testing.T, manifest string) {
	t.Helper()
	var got v1alpha1.EventReplay
	f := m.run(manifest, "replay -f - -o json")
	if err := json.Unmarshal([]byte(f.Stdout), &got); err != nil {
		t.Fatalf("%v: %q, %q", err, f.Stdout, f.Stderr)
	}
	want := v1alpha1.EventReplay{
		TypeMeta:   metav1.TypeMeta{APIVersion: "ackrail.io/v1alpha1", Kind: "EventReplay"},
		ObjectMeta: metav1.ObjectMeta{Name: "after-fix", Namespace: "test"},
		Spec: v1alpha1.EventReplaySpec{
			EndpointRef: v1alpha1.EndpointRef{Name: "orders"},
			Mode:        v1alpha1.ReplayModeRun,
			Selector:    v1alpha1.ReplaySelector{States: []v1alpha1.ReplayState{v1alpha1.ReplayStateDead}, Destinations: []string{"audit"}},
		},
		Status: v1alpha1.EventReplayStatus{
			Matched: 2, Replayed: 2, Succeeded: 2, SampleEventIDs: []string{m.ids["A"], m.ids["B"]},
			Conditions: []metav1.Condition{
				{Type: "Planned", Status: "True", Reason: "Matched", Message: "Matched 2 deliveries"},
				{Type: "Complete", Status: "True", Reason: "Succeeded", Message: "2 runs succeeded"},
			},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreTypes(metav1.Time{}, &metav1.Time{})); diff != "" {
		t.Errorf("replay -o json (-want +got):\n%s", diff)
	}
	s := &got.Status
	if s.StartTime == nil || s.CompletionTime == nil || s.CompletionTime.Before(s.StartTime) || !s.Conditions[1].LastTransitionTime.Equal(s.CompletionTime) {
		t.Errorf("times: start %v, completion %v, conditions %v", s.StartTime, s.CompletionTime, s.Conditions)
	}
	sameAsYAML(t, f.Stdout, m.run(manifest, "replay -f - -o yaml").Stdout)
}

func TestMigrateTwice(t *testing.T) {
	t.Parallel()
	url := testenv.Schema(t)
	for _, want := range []string{`^(Applied migration 0000\d_[a-z_]+\.sql in \d+m?s\n){3}$`, `^The schema is up to date\n$`} {
		f := rig.Run(t, "", "migrate", "--database-url", url)
		if f.Code != 0 || f.Stderr != "" || !regexp.MustCompile(want).MatchString(f.Stdout) {
			t.Errorf("ended with code %d, %q, %q, want %s", f.Code, f.Stdout, f.Stderr, want)
		}
	}
	s, err := store.Open(url, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Ping(context.Background()); err != nil {
		t.Error(err)
	}
}

// What destinations say may have tabs and line breaks in it.
func TestTableKeepsItsShape(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	table := newTable(&out, "EVENT", "ERROR", "AGE")
	table.row("a", "tab\there\r\nand\nthere", "")
	table.flush()
	if want := "EVENT   ERROR                 AGE\na       tab here  and there   -\n"; out.String() != want {
		t.Errorf("the table is\n%swant\n%s", out.String(), want)
	}
}

// Every command explains itself: what it does, how it is called, an example,
// and what each flag is for.
func TestHelp(t *testing.T) {
	t.Parallel()
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		t.Run(c.CommandPath(), func(t *testing.T) { helps(t, c) })
	}
	walk(newRoot())
	f := rig.Run(t, "", "--version")
	if f.Stdout != "ackrail version dev\n" || f.Stderr != "" || f.Code != 0 {
		t.Errorf("--version ended with code %d, %q, %q", f.Code, f.Stdout, f.Stderr)
	}
}

func helps(t *testing.T, c *cobra.Command) {
	f := rig.Run(t, "", append(strings.Fields(c.CommandPath())[1:], "--help")...)
	if f.Code != 0 || f.Stderr != "" {
		t.Errorf("--help ended with code %d and said %q", f.Code, f.Stderr)
	}
	about := c.Long
	if about == "" {
		about = c.Short
	}
	wants := []string{about + "\n\nUsage:\n  " + c.CommandPath()}
	for _, sub := range c.Commands() {
		wants = append(wants, sub.Short)
	}
	if !c.HasSubCommands() {
		wants = append(wants, "Examples:\n  ", "\n  "+c.UseLine()+"\n")
		if c.Example == "" {
			t.Error("it has no example")
		}
	}
	c.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		if flag.Name == "help" {
			return
		}
		if first := flag.Usage[:1]; first != strings.ToLower(first) && !strings.HasPrefix(flag.Usage, "PostgreSQL") || strings.HasSuffix(flag.Usage, ".") {
			t.Errorf("--%s is explained in another style than the rest: %q", flag.Name, flag.Usage)
		}
		wants = append(wants, "--"+flag.Name)
	})
	for _, want := range wants {
		if !strings.Contains(f.Stdout, want) {
			t.Errorf("--help lacks %q:\n%s", want, f.Stdout)
		}
	}
	if c.Short == "" || strings.HasSuffix(c.Short, ".") {
		t.Errorf("the short explanation is %q", c.Short)
	}
	for line := range strings.Lines(f.Stdout) {
		if utf8.RuneCountInString(line) > 81 {
			t.Errorf("a line is too long for a terminal: %s", line)
		}
	}
}

// What was taken in while a command reads is no reason to fail: a delivery
// whose attempt is under way is shown as such.
func TestEventsWhileDelivering(t *testing.T) {
	t.Parallel()
	sink := testenv.NewSink(t)
	handler, release := testenv.Block(testenv.Status(http.StatusNoContent))
	sink.Handle(handler)
	r := rig.New(t, testenv.Schema(t), rig.Secrets(), rig.GitHub("github", sink.URL(), func(e *pipeline.Endpoint) {
		e.Destinations[0].HTTP.TimeoutSeconds, e.LeaseSeconds = 120, 180
	}))
	in := r.Ingress(0, r.URL)
	r.Worker(r.URL)
	id := rig.NewSender(t, 1).Accepted(t, in.URL+"/hooks/test/github", "one", []byte("{}"))
	arrived(t, sink, id)
	m := &museum{Rig: r, letters: strings.NewReplacer(id, "A")}
	if got := m.cells(m.prints("events list -n test"))[1]; got != "A|test/github|push|handler|1|claimed|1|-|0s" {
		t.Errorf("events list has %s", got)
	}
	f := rig.Run(t, "", "events", "show", id, "--database-url", r.URL)
	if lines := m.cells(f.Stdout); !strings.HasPrefix(lines[len(lines)-1], "|handler|1|1|running|TIME|-|-|-|-|WORKER") {
		t.Errorf("events show ends with %s", lines[len(lines)-1])
	}
	release()
	testenv.Eventually(t, patience, func() error {
		f := rig.Run(t, "", "events", "list", "-n", "test", "--state", "done", "--database-url", r.URL)
		if !strings.Contains(f.Stdout, id) {
			return errNotYet
		}
		return nil
	})
}
