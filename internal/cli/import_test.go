package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ackrail/ackrail/internal/event"
	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
)

// emptyDatabase returns the URL of a database with nothing in it.
func emptyDatabase(t *testing.T) (string, *store.Store) {
	t.Helper()
	url := testenv.Schema(t)
	if err := store.Migrate(t.Context(), url, t.Logf); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(url, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return url, s
}

// buried makes dead letters of bodies at test/github/handler, and returns the
// bodies by event.
func buried(t *testing.T, s *store.Store, bodies ...[]byte) map[string][]byte {
	t.Helper()
	q := store.NewEnqueuer(s, store.EnqueuerOptions{})
	defer q.Close()
	to := event.DestinationRef{Endpoint: event.EndpointRef{Namespace: "test", Name: "github"}, Name: "handler"}
	all := map[string][]byte{}
	for i, body := range bodies {
		id, err := event.NewID()
		if err != nil {
			t.Fatal(err)
		}
		all[id.String()] = body
		if _, err := q.Enqueue(context.Background(), store.Submission{
			Event: &event.Event{
				ID: id, Endpoint: to.Endpoint, Key: fmt.Sprint("key-", i), Type: "push", ContentType: "application/x-odd",
				Headers: map[string][]string{"X-Odd": {"Å", "b"}}, Body: body,
			},
			Destinations: []string{to.Name}, KeepEvent: time.Hour, KeepKey: time.Hour,
		}); err != nil {
			t.Fatal(err)
		}
	}
	claims, err := s.Claim(t.Context(), "worker", []store.Want{{
		Destination: to, Most: len(bodies), MostBytes: 1 << 30, Lease: time.Minute, MaxAttempts: 1, KeepLedger: time.Hour,
	}})
	if err != nil || len(claims) != len(bodies) {
		t.Fatalf("%d claims, %v", len(claims), err)
	}
	var outcomes []store.Outcome
	for _, c := range claims {
		outcomes = append(outcomes, store.Outcome{
			Claim: c, Verdict: event.VerdictDead, Reason: event.ReasonPermanentStatus, Status: 422, Error: "no such order", KeepLedger: time.Hour, KeepEnded: time.Hour,
		})
	}
	if _, err := s.Complete(t.Context(), outcomes); err != nil {
		t.Fatal(err)
	}
	return all
}

// What died in one database is delivered out of another one, byte for byte,
// as the same events, once.
func TestImportAndReplayElsewhere(t *testing.T) {
	t.Parallel()
	oldURL, old := emptyDatabase(t)
	bodies := [][]byte{[]byte(`{"a": 1 }`), {}, {0, 255, 254, 10, 13}, []byte("Ångström\u2028\n"), bytes.Repeat([]byte{7}, 300_000)}
	for i := range importRows {
		bodies = append(bodies, fmt.Append(nil, i)) // more than a transaction
	}
	want := buried(t, old, bodies...)
	export := rig.Run(t, "", "events", "export", "-n", "test", "--database-url", oldURL)
	if export.Code != 0 {
		t.Fatalf("%+v", export)
	}

	newURL, _ := emptyDatabase(t)
	run := func(args ...string) rig.Finished {
		t.Helper()
		return rig.Run(t, export.Stdout, append([]string{"events", "import", "-", "--database-url", newURL}, args...)...)
	}
	n := len(bodies)
	for _, step := range []struct {
		args []string
		want string
	}{
		{[]string{"--dry-run"}, fmt.Sprintf("Would import %d dead letters.\n", n)},
		{nil, fmt.Sprintf("Imported %d dead letters.\n", n)},
		{nil, fmt.Sprintf("Imported 0 dead letters; %d known here already.\n", n)},
		{[]string{"--dry-run"}, fmt.Sprintf("Would import 0 dead letters; %d known here already.\n", n)},
	} {
		if f := run(step.args...); f.Code != 0 || f.Stdout != "" || f.Stderr != step.want {
			t.Errorf("%v: %+v, want %q", step.args, f, step.want)
		}
	}
	again := rig.Run(t, "", "events", "export", "-n", "test", "--database-url", newURL)
	if diff := cmp.Diff(strings.Split(export.Stdout, "\n"), strings.Split(again.Stdout, "\n")); diff != "" {
		t.Errorf("exported out of the other database (-want +got):\n%s", diff)
	}

	sink := testenv.NewSink(t)
	r := rig.New(t, newURL, rig.Secrets(), rig.GitHub("github", sink.URL()))
	if f := rig.Run(t, strings.ReplaceAll(goodReplay, "payments", "test"), "replay", "-f", "-", "--database-url", newURL); f.Code != 0 {
		t.Fatalf("%+v", f)
	}
	w := r.Worker(newURL)
	testenv.Eventually(t, time.Minute, func() error {
		if got := len(sink.Requests()); got < n {
			return fmt.Errorf("%d requests", got)
		}
		return nil
	})
	w.Stop()
	got := map[string][]byte{}
	for _, request := range sink.Requests() {
		id := request.Header.Get("webhook-id")
		if got[id] != nil {
			t.Errorf("event %s came twice", id)
		}
		if run, kind := request.Header.Get("Ackrail-Run"), request.Header.Get("Content-Type"); run != "2" || kind != "application/x-odd" || request.Header.Get("Ackrail-Replay") == "" {
			t.Errorf("run %q of %q", run, kind)
		}
		got[id] = append([]byte{}, request.Body...)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bodies (-want +got):\n%s", diff)
	}
}

// A file with a fault anywhere is refused as a whole, with what is wrong
// where.
func TestImportRefuses(t *testing.T) {
	t.Parallel()
	oldURL, old := emptyDatabase(t)
	buried(t, old, []byte("{}"), []byte("[]"))
	export := rig.Run(t, "", "events", "export", "-n", "test", "--database-url", oldURL).Stdout
	url, s := emptyDatabase(t)
	line := func(field string, value any) string {
		t.Helper()
		first, _, _ := strings.Cut(export, "\n")
		var v map[string]any
		if err := json.Unmarshal([]byte(first), &v); err != nil {
			t.Fatal(err)
		}
		if v[field] = value; value == nil && field != "bodyBase64" {
			delete(v, field)
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, tc := range map[string]struct{ input, want string }{
		"cut off":            {export[:len(export)-10], "line 2: ends in the middle of a JSON object"},
		"no JSON":            {export + "hello\n", "line 3: invalid character 'h' looking for beginning of value"},
		"not UTF-8":          {export + "{\"type\": \"\xff\"}\n", "line 3: is not UTF-8"},
		"two objects":        {line("run", 1) + " {}", "line 1: has more than one JSON object"},
		"unknown field":      {line("rum", 1), `line 1: unknown field "rum"`},
		"type of a field":    {line("run", "1"), "line 1: run: cannot be a JSON string"},
		"type of headers":    {line("headers", []int{1}), "line 1: headers: cannot be a JSON array"},
		"event":              {"\n" + line("eventId", "7"), `line 2: eventId: "7" is not a UUID`},
		"namespace":          {line("namespace", "a/b"), `line 1: namespace: "a/b" is not a valid name`},
		"no destination":     {line("destination", nil), `line 1: destination: "" is not a valid name`},
		"run":                {line("run", 0), "line 1: run: must be at least 1, is 0"},
		"attempts":           {line("attempts", -1), "line 1: attempts: must not be negative, is -1"},
		"status":             {line("lastStatus", 42), "line 1: lastStatus: 42 is not an HTTP status"},
		"reason":             {line("reason", "Tired"), `line 1: reason: "Tired" is none of PermanentStatus, AttemptsExhausted, OutcomeUnknown, PayloadMissing`},
		"time":               {line("diedAt", "yesterday"), `line 1: diedAt: "yesterday" is not a time as in RFC 3339`},
		"no time":            {line("receivedAt", nil), `line 1: receivedAt: "" is not a time as in RFC 3339`},
		"body":               {line("bodyBase64", "{}"), "line 1: bodyBase64: is not base64: illegal base64 data at input byte 0"},
		"size":               {line("sizeBytes", 3), "line 1: sizeBytes: is 3, but bodyBase64 has 2 bytes"},
		"text":               {line("text", "{ }"), "line 1: text: differs from bodyBase64, which is what is delivered: change both, or remove the text"},
		"key":                {line("idempotencyKey", nil), "line 1: idempotencyKey: is required where there is a body"},
		"NUL":                {line("type", "a\x00"), "line 1: type: must not have the character U+0000"},
		"one event, changed": {line("destination", "a") + "\n" + strings.NewReplacer(`"bodyBase64":"e30="`, `"bodyBase64":"W10="`, `"text":"{}"`, `"text":"[]"`).Replace(line("destination", "b")), "line 2: bodyBase64: is another one than in line 1, which has the same event"},
		"several":            {line("run", 0) + "\n" + line("run", -1), "line 1: run: must be at least 1, is 0\n  line 2: run: must be at least 1, is -1"},
	} {
		f := rig.Run(t, "", "events", "import", "--database-url", url, ndjson(t, tc.input))
		want := "nothing was imported: " + tc.want + "\n"
		if f.Code != 1 || f.Stdout != "" || !strings.HasPrefix(f.Stderr, "Error: ") || !strings.HasSuffix(f.Stderr, want) {
			t.Errorf("%s: %+v, want %q", name, f, want)
		}
	}
	records, err := s.ListDeliveries(t.Context(), store.Filter{Limit: 10})
	if err != nil || len(records) != 0 {
		t.Errorf("there are %d deliveries, %v", len(records), err)
	}
}

func ndjson(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "dead.ndjson")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Dead letters go where they are told to go; those without a body stay out.
func TestImportElsewhere(t *testing.T) {
	t.Parallel()
	oldURL, old := emptyDatabase(t)
	buried(t, old, []byte("{}"), []byte("[]"))
	export := rig.Run(t, "", "events", "export", "-n", "test", "--database-url", oldURL).Stdout
	for _, tc := range []struct{ flags, want string }{
		{"", "test/github"},
		{"-n staging", "staging/github"},
		{"--endpoint hub", "test/hub"},
		{"--endpoint staging/hub", "staging/hub"},
		{"-n staging --endpoint hub", "staging/hub"},
	} {
		url, s := emptyDatabase(t)
		f := rig.Run(t, export, append([]string{"events", "import", "-", "--database-url", url}, strings.Fields(tc.flags)...)...)
		records, err := s.ListDeliveries(t.Context(), store.Filter{Limit: 10})
		if err != nil || f.Code != 0 || len(records) != 2 || records[0].Key.Destination.String() != tc.want+"/handler" {
			t.Errorf("%s: %+v, %+v, %v", tc.flags, f, records, err)
		}
	}
	url, _ := emptyDatabase(t)
	bodiless := strings.NewReplacer(`"bodyBase64":"e30="`, `"bodyBase64":null`).Replace(export)
	if f := rig.Run(t, bodiless, "events", "import", "-", "--database-url", url); f.Stderr != "Imported 1 dead letter; 1 left out, since the body was not exported.\n" {
		t.Errorf("without a body: %+v", f)
	}
	if f := rig.Run(t, strings.ReplaceAll(export, `"e30="`, `"e31="`), "events", "import", "-", "--database-url", url); !strings.Contains(f.Stderr, "bodyBase64: is not base64") {
		t.Errorf("with other bytes: %+v", f)
	}
	other := strings.NewReplacer(`"text":"[]"`, `"text":"{}"`, `"W10="`, `"e30="`).Replace(export)
	f := rig.Run(t, other, "events", "import", "-", "--database-url", url)
	if f.Code != 1 || !strings.HasPrefix(f.Stderr, "Imported 0 dead letters.\nError: ") || !strings.Contains(f.Stderr, "there is another event ") {
		t.Errorf("with another body: %+v", f)
	}
	for args, want := range map[string]string{
		"missing.ndjson":        "missing.ndjson: no such file or directory",
		"- --keep 1m":           "--keep: must be 1h to 8760h (365 days), is 1m0s",
		"- --endpoint a/b/c":    `--endpoint: "a/b/c" is not NAME or NAMESPACE/NAME`,
		"- -n a --endpoint b/c": `--endpoint: "b/c" is not in the namespace "a" of --namespace`,
		"- -n A":                `--namespace: "A" is not a valid name`,
		"a b":                   "want one FILE, or - for standard input, have 2",
	} {
		f := rig.Run(t, "", append([]string{"events", "import"}, strings.Fields(args)...)...)
		if f.Code != 1 || !strings.Contains(f.Stderr, want) {
			t.Errorf("%s: %+v, want %q", args, f, want)
		}
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

func TestSpoolTellsWhatItCannotRead(t *testing.T) {
	broken := errors.New("broken")
	if _, _, err := spool("-", failingReader{broken}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}
