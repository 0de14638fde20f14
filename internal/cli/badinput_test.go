package cli

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/ackrail/ackrail/internal/postgres"
	"github.com/ackrail/ackrail/internal/rig"
	"github.com/ackrail/ackrail/internal/store"
	"github.com/ackrail/ackrail/internal/testenv"
)

// goodManifest is complete; badFiles spoil it.
const goodManifest = `
apiVersion: ackrail.io/v1alpha1
kind: WebhookEndpoint
metadata: {name: github, namespace: payments}
spec:
  source:
    provider: GitHub
    secretRefs: [{name: webhook, key: secret}]
  destinations:
  - name: handler
    http: {url: "http://127.0.0.1:9/events", timeoutSeconds: 5}
  worker: {leaseSeconds: 30}
---
apiVersion: v1
kind: Secret
metadata: {name: webhook, namespace: payments}
stringData: {secret: hush}
`

const goodReplay = `
apiVersion: ackrail.io/v1alpha1
kind: EventReplay
metadata: {name: after-fix, namespace: payments}
spec:
  endpointRef: {name: github}
  selector: {match: All}
`

const goodConfig = `{"version": 1, "endpoints": [{
	"namespace": "payments", "name": "github", "path": "/hooks/payments/github",
	"verification": {"provider": "GitHub", "secretFiles": ["secret"]}, "identity": {"idempotencyKeyHeader": "X-GitHub-Delivery"}, "maxBodyBytes": 1048576,
	"destinations": [{
		"name": "handler", "http": {"url": "http://127.0.0.1:9/events", "timeoutSeconds": 5},
		"retry": {"maxAttempts": 3, "minBackoffSeconds": 1, "maxBackoffSeconds": 60}, "maxConcurrency": 4
	}],
	"leaseSeconds": 30, "retention": {"eventsSeconds": 86400, "deadLettersSeconds": 86400, "dedupSeconds": 86400}
}]}
`

// noServer is a kubeconfig for a cluster that is not there.
const noServer = `{"apiVersion": "v1", "kind": "Config", "current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
	"clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}], "users": [{"name": "a", "user": {"token": "geheim"}}]}`

// badFiles writes what the cases name into a folder.
func badFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	edit := func(text string, changes ...string) string {
		t.Helper()
		for i := 0; i < len(changes); i += 2 {
			if !strings.Contains(text, changes[i]) {
				t.Fatalf("nothing to replace: %s", changes[i])
			}
			text = strings.ReplaceAll(text, changes[i], changes[i+1])
		}
		return text
	}
	endpoint, secret, _ := strings.Cut(goodManifest, "---\n")
	_, endpointConfig, _ := strings.Cut(goodConfig, "[{\n")
	endpointConfig = strings.TrimSuffix(endpointConfig, "}]}\n")
	for name, text := range map[string]string{
		"good.yaml":              goodManifest,
		"empty.yaml":             "",
		"not-yaml.yaml":          "spec: [",
		"prose.yaml":             "Dear webhook,\n",
		"unknown-field.yaml":     edit(goodManifest, "provider: GitHub", "provider: GitHub\n    colour: red"),
		"two-faults.yaml":        edit(goodManifest, "provider: GitHub", "provider: GitHub\n    colour: red\n    taste: sweet"),
		"unknown-provider.yaml":  edit(goodManifest, "provider: GitHub", "provider: Gitlab"),
		"no-secret.yaml":         endpoint,
		"other-namespace.yaml":   edit(goodManifest, "name: webhook, namespace: payments", "name: webhook"),
		"no-key.yaml":            edit(goodManifest, "{secret: hush", "{secrt: hush"),
		"empty-secret.yaml":      edit(goodManifest, "secret: hush", `secret: ""`),
		"undecodable.yaml":       edit(goodManifest, "provider: GitHub", "provider: StandardWebhooks", "secret: hush", `secret: "whsec_hush!"`),
		"undecodable-out.yaml":   edit(goodManifest, "timeoutSeconds: 5", "timeoutSeconds: 5, signingSecretRef: {name: webhook, key: secret}", "secret: hush", `secret: "hush!"`),
		"data-not-base64.yaml":   edit(goodManifest, "stringData: {secret: hush", `data: {secret: "hush!"`),
		"lease.yaml":             edit(goodManifest, "timeoutSeconds: 5", "timeoutSeconds: 26"),
		"same-path.yaml":         goodManifest + "---" + edit(endpoint, "name: github", "name: twin", "provider: GitHub", "provider: GitHub\n    path: /hooks/payments/github"),
		"same-name.yaml":         goodManifest + "---" + endpoint,
		"secrets.yaml":           secret,
		"no-type.yaml":           edit(goodManifest, "provider: GitHub", "provider: StandardWebhooks", "secret: hush", "secret: aHVzaA=="),
		"body.json":              "{}",
		"replay.yaml":            goodReplay,
		"replay-field.yaml":      edit(goodReplay, "match: All", "match: All, mach: All"),
		"replay-all.yaml":        edit(goodReplay, "match: All", "states: [Dead]"),
		"replay-state.yaml":      edit(goodReplay, "match: All", "match: All, states: [Sleeping]"),
		"replay-id.yaml":         edit(goodReplay, "match: All", "eventIDs: [one]"),
		"replay-times.yaml":      edit(goodReplay, "match: All", "receivedAfter: 2026-02-01T00:00:00Z, receivedBefore: 2026-01-01T00:00:00Z"),
		"replay-limit.yaml":      edit(goodReplay, "selector:", "limit: -1\n  selector:"),
		"empty.json":             "",
		"not-json.json":          "version: 1",
		"good.json":              goodConfig,
		"unknown-field.json":     edit(goodConfig, `"leaseSeconds"`, `"leasSeconds"`),
		"unknown-provider.json":  edit(goodConfig, `"GitHub"`, `"Gitlab"`),
		"version.json":           edit(goodConfig, `"version": 1`, `"version": 2`),
		"lease.json":             edit(goodConfig, `"timeoutSeconds": 5`, `"timeoutSeconds": 26`),
		"same-path.json":         edit(goodConfig, "}]}\n", "}, {"+edit(endpointConfig, `"name": "github"`, `"name": "twin"`)+"}]}\n"),
		"secret-outside.json":    edit(goodConfig, `["secret"]`, `["../secret"]`),
		"no-folder/nothing.text": "",
		"url-malformed":          malformed,
		"url-empty":              "\n",
		"url-oversized":          unreachable + "?x=" + strings.Repeat("x", 64<<10),
		"url-good":               unreachable + "\n",
		"kubeconfig":             "apiVersion: v1\nkind: Config\n",
		"not-kubeconfig":         "geheim: [",
		"no-server":              noServer,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, dir, name, text)
	}
	return dir
}

// badInput is a command line that must fail with one line.
type badInput struct {
	// args are separated by single blanks.
	args string
	// want follows "Error: "; a last … stands for anything.
	want  string
	stdin string
	env   string
}

const (
	unreachable = "postgres://ackrail:geheim@127.0.0.1:1/db"
	malformed   = "postgres://ackrail:geheim@[host/db"

	refusal        = "database unavailable: failed to connect to `user=ackrail database=db`: 127.0.0.1:1 (127.0.0.1): dial error: dial tcp 127.0.0.1:1: connect: connection refused: start PostgreSQL there, or correct --database-url"
	malformedURL   = "the database URL is malformed: want postgres://USER:PASSWORD@HOST:PORT/DATABASE"
	noPodsDatabase = "no database: set --database-url-file, --database-url or $ACKRAIL_DATABASE_URL"
	noDatabase     = "no database: set --database-url or $ACKRAIL_DATABASE_URL (ackrail dev prints the one that it runs)"
	at             = "WebhookEndpoint payments/github: spec."
	lease          = "must be at least 5 more than the longest http.timeoutSeconds of the destinations, so that the outcome is written down before another worker may take the delivery over: raise worker.leaseSeconds or lower http.timeoutSeconds"
	base64Wanted   = "secret must be base64, with or without the prefix whsec_…"
)

// manifestFaults are what dev and send say alike.
var manifestFaults = map[string]string{
	"missing.yaml":          "reading manifests: stat missing.yaml: no such file or directory",
	"no-folder":             "reading manifests: no-folder: no .yaml, .yml or .json file in this folder",
	"empty.yaml":            "empty.yaml: no object in this file",
	"not-yaml.yaml":         "not-yaml.yaml: yaml: line 1: did not find expected node content",
	"prose.yaml":            "prose.yaml: must be an object with apiVersion, kind and metadata",
	"unknown-field.yaml":    "unknown-field.yaml, document 1: " + at + "source.colour: unknown field: remove it, or correct its name",
	"unknown-provider.yaml": "unknown-provider.yaml, document 1: " + at + `source.provider: unknown value "Gitlab": supported values: "GitHub", "StandardWebhooks", "HMAC", "None"`,
	"no-secret.yaml":        at + `source.secretRefs[0]: no Secret payments/webhook: add its manifest, with the key "secret"`,
	"other-namespace.yaml":  at + `source.secretRefs[0]: no Secret payments/webhook: add its manifest, with the key "secret"`,
	"no-key.yaml":           at + `source.secretRefs[0]: no key "secret" in Secret payments/webhook: it has secrt`,
	"empty-secret.yaml":     at + `source.secretRefs[0]: key "secret" of Secret payments/webhook is empty: give it a value`,
	"undecodable.yaml":      at + `source.secretRefs[0]: key "secret" of Secret payments/webhook: ` + base64Wanted,
	"data-not-base64.yaml":  "data-not-base64.yaml, document 2: Secret payments/webhook: data.secret: is not base64: encode it, or put the plain text under stringData",
	"lease.yaml":            "lease.yaml, document 1: " + at + "worker.leaseSeconds: " + lease,
	"same-path.yaml":        "same-path.yaml, document 3: WebhookEndpoint payments/twin: spec.source.path: /hooks/payments/github is the path of WebhookEndpoint payments/github already: choose another",
	"same-name.yaml":        "same-name.yaml, document 3: WebhookEndpoint payments/github: is also in same-name.yaml: remove or rename one of the two",
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	dir := badFiles(t)
	empty := testenv.Schema(t)
	ready := testenv.Schema(t)
	if err := store.Migrate(context.Background(), ready, t.Logf); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	inUse := taken.Addr().String()
	unknown := uuid.NewString()

	cases := []badInput{
		{args: "frob", want: `unknown command "frob" for "ackrail": see ackrail --help`},
		{args: "dev", want: `required flag(s) "filename" not set`},
		{args: "dev -f good.yaml other.yaml", want: `unexpected argument "other.yaml": ackrail dev takes flags only, a file goes after a flag of its own`},
		{args: "dev -f good.yaml --colour red", want: "unknown flag: --colour"},
		{args: "dev -f good.yaml --role both", want: `--role: must be all, ingress or worker, is "both"`},
		{args: "dev -f good.yaml --log-format xml", want: `--log-format: must be json or text, is "xml"`},
		{args: "dev -f good.yaml --log-level loud", want: `invalid argument "loud" for "--log-level" flag: slog: level string "loud": unknown name`},
		{args: "dev -f good.yaml --drain-timeout soon", want: `invalid argument "soon" for "--drain-timeout" flag: time: invalid duration "soon"`},
		{args: "dev -f secrets.yaml", want: "secrets.yaml: no WebhookEndpoint found: add its manifest"},
		{args: "dev -f undecodable-out.yaml", want: at + `destinations[0].http.signingSecretRef: key "secret" of Secret payments/webhook: ` + base64Wanted},
		{args: "dev -f good.yaml --data-dir body.json", want: "--data-dir: mkdir DIR/body.json: not a directory"},
		{args: "dev -f good.yaml --data-dir . --database-url " + malformed, want: malformedURL},
		{args: "dev -f good.yaml --data-dir . --database-url " + unreachable, want: "creating the schema: " + refusal},
		{args: "dev -f good.yaml --data-dir . --database-url " + ready + " --ops-listen 127.0.0.1:0 --listen " + inUse, want: "--listen: " + inUse + " is in use by another process: choose another address, or port 0 for any"},
		{args: "dev -f good.yaml --data-dir . --database-url " + ready + " --listen 127.0.0.1:0 --ops-listen " + inUse, want: "--ops-listen: " + inUse + " is in use by another process: choose another address, or port 0 for any"},
		{args: "dev -f good.yaml --data-dir . --database-url " + ready + " --ops-listen 127.0.0.1:0 --listen ", want: "--listen: is empty: want HOST:PORT"},
		{args: "dev -f good.yaml --data-dir . --database-url " + ready + " --ops-listen 127.0.0.1:0 --listen 8080", want: "--listen: listen tcp: address 8080: missing port in address"},
		{args: "dev -f good.yaml --data-dir . --database-url " + ready + " --listen 127.0.0.1:0 --ops-listen ", want: "--ops-listen: is empty: want HOST:PORT"},
		{args: "dev -f good.yaml --data-dir .", env: postgres.BinEnv + "=no-folder", want: "no PostgreSQL server programs found: " + postgres.BinEnv + " is no-folder: stat DIR/no-folder/initdb: no such file or directory; or use a database that runs already with --database-url"},

		{args: "send -f good.yaml --endpoint github", want: `required flag(s) "body" not set`},
		{args: "send -f good.yaml --endpoint payments/gitlab --body body.json", want: "--endpoint: no WebhookEndpoint payments/gitlab in good.yaml, which has payments/github"},
		{args: "send -f good.yaml --endpoint github --body body.json", want: "--endpoint: no WebhookEndpoint default/github in good.yaml, which has payments/github"},
		{args: "send -f secrets.yaml --endpoint github --body body.json", want: "--endpoint: no WebhookEndpoint default/github in secrets.yaml, which has none"},
		{args: "send -f good.yaml --endpoint a/b/c --body body.json", want: `--endpoint: endpoint "a/b/c": want NAME or NAMESPACE/NAME`},
		{args: "send -f good.yaml --endpoint payments/github --body missing.json", want: "--body: open missing.json: no such file or directory"},
		{args: "send -f - --endpoint payments/github --body -", stdin: goodManifest, want: "--body and --filename cannot both be standard input"},
		{args: "send -f good.yaml --endpoint payments/github --body body.json --url localhost:8080", want: "--url: is malformed: want http://HOST:PORT[/PATH]"},
		{args: "send -f good.yaml --endpoint payments/github --body body.json --url http://me:geheim@[host", want: "--url: is malformed: want http://HOST:PORT[/PATH]"},
		{args: "send -f good.yaml --endpoint payments/github --body body.json --url http://me:geheim@127.0.0.1:1", want: "--url: sending to http://me:xxxxx@127.0.0.1:1/hooks/payments/github: dial tcp 127.0.0.1:1: connect: connection refused (is ackrail dev running there?)"},
		{args: "send -f good.yaml --endpoint payments/github --body body.json --id a\nb", want: "--id: has control characters, which no header can carry"},
		{args: "send -f good.yaml --endpoint payments/github --body body.json --event-type a\nb", want: "--event-type: has control characters, which no header can carry"},
		{args: "send -f no-type.yaml --endpoint payments/github --body body.json --event-type push", want: "--event-type: the endpoint takes no type: set spec.source.identity.type.header"},
		{args: "send -f no-type.yaml --endpoint payments/github --body body.json --id a.b --url http://127.0.0.1:1", want: "signing: the id to sign is empty or has a character that the scheme reserves"},

		{args: "events frob", want: `unknown command "frob" for "ackrail events": see ackrail events --help`},
		{args: "events list", want: noDatabase},
		{args: "events list -o xml", want: `--output: must be one of table, wide, json, yaml, is "xml"`},
		{args: "events list --state asleep", want: `--state: unknown state "asleep": use one of pending, claimed, failed, done, dead`},
		{args: "events list --limit 0", want: "--limit: must be at least 1, is 0"},
		{args: "events list --endpoint /github", want: `--endpoint: endpoint "/github": want NAME or NAMESPACE/NAME`},
		{args: "events list --database-url " + malformed, want: malformedURL},
		{args: "events list", env: databaseEnv + "=" + malformed, want: malformedURL},
		{args: "events list --database-url " + unreachable, want: "checking the schema: " + refusal},
		{args: "events list --database-url " + empty, want: `database unavailable: the schema is missing: run "ackrail migrate"`},
		{args: "events show", want: "want one EVENT-ID, as ackrail events list prints it, have 0"},
		{args: "events show one", want: `event id "one": want a UUID, as ackrail events list prints it`},
		{args: "events show " + unknown + " -o xml", want: `--output: must be one of text, json, yaml, body, is "xml"`},
		{args: "events show " + unknown, want: noDatabase},
		{args: "events show " + unknown + " --database-url " + ready, want: "event " + unknown + " not found"},
		{args: "events show " + unknown + " --database-url " + unreachable, want: "checking the schema: " + refusal},

		{args: "replay", want: `required flag(s) "filename" not set`},
		{args: "replay -f missing.yaml", want: "reading manifests: stat missing.yaml: no such file or directory"},
		{args: "replay -f empty.yaml", want: "empty.yaml: no object in this file"},
		{args: "replay -f good.yaml", want: "good.yaml: no EventReplay found"},
		{args: "replay -f replay-field.yaml", want: "replay-field.yaml: EventReplay payments/after-fix: spec.selector.mach: unknown field: remove it, or correct its name"},
		{args: "replay -f replay-all.yaml", want: "replay-all.yaml: EventReplay payments/after-fix: spec.selector: must have at least one of destinations, types, eventIDs, reasons, lastStatuses, receivedAfter, receivedBefore, diedAfter and diedBefore: name what to replay, or set match: All to replay everything in these states"},
		{args: "replay -f replay-state.yaml", want: `replay-state.yaml: EventReplay payments/after-fix: spec.selector.states[0]: unknown value "Sleeping": supported values: "Dead", "Done", "Missing"`},
		{args: "replay -f replay-id.yaml", want: "replay-id.yaml: EventReplay payments/after-fix: spec.selector.eventIDs[0]: must be an event's ID, a UUID such as 019a2d4e-7c31-7b52-9a0f-3f1c5d7e9b24: take it from the answer to the webhook, or from ackrail events list"},
		{args: "replay -f replay-times.yaml", want: "replay-times.yaml: EventReplay payments/after-fix: spec.selector.receivedBefore: must be later than receivedAfter, else no event lies between them: exchange or correct the two times"},
		{args: "replay -f replay-limit.yaml", want: "replay-limit.yaml: EventReplay payments/after-fix: spec.limit: should be greater than or equal to 1"},
		{args: "replay -f replay.yaml -o table", want: `--output: must be one of yaml, json, is "table"`},
		{args: "replay -f replay.yaml", want: noDatabase},
		{args: "replay -f replay.yaml --database-url " + malformed, want: malformedURL},
		{args: "replay -f replay.yaml --database-url " + unreachable, want: "checking the schema: " + refusal},
		{args: "replay -f replay.yaml --database-url " + empty, want: `database unavailable: the schema is missing: run "ackrail migrate"`},
		{args: "replay -f replay.yaml --database-url " + ready, want: "EventReplay payments/after-fix: spec.endpointRef.name: endpoint payments/github: the database knows no such endpoint: correct the name, or metadata.namespace"},

		{args: "events explain", want: "want one EVENT-ID, as ackrail events list prints it, have 0"},
		{args: "events explain one", want: `event id "one": want a UUID, as ackrail events list prints it`},
		{args: "events explain " + unknown + " -o body", want: `--output: must be one of text, json, yaml, is "body"`},
		{args: "events explain " + unknown, want: noDatabase},
		{args: "events explain " + unknown + " --database-url " + ready, want: "event " + unknown + " not found"},

		{args: "events export all", want: `unexpected argument "all": ackrail events export takes flags only, a file goes after a flag of its own`},
		{args: "events export --endpoint a/b/c", want: `--endpoint: endpoint "a/b/c": want NAME or NAMESPACE/NAME`},
		{args: "events export --reason Weather", want: `--reason: unknown reason "Weather": use one of PermanentStatus, AttemptsExhausted, OutcomeUnknown, PayloadMissing`},
		{args: "events export --limit 0", want: "--limit: must be at least 1, is 0"},
		{args: "events export", want: noDatabase},
		{args: "events export --database-url " + unreachable, want: "checking the schema: " + refusal},
		{args: "events export --database-url " + empty, want: `database unavailable: the schema is missing: run "ackrail migrate"`},

		{args: "replay frob", want: `unexpected argument "frob": ackrail replay takes flags only, a file goes after a flag of its own`},
		{args: "replay create --endpoint github --all", want: "want one NAME for the EventReplay, have 0"},
		{args: "replay create a b --endpoint github --all", want: "want one NAME for the EventReplay, have 2"},
		{args: "replay create a --all", want: `required flag(s) "endpoint" not set`},
		{args: "replay create a --endpoint github --all -f replay.yaml", want: "unknown shorthand flag: 'f' in -f"},
		{args: "replay create a --endpoint github", want: "nothing is selected: set --all, or at least one of --destination, --type, --event-id, --reason, --last-status, --received-after, --received-before, --died-after, --died-before"},
		{args: "replay create a --endpoint github --state done", want: "nothing is selected: set --all, or at least one of --destination, --type, --event-id, --reason, --last-status, --received-after, --received-before, --died-after, --died-before"},
		{args: "replay create a --endpoint github --all --type push", want: "--all: cannot stand beside --type: remove one of them"},
		{args: "replay create a --endpoint github --type push --destination ", want: "--destination: is empty: give it a value, or leave it out"},
		{args: "replay create a --endpoint github --type push --received-before ", want: "--received-before: is empty: give it a value, or leave it out"},
		{args: "replay create A --endpoint github --all", want: "NAME: a lowercase RFC 1123 subdomain must consist of …"},
		{args: "replay create a --endpoint GitHub --all", want: "--endpoint: must be the name of a WebhookEndpoint: lower-case letters, digits, '-' and '.', with a letter or digit at each end"},
		{args: "replay create a --endpoint github --all -n A_", want: "--namespace: a lowercase RFC 1123 label must consist of …"},
		{args: "replay create a --endpoint github --all --state asleep", want: `--state "asleep": unknown value "Asleep": supported values: "Dead", "Done", "Missing"`},
		{args: "replay create a --endpoint github --destination a,B", want: `--destination "B": must be the name of a destination: lower-case letters, digits and '-', with a letter or digit at each end`},
		{args: "replay create a --endpoint github --destination a,a", want: `--destination "a": stands twice in the list: remove one of the two`},
		{args: "replay create a --endpoint github --event-id one", want: `--event-id "one": must be an event's ID, a UUID such as 019a2d4e-7c31-7b52-9a0f-3f1c5d7e9b24: take it from the answer to the webhook, or from ackrail events list`},
		{args: "replay create a --endpoint github --reason Weather", want: `--reason "Weather": unknown value "Weather": supported values: …`},
		{args: "replay create a --endpoint github --reason OutcomeUnknown --state done", want: "--reason: goes with states: [Dead] only, …"},
		{args: "replay create a --endpoint github --last-status 503,6xx", want: `--last-status "6xx": must be an HTTP status code such as "503", or a class such as "5xx", …`},
		{args: "replay create a --endpoint github --all --state missing", want: "--destination: is required with the state Missing: name the destinations that were added later"},
		{args: "replay create a --endpoint github --died-after soon", want: `--died-after: want a time such as 2026-01-31T12:00:00Z, or how long ago, such as 2h, is "soon"`},
		{args: "replay create a --endpoint github --died-after 1h --died-before 2h", want: "--died-before: must be later than diedAfter, else no death lies between them: exchange or correct the two times"},
		{args: "replay create a --endpoint github --received-after yesterday", want: `--received-after: want a time such as 2026-01-31T12:00:00Z, or how long ago, such as 2h, is "yesterday"`},
		{args: "replay create a --endpoint github --received-before -2h", want: `--received-before: want a time such as 2026-01-31T12:00:00Z, or how long ago, such as 2h, is "-2h"`},
		{args: "replay create a --endpoint github --received-after 1h --received-before 2h", want: "--received-before: must be later than receivedAfter, else no event lies between them: exchange or correct the two times"},
		{args: "replay create a --endpoint github --all --limit 0", want: "--limit: must be at least 1, is 0"},
		{args: "replay create a --endpoint github --all --max-per-second 0", want: "--max-per-second: must be at least 1, is 0"},
		{args: "replay create a --endpoint github --all --max-per-second 10001", want: "--max-per-second: should be less than or equal to 10000"},
		{args: "replay create a --endpoint github --all --ttl 1500ms", want: "--ttl: must be whole seconds, is 1.5s"},
		{args: "replay create a --endpoint github --all --ttl 999999h", want: "--ttl: should be less than or equal to 31536000"},
		{args: "replay create a --endpoint github --all --dry-run=yes", want: `--dry-run: must be none, client or server, is "yes"`},
		{args: "replay create a --endpoint github --all --dry-run=server --wait", want: "--wait: has no use with --dry-run"},
		{args: "replay create a --endpoint github --all --suspend --wait", want: "--wait: has no use with --suspend: a replay does not end while it is suspended"},
		{args: "replay create a --endpoint github --all --wait --timeout 0s", want: "--timeout: must be greater than 0, is 0s"},
		{args: "replay create a --endpoint github --all -o table", want: `--output: must be one of text, yaml, json, name, is "table"`},
		{args: "replay create a --endpoint github --all --kubeconfig missing", want: "--kubeconfig: stat missing: no such file or directory"},
		{args: "replay create a --endpoint github --all --kubeconfig kubeconfig", want: "--kubeconfig: has no cluster in it"},
		{args: "replay create a --endpoint github --all --kubeconfig not-kubeconfig", want: "--kubeconfig: …"},
		{args: "replay create a --endpoint github --all --kubeconfig kubeconfig --context b", want: `--context: the kubeconfig has no context "b"`},
		{args: "replay create a --endpoint github --all --kubeconfig no-server", want: `creating the EventReplay: Post "http://127.0.0.1:1/apis/ackrail.io/v1alpha1/namespaces/default/eventreplays?fieldValidation=Strict&timeout=30s": dial tcp 127.0.0.1:1: connect: connection refused`},
		{args: "replay create a --endpoint github --all", env: "KUBECONFIG=missing", want: "no cluster: set --kubeconfig or $KUBECONFIG"},
		{args: "replay create a --endpoint github --all", env: "KUBECONFIG=not-kubeconfig", want: "finding the cluster: …"},

		{args: "migrate", want: noPodsDatabase},
		{args: "migrate --database-url-file url-malformed", want: "--database-url-file: secret file url-malformed: " + malformedURL},
		{args: "migrate --database-url-file url-good", want: "creating the schema: " + refusal},

		{args: "manager", want: "no image: set --image or $ACKRAIL_IMAGE to the image that pods run"},
		{args: "manager image", want: `unexpected argument "image": ackrail manager takes flags only, a file goes after a flag of its own`},
		{args: "manager --image a --log-format xml", want: `--log-format: must be json or text, is "xml"`},
		{args: "manager --image a --watch-namespaces one,Two", want: `--watch-namespaces: "Two" is not the name of a namespace`},
		{args: "manager --image a --watch-namespaces one,,two", want: `--watch-namespaces: "" is not the name of a namespace`},
		{args: "manager --image a --max-concurrent-reconciles 0", want: "--max-concurrent-reconciles: must be at least 1, is 0"},
		{args: "manager --image a --kube-api-qps 0", want: "--kube-api-qps: must be greater than 0, or -1 for no bound"},
		{args: "manager --image a --kube-api-burst 0", want: "--kube-api-burst: must be at least 1, is 0"},
		{args: "manager --image a --lease-duration 2s", want: "--lease-duration: must be at least 3s, is 2s"},
		{args: "manager --image a --metrics-secure=false --metrics-cert-dir .", want: "--metrics-cert-dir: has no use with --metrics-secure=false"},
		{args: "manager --image a --metrics-cert-dir .", want: "--metrics-cert-dir: open tls.crt: no such file or directory"},
		{args: "manager --image a", want: "--leader-election-namespace: is required outside a cluster, or set --leader-elect=false"},
		{args: "manager --image a --leader-elect=false --kubeconfig missing", want: "--kubeconfig: stat missing: no such file or directory"},
		{args: "manager --image a --leader-elect=false --kubeconfig kubeconfig", want: "--kubeconfig: has no cluster in it"},
		{args: "manager --image a --leader-elect=false --kubeconfig not-kubeconfig", want: "--kubeconfig: …"},
		{args: "manager --image a --leader-elect=false", env: "KUBECONFIG=not-kubeconfig", want: "finding the cluster: …"},
		{args: "manager --image a --leader-elect=false", env: "KUBECONFIG=missing", want: "no cluster: set --kubeconfig or $KUBECONFIG, or run the manager in a pod"},
		{args: "manager --image a --leader-elect=false", env: "HOME=no-folder", want: "no cluster: set --kubeconfig or $KUBECONFIG, or run the manager in a pod"},
		{args: "migrate now", want: `unexpected argument "now": ackrail migrate takes flags only, a file goes after a flag of its own`},
		{args: "migrate --database-url " + malformed, want: malformedURL},
		{args: "migrate --database-url " + unreachable, want: "creating the schema: " + refusal},
	}
	for file, want := range manifestFaults {
		cases = append(cases, badInput{args: "dev -f " + file, want: want})
	}
	for _, file := range []string{"missing.yaml", "unknown-field.yaml", "no-secret.yaml", "no-key.yaml", "empty-secret.yaml", "undecodable.yaml", "lease.yaml"} {
		cases = append(cases, badInput{args: "send --endpoint payments/github --body body.json -f " + file, want: manifestFaults[file]})
	}
	for role, ports := range map[string]string{
		"ingress": "--ops-listen 127.0.0.1:0 --listen 127.0.0.1:0",
		"worker":  "--ops-listen 127.0.0.1:0",
	} {
		running := role + " --database-url " + ready + " --config "
		// These listen before they look at the database's URL.
		listening := role + " --config good.json " + ports
		cases = append(cases,
			badInput{args: role, want: `required flag(s) "config" not set`},
			badInput{args: role + " --config good.json", want: noPodsDatabase},
			badInput{args: listening + " --database-url-file missing", want: "--database-url-file: secret file missing: statat missing: no such file or directory"},
			badInput{args: listening + " --database-url-file no-folder", want: "--database-url-file: secret file no-folder: is not a regular file"},
			badInput{args: listening + " --database-url-file url-empty", want: "--database-url-file: secret file url-empty: is empty"},
			badInput{args: listening + " --database-url-file url-oversized", want: "--database-url-file: secret file url-oversized: is larger than 65536 bytes"},
			badInput{args: listening + " --database-url-file url-malformed", want: "--database-url-file: secret file url-malformed: " + malformedURL},
			badInput{args: role + " --config good.json --database-url-file url-good --database-url " + ready, want: "--database-url-file and --database-url are both set: choose one"},
			badInput{args: role + " --config good.json --database-url-file url-good", env: databaseEnv + "=" + ready, want: "--database-url-file and $ACKRAIL_DATABASE_URL are both set: choose one"},
			badInput{args: listening + " --database-url " + malformed, want: malformedURL},
			badInput{args: running + "missing.json", want: "--config: reading the pipeline configuration: open missing.json: no such file or directory"},
			badInput{args: running + "empty.json", want: "--config: pipeline configuration empty.json: is empty: want a JSON document"},
			badInput{args: running + "not-json.json", want: "--config: pipeline configuration not-json.json: …"},
			badInput{args: running + "unknown-field.json", want: `--config: pipeline configuration unknown-field.json: json: unknown field "leasSeconds"`},
			badInput{args: running + "unknown-provider.json", want: `--config: pipeline configuration unknown-provider.json: endpoints[0].verification.provider: unknown provider "Gitlab": use one of [GitHub StandardWebhooks HMAC None]`},
			badInput{args: running + "version.json", want: "--config: pipeline configuration version.json: version: this binary reads version 1, the document has 2"},
			badInput{args: running + "lease.json", want: "--config: pipeline configuration lease.json: endpoints[0].destinations[0].http.timeoutSeconds: 26 s and a margin of 5 s do not fit into leaseSeconds (30): raise the lease or lower the timeout"},
			badInput{args: running + "same-path.json", want: `--config: pipeline configuration same-path.json: endpoints[1].path: "/hooks/payments/github" is already the path of payments/github`},
			badInput{args: running + "secret-outside.json", want: `--config: pipeline configuration secret-outside.json: endpoints[0].verification.secretFiles[0]: "../secret" must be a relative path inside the secrets folder`},
			badInput{args: running + "good.json --ops-listen " + inUse, want: "--ops-listen: " + inUse + " is in use by another process: choose another address, or port 0 for any"})
	}
	cases = append(cases, badInput{
		args: "ingress --database-url " + ready + " --config good.json --ops-listen 127.0.0.1:0 --listen " + inUse,
		want: "--listen: " + inUse + " is in use by another process: choose another address, or port 0 for any",
	}, badInput{
		args: "ingress --database-url " + ready + " --config good.json --ops-listen 127.0.0.1:0 --listen ",
		want: "--listen: is empty: want HOST:PORT",
	}, badInput{
		args: "ingress --database-url " + ready + " --config good.json --max-connections 0",
		want: "--max-connections: must be at least 1, is 0",
	}, badInput{
		args: "ingress --database-url " + ready + " --config good.json --max-inflight-bytes -1",
		want: "--max-inflight-bytes: must be at least 1, is -1",
	})
	for i, c := range cases {
		name, _, _ := strings.Cut(c.args, " --database-url")
		t.Run(fmt.Sprintf("%03d %s", i, name), func(t *testing.T) {
			t.Parallel()
			c.check(t, dir)
		})
	}
}

// check runs a command in a folder.
func (c *badInput) check(t *testing.T, dir string) {
	t.Helper()
	cmd := rig.Command(t, strings.Split(c.args, " ")...)
	cmd.Dir = dir
	// Processes that it leaves behind are found by this folder, which only
	// they know.
	mark := t.TempDir()
	cmd.Env = append(cmd.Env, "ACKRAIL_TEST_MARK="+mark, c.env)
	f := rig.RunCmd(t, cmd, c.stdin)
	if f.Code != 1 {
		t.Errorf("it ended with code %d, want 1", f.Code)
	}
	want := strings.ReplaceAll("Error: "+c.want+"\n", "DIR", dir)
	// One line, whatever stands for the last …
	got := f.Stderr
	if prefix, open := strings.CutSuffix(want, "…\n"); open && strings.HasPrefix(got, prefix) && strings.Index(got, "\n") == len(got)-1 {
		got = want
	}
	if got != want {
		t.Errorf("it said\n%s\nwant\n%s", f.Stderr, want)
	}
	for _, secret := range []string{"geheim", "hush!"} {
		if strings.Contains(f.Stdout+f.Stderr, secret) {
			t.Errorf("it repeats a secret: %s%s", f.Stdout, f.Stderr)
		}
	}
	if err := nothingRuns(mark); err != nil {
		t.Error(err)
	}
}

// Everything that is wrong with a manifest is said at once.
func TestManyFaults(t *testing.T) {
	t.Parallel()
	dir := badFiles(t)
	file := filepath.Join(dir, "two-faults.yaml")
	f := rig.Run(t, "", "dev", "-f", file)
	prefix := file + ", document 1: " + at + "source."
	want := "Error: " + prefix + "colour: unknown field: remove it, or correct its name\n  " + prefix + "taste: unknown field: remove it, or correct its name\n"
	if f.Stderr != want || f.Code != 1 {
		t.Errorf("it ended with code %d and said\n%s\nwant\n%s", f.Code, f.Stderr, want)
	}
}

// What fails after the private server was started takes it along.
func TestBadInputWithPrivateServer(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	dir := devDir(t)
	f := rig.Run(t, "", "dev", "-f", devManifestFile(t, testenv.NewSink(t)), "--data-dir", dir, "--ops-listen", "127.0.0.1:0",
		"--listen", taken.Addr().String())
	want := "Error: --listen: " + taken.Addr().String() + " is in use by another process: choose another address, or port 0 for any\n"
	if f.Code != 1 || f.Stderr != want {
		t.Errorf("it ended with code %d and said\n%s\nwant\n%s", f.Code, f.Stderr, want)
	}
	if err := nothingRuns(dir); err != nil {
		t.Error(err)
	}
}

func TestInterruptWhileStarting(t *testing.T) {
	t.Parallel()
	dir := devDir(t)
	p := rig.Start(t, "dev", "-f", devManifestFile(t, testenv.NewSink(t)), "--data-dir", dir, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0")
	testenv.Eventually(t, patience, func() error {
		if !strings.Contains(p.Output(), "Creating a database") {
			return errNotYet
		}
		return nil
	})
	p.Signal(syscall.SIGINT)
	<-p.Ended()
	_, said, _ := strings.Cut(p.Output(), "\nError: ")
	if p.ExitCode() != 1 || !strings.HasPrefix(said, "interrupted: ") || strings.Count(said, "\n") != 1 {
		t.Errorf("it ended with code %d and said %q", p.ExitCode(), said)
	}
	// Programs that were cut short may take a moment.
	testenv.Eventually(t, patience, func() error { return nothingRuns(dir) })
}

func TestDataDirThatTheServerCannotUse(t *testing.T) {
	t.Parallel()
	closed := filepath.Join(devDir(t), "closed")
	mode, want := fs.FileMode(0o700), fmt.Sprintf("the user postgres, which the server runs as because root may not, cannot enter %s: choose a folder elsewhere, or allow it with 'chmod o+x %s'", closed, closed)
	if os.Geteuid() != 0 {
		mode, want = 0o500, fmt.Sprintf("--data-dir: mkdir %s/data: permission denied", closed)
	}
	if err := os.Mkdir(closed, mode); err != nil {
		t.Fatal(err)
	}
	c := badInput{args: "dev -f good.yaml --data-dir " + filepath.Join(closed, "data"), want: want}
	c.check(t, badFiles(t))
}

// Pods start without their database and say nothing of how to reach it: it
// may come back, and they answer politely until then.
func TestPodsStartWithoutDatabase(t *testing.T) {
	t.Parallel()
	r := &rig.Rig{T: t, Dir: t.TempDir()}
	r.File = writeFile(t, r.Dir, "pipeline.json", goodConfig)
	writeFile(t, r.Dir, "secret", rig.Secret)
	in, w := r.Ingress(0, unreachable), r.Worker(unreachable)
	a, err := rig.NewSender(t, 1).Send(in.URL+"/hooks/payments/github", "one", []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if a.Status != http.StatusServiceUnavailable || a.RetryAfter == "" {
		t.Errorf("answered with %d, Retry-After %q, want 503 with one", a.Status, a.RetryAfter)
	}
	for _, p := range []*rig.Pod{in, w} {
		testenv.Eventually(t, patience, func() error {
			if !strings.Contains(p.Output(), "database") {
				return fmt.Errorf("no word about the database: %s", p.Output())
			}
			return nil
		})
		if code := p.Stop(); code != 0 {
			t.Errorf("it ended with code %d", code)
		}
		if strings.Contains(p.Output(), "geheim") || strings.Contains(p.Output(), rig.Secret) {
			t.Errorf("a log repeats a secret:\n%s", p.Output())
		}
	}
}
