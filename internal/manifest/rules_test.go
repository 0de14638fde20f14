package manifest_test

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ackrail/ackrail/config/crd"
)

// A row is an edit of a valid manifest. want is a part of the only error;
// without it the manifest is valid.
type row struct {
	name string
	base string
	set  []string
	want string
}

func endpoint(name, want string, set ...string) row {
	return row{"endpoint/" + name, baseEndpoint, set, want}
}

func replay(name, want string, set ...string) row {
	return row{"replay/" + name, baseReplay, set, want}
}

// bounds checks that a number is taken from low to high and not beyond.
// also are edits that keep other rules satisfied.
func bounds(path string, low, high int64, also ...string) []row {
	at := func(n int64, want string) row {
		set := append([]string{fmt.Sprintf("%s=%d", path, n)}, also...)
		return endpoint(fmt.Sprintf("%s %d", path, n), want, set...)
	}
	field := path + ": "
	return []row{
		at(low, ""), at(high, ""),
		at(low-1, field+fmt.Sprintf("should be greater than or equal to %d", low)),
		at(high+1, field+fmt.Sprintf("should be less than or equal to %d", high)),
	}
}

const (
	hmacSource = "spec.source={provider: HMAC, secretRefs: [{name: a, key: b}], hmac: {header: X-Signature}, identity: {idempotencyKey: {header: X-Id}}}"
	noneSource = "spec.source={provider: None, identity: {idempotencyKey: {header: X-Id}}}"
	longLease  = "spec.worker.leaseSeconds=3600"
)

func endpointRows() []row {
	rows := []row{
		endpoint("minimal", ""),
		endpoint("no spec", "spec: is required", "-spec"),
		endpoint("no name", "metadata.name: is required", "-metadata.name"),
		endpoint("name", "metadata.name: a lowercase RFC 1123 subdomain", "metadata.name=Git Hub"),
		endpoint("namespace", "metadata.namespace: must not contain dots", "metadata.namespace=a.b"),
		endpoint("unknown field", "spec.source.pathh: unknown field", "spec.source.pathh=/x"),
		endpoint("unknown field of metadata", "metadata.lables: unknown field", "metadata.lables={a: b}"),
		endpoint("status is dropped", "", "status={url: 5}"),
		endpoint("status of unknown shape", "status.phase: unknown field", "status={phase: Ready}"),
		endpoint("group", `apiVersion: must be ackrail.io/v1alpha1, is "ackrail.io/v1"`, "apiVersion=ackrail.io/v1"),

		endpoint("database", "", "spec.database.secretRef={name: my.db-1, key: postgres.uri}"),
		endpoint("database name", "spec.database.secretRef.name: must be the name of a Secret", "spec.database.secretRef.name=My_DB"),
		endpoint("database key", "spec.database.secretRef.key: must be a key of a Secret", "spec.database.secretRef.key=a/b"),

		endpoint("path", "", "spec.source.path=/a/B-_.~9/c.d"),
		endpoint("path relative", "spec.source.path: must be one or more segments", "spec.source.path=a"),
		endpoint("path query", "spec.source.path: must be one or more segments", "spec.source.path='/a?'"),
		endpoint("path trailing slash", "spec.source.path: must be one or more segments", "spec.source.path=/a/"),
		endpoint("path empty segment", "spec.source.path: must be one or more segments", "spec.source.path=/a//b"),
		endpoint("path dots", "spec.source.path: must not have '.' or '..' as a segment", "spec.source.path=/a/../b"),
		endpoint("path dot at end", "spec.source.path: must not have '.' or '..' as a segment", "spec.source.path=/a/."),
		endpoint("path dots in name", "", "spec.source.path=/a/..b/.c/d.."),
		endpoint("path 256", "", "spec.source.path=/"+strings.Repeat("a", 255)),
		endpoint("path 257", "spec.source.path: may not be more than 256", "spec.source.path=/"+strings.Repeat("a", 256)),

		endpoint("no provider", "spec.source.provider: is required", "-spec.source.provider"),
		endpoint("unknown provider", `spec.source.provider: unknown value "Gitlab": supported values: "GitHub", "StandardWebhooks", "HMAC", "None"`, "spec.source.provider=Gitlab"),
		endpoint("StandardWebhooks", "", "spec.source.provider=StandardWebhooks"),
		endpoint("HMAC", "", hmacSource),
		endpoint("HMAC alone", "spec.source.hmac: is required with provider HMAC", hmacSource, "-spec.source.hmac"),
		endpoint("HMAC with GitHub", "spec.source.hmac: goes with provider HMAC only", "spec.source.hmac={header: X-Signature}"),
		endpoint("HMAC full", "", hmacSource, "spec.source.hmac={header: X-Signature, algorithm: SHA512, encoding: Base64, prefix: 'sha512='}"),
		endpoint("HMAC no header", "spec.source.hmac.header: is required", hmacSource, "spec.source.hmac={algorithm: SHA256}"),
		endpoint("HMAC header", "spec.source.hmac.header: must be the name of an HTTP header", hmacSource, "spec.source.hmac.header='X Signature'"),
		endpoint("HMAC empty header", "spec.source.hmac.header: must be the name of an HTTP header", hmacSource, "spec.source.hmac.header=''"),
		endpoint("HMAC algorithm", `spec.source.hmac.algorithm: unknown value "MD5"`, hmacSource, "spec.source.hmac.algorithm=MD5"),
		endpoint("HMAC encoding", `spec.source.hmac.encoding: unknown value "hex"`, hmacSource, "spec.source.hmac.encoding=hex"),
		endpoint("HMAC prefix empty", "", hmacSource, "spec.source.hmac.prefix=''"),
		endpoint("HMAC prefix space", "spec.source.hmac.prefix: must be printable ASCII", hmacSource, "spec.source.hmac.prefix=' v1='"),
		endpoint("HMAC prefix line", "spec.source.hmac.prefix: must be printable ASCII", hmacSource, `spec.source.hmac.prefix="v\n1"`),
		endpoint("HMAC prefix 65", "spec.source.hmac.prefix: may not be more than 64", hmacSource, "spec.source.hmac.prefix="+strings.Repeat("a", 65)),

		endpoint("no secrets", "spec.source.secretRefs: is required with every provider but None", "-spec.source.secretRefs"),
		endpoint("empty secrets", "spec.source.secretRefs: should have at least 1 items", "spec.source.secretRefs=[]"),
		endpoint("8 secrets", "", "spec.source.secretRefs="+list(8, "{name: a, key: k%d}")),
		endpoint("9 secrets", "spec.source.secretRefs: must have at most 8 items", "spec.source.secretRefs="+list(9, "{name: a, key: k%d}")),
		endpoint("same secret twice", "spec.source.secretRefs[1]: stands twice in the list", "spec.source.secretRefs=[{name: a, key: b}, {name: a, key: b}]"),
		endpoint("secret without key", "spec.source.secretRefs[0].key: is required", "spec.source.secretRefs=[{name: a}]"),
		endpoint("secret name", "spec.source.secretRefs[0].name: must be the name of a Secret", "spec.source.secretRefs=[{name: -a, key: b}]"),
		endpoint("secret key", "spec.source.secretRefs[0].key: must be a key of a Secret", "spec.source.secretRefs=[{name: a, key: ..}]"),
		endpoint("secret key with a dot", "", "spec.source.secretRefs=[{name: a, key: .b}]"),
		endpoint("None", "", noneSource),
		endpoint("None with secrets", "spec.source.secretRefs: has no use with provider None", noneSource, "spec.source.secretRefs=[{name: a, key: b}]"),

		endpoint("None without key", "spec.source.identity.idempotencyKey: is required with providers HMAC and None", noneSource, "-spec.source.identity"),
		endpoint("HMAC without key", "spec.source.identity.idempotencyKey: is required with providers HMAC and None", hmacSource, "spec.source.identity={type: {header: X-Type}}"),
		endpoint("GitHub with own headers", "", "spec.source.identity={idempotencyKey: {header: X-Id}, type: {header: X-Type}}"),
		endpoint("identity header", "spec.source.identity.type.header: must be the name of an HTTP header", "spec.source.identity.type.header='a:b'"),

		endpoint("no destinations", "spec.destinations: is required", "-spec.destinations"),
		endpoint("empty destinations", "spec.destinations: should have at least 1 items", "spec.destinations=[]"),
		endpoint("32 destinations", "", "spec.destinations="+list(32, "{name: d%d, http: {url: 'http://a'}}")),
		endpoint("33 destinations", "spec.destinations: must have at most 32 items", "spec.destinations="+list(33, "{name: d%d, http: {url: 'http://a'}}")),
		endpoint("same destination twice", "spec.destinations[1]: stands twice in the list", "spec.destinations[1]={name: handler, http: {url: 'http://b'}}"),
		endpoint("destination name", "spec.destinations[0].name: must be a DNS label", "spec.destinations[0].name=a.b"),
		endpoint("destination name 63", "", "spec.destinations[0].name="+strings.Repeat("a", 63)),
		endpoint("destination name 64", "spec.destinations[0].name: may not be more than 63", "spec.destinations[0].name="+strings.Repeat("a", 64)),
		endpoint("no http", "spec.destinations[0].http: is required", "-spec.destinations[0].http"),

		endpoint("url", "", "spec.destinations[0].http.url=HTTPS://[::1]:8443/a%20b/@c?d=e&f=@g"),
		endpoint("url relative", "http.url: must be an absolute http or https URL", "spec.destinations[0].http.url=/events"),
		endpoint("url scheme", "http.url: must be an absolute http or https URL", "spec.destinations[0].http.url=ftp://a/b"),
		endpoint("url host", "http.url: must be an absolute http or https URL", "spec.destinations[0].http.url=http:///b"),
		endpoint("url port only", "http.url: must be an absolute http or https URL", "spec.destinations[0].http.url=http://:80/"),
		endpoint("url bad port", "http.url: must be an absolute http or https URL", "spec.destinations[0].http.url=http://a:b/"),
		endpoint("url user", "http.url: must not contain a user name or password", "spec.destinations[0].http.url=http://u:p@a/b"),
		endpoint("url fragment", "http.url: must not have a fragment", "spec.destinations[0].http.url='http://a/b#c'"),
		endpoint("url 2048", "", "spec.destinations[0].http.url=http://a/"+strings.Repeat("b", 2048-9)),
		endpoint("url 2049", "http.url: may not be more than 2048", "spec.destinations[0].http.url=http://a/"+strings.Repeat("b", 2049-9)),
		endpoint("signing secret", "", "spec.destinations[0].http.signingSecretRef={name: a, key: b}"),
		endpoint("signing secret without name", "http.signingSecretRef.name: is required", "spec.destinations[0].http.signingSecretRef={key: b}"),

		endpoint("backoff equal", "", "spec.destinations[0].retry={minBackoffSeconds: 7, maxBackoffSeconds: 7}"),
		endpoint("backoff inverted", "spec.destinations[0].retry.minBackoffSeconds: must not be greater than maxBackoffSeconds", "spec.destinations[0].retry={minBackoffSeconds: 8, maxBackoffSeconds: 7}"),
		endpoint("backoff above default", "spec.destinations[0].retry.minBackoffSeconds: must not be greater than maxBackoffSeconds", "spec.destinations[0].retry={minBackoffSeconds: 3601}"),
		endpoint("lease just enough", "", "spec.destinations[0].http.timeoutSeconds=55"),
		endpoint("suspended deliveries", "", "spec.suspend=Deliveries"),
		endpoint("suspended", "", "spec.suspend=All"),
		endpoint("suspend", `spec.suspend: unknown value "true"`, "spec.suspend='true'"),
		endpoint("lease too short", "spec.worker.leaseSeconds: must be at least 5 more than the longest http.timeoutSeconds", "spec.destinations[0].http.timeoutSeconds=56"),
		endpoint("lease too short for the second", "spec.worker.leaseSeconds: must be at least 5 more", "spec.destinations[1]={name: b, http: {url: 'http://b', timeoutSeconds: 60}}"),
		endpoint("text for a number", "spec.worker.leaseSeconds: must be of type integer", "spec.worker.leaseSeconds='60'"),
		endpoint("fraction for a number", "spec.worker.leaseSeconds: must be of type int32", "spec.worker.leaseSeconds=60.5"),
		endpoint("number beyond int32", "spec.worker.leaseSeconds: should be less than or equal to 3600", "spec.worker.leaseSeconds=3000000000"),
	}
	for _, more := range [][]row{
		bounds("spec.source.maxBodyBytes", 1, 26214400),
		bounds("spec.destinations[0].http.timeoutSeconds", 1, 900, longLease),
		bounds("spec.destinations[0].retry.maxAttempts", 1, 100),
		bounds("spec.destinations[0].retry.minBackoffSeconds", 1, 86400, "spec.destinations[0].retry.maxBackoffSeconds=86400")[:3],
		bounds("spec.destinations[0].retry.maxBackoffSeconds", 1, 86400, "spec.destinations[0].retry.minBackoffSeconds=1")[:2],
		bounds("spec.destinations[0].retry.maxBackoffSeconds", 1, 86400)[3:],
		bounds("spec.destinations[0].maxConcurrency", 1, 1000),
		bounds("spec.ingress.replicas", 1, 100),
		resources("spec.ingress.resources"),
		bounds("spec.worker.replicas", 1, 100),
		resources("spec.worker.resources"),
		bounds("spec.worker.leaseSeconds", 10, 3600, "spec.destinations[0].http.timeoutSeconds=1"),
		bounds("spec.retention.eventsSeconds", 3600, 7776000),
		bounds("spec.retention.deadLettersSeconds", 3600, 31536000),
		bounds("spec.retention.dedupSeconds", 60, 7776000),
	} {
		rows = append(rows, more...)
	}
	return rows
}

func replayRows() []row {
	const id = "019a2d4e-7c31-7b52-9a0f-3f1c5d7e9b24"
	return []row{
		replay("minimal", ""),
		replay("no endpoint", "spec.endpointRef: is required", "-spec.endpointRef"),
		replay("endpoint name", "spec.endpointRef.name: must be the name of a WebhookEndpoint", "spec.endpointRef.name=A"),
		replay("no selector", "spec.selector: is required", "-spec.selector"),
		replay("empty selector", "spec.selector: must have at least one of", "spec.selector={}"),
		replay("states alone", "spec.selector: must have at least one of", "spec.selector={states: [Done]}"),
		replay("empty lists", "spec.selector: must have at least one of", "spec.selector={destinations: [], types: [], eventIDs: []}"),
		replay("an empty list beside a criterion", "", "spec.selector={types: [push], eventIDs: []}"),
		replay("all", "", "spec.selector={match: All}"),
		replay("all with states", "", "spec.selector={match: All, states: [Dead, Done]}"),
		replay("all with empty lists", "", "spec.selector={match: All, types: []}"),
		replay("all with destinations", "spec.selector.match: cannot stand beside other criteria", "spec.selector.match=All"),
		replay("all with types", "spec.selector.match: cannot stand beside other criteria", "spec.selector={match: All, types: [push]}"),
		replay("all with ids", "spec.selector.match: cannot stand beside other criteria", "spec.selector={match: All, eventIDs: ["+id+"]}"),
		replay("all with a lower bound", "spec.selector.match: cannot stand beside other criteria", "spec.selector={match: All, receivedAfter: '2026-01-01T00:00:00Z'}"),
		replay("all with an upper bound", "spec.selector.match: cannot stand beside other criteria", "spec.selector={match: All, receivedBefore: '2026-01-01T00:00:00Z'}"),
		replay("match", `spec.selector.match: unknown value "Any"`, "spec.selector={match: Any}"),
		replay("types", "", "spec.selector={types: [push]}"),
		replay("no types", "spec.selector.types[0]: should be at least 1 chars long", "spec.selector={types: ['']}"),
		replay("65 types", "spec.selector.types: must have at most 64 items", "spec.selector.types="+list(65, "t%d")),
		replay("long type", "spec.selector.types[0]: may not be more than 256", "spec.selector.types=["+strings.Repeat("a", 257)+"]"),
		replay("ids", "", "spec.selector={eventIDs: ["+id+", "+strings.ToUpper(id)+"]}"),
		replay("1000 ids", "", "spec.selector={eventIDs: "+list(1000, "019a2d4e-7c31-7b52-9a0f-%012d")+"}"),
		replay("1001 ids", "spec.selector.eventIDs: must have at most 1000 items", "spec.selector={eventIDs: "+list(1001, "019a2d4e-7c31-7b52-9a0f-%012d")+"}"),
		replay("id", "spec.selector.eventIDs[0]: must be an event's ID, a UUID", "spec.selector={eventIDs: [019a2d4e]}"),
		replay("id without dashes", "spec.selector.eventIDs[0]: must be an event's ID, a UUID", "spec.selector={eventIDs: [019a2d4e7c317b529a0f3f1c5d7e9b24]}"),
		replay("id twice", "spec.selector.eventIDs[1]: stands twice in the list", "spec.selector={eventIDs: ["+id+", "+id+"]}"),
		replay("destination name", "spec.selector.destinations[0]: must be the name of a destination", "spec.selector.destinations=[A]"),
		replay("33 destinations", "spec.selector.destinations: must have at most 32 items", "spec.selector.destinations="+list(33, "d%d")),
		replay("no states", "spec.selector.states: should have at least 1 items", "spec.selector.states=[]"),
		replay("state", `spec.selector.states[0]: unknown value "Pending"`, "spec.selector.states=[Pending]"),
		replay("window open", "", "spec.selector={receivedAfter: '2026-01-01T00:00:00Z'}"),
		replay("window", "", "spec.selector={receivedAfter: '2026-01-01T00:00:00Z', receivedBefore: '2026-01-01T00:00:01Z'}"),
		replay("window in two zones", "", "spec.selector={receivedAfter: '2026-01-01T09:00:00+09:00', receivedBefore: '2026-01-01T00:00:01Z'}"),
		replay("window empty", "spec.selector.receivedBefore: must be later than receivedAfter", "spec.selector={receivedAfter: '2026-01-01T00:00:00Z', receivedBefore: '2026-01-01T00:00:00Z'}"),
		replay("window inverted", "spec.selector.receivedBefore: must be later than receivedAfter", "spec.selector={receivedAfter: '2026-01-02T00:00:00Z', receivedBefore: '2026-01-01T00:00:00Z'}"),
		replay("time", "spec.selector.receivedAfter: must be of type date-time", "spec.selector={receivedAfter: yesterday}"),
		replay("missing", "", "spec.selector={states: [Missing], destinations: [a]}"),
		replay("missing and the rest", "", "spec.selector={states: [Missing, Dead, Done], destinations: [a]}"),
		replay("missing anywhere", "spec.selector.destinations: is required with the state Missing", "spec.selector={states: [Missing], types: [push]}"),
		replay("missing at none", "spec.selector.destinations: is required with the state Missing", "spec.selector={states: [Missing], types: [push], destinations: []}"),
		replay("all that is missing", "spec.selector.destinations: is required with the state Missing", "spec.selector={states: [Missing], match: All}"),
		replay("missing for a reason", "spec.selector.reasons: goes with states: [Dead] only", "spec.selector={states: [Missing], destinations: [a], reasons: [PermanentStatus]}"),
		replay("missing by status", "spec.selector.lastStatuses: cannot stand beside the state Missing", "spec.selector={states: [Missing], destinations: [a], lastStatuses: ['503']}"),
		replay("missing by no status", "", "spec.selector={states: [Missing], destinations: [a], lastStatuses: []}"),
		replay("reasons", "", "spec.selector={reasons: [PermanentStatus, AttemptsExhausted, OutcomeUnknown, PayloadMissing]}"),
		replay("reason", `spec.selector.reasons[0]: unknown value "HTTPStatus"`, "spec.selector={reasons: [HTTPStatus]}"),
		replay("reason twice", "spec.selector.reasons[1]: stands twice in the list", "spec.selector={reasons: [PermanentStatus, PermanentStatus]}"),
		replay("reasons of the dead", "", "spec.selector={reasons: [PermanentStatus], states: [Dead]}"),
		replay("reasons of the done", "spec.selector.reasons: goes with states: [Dead] only", "spec.selector={reasons: [PermanentStatus], states: [Done]}"),
		replay("reasons of both", "spec.selector.reasons: goes with states: [Dead] only", "spec.selector={reasons: [PermanentStatus], states: [Dead, Done]}"),
		replay("no reasons, of the done", "", "spec.selector={reasons: [], types: [push], states: [Done]}"),
		replay("all with reasons", "spec.selector.match: cannot stand beside other criteria", "spec.selector={match: All, reasons: [PermanentStatus]}"),
		replay("statuses", "", "spec.selector={lastStatuses: ['503', '4xx', '599', '100']}"),
		replay("statuses of the done", "", "spec.selector={lastStatuses: ['2xx'], states: [Done]}"),
		replay("32 statuses", "", "spec.selector={lastStatuses: "+list(32, "'4%02d'")+"}"),
		replay("33 statuses", "spec.selector.lastStatuses: must have at most 32 items", "spec.selector={lastStatuses: "+list(33, "'4%02d'")+"}"),
		replay("status as a number", "spec.selector.lastStatuses[0]: must be of type string", "spec.selector={lastStatuses: [503]}"),
		replay("status", "spec.selector.lastStatuses[0]: must be an HTTP status code", "spec.selector={lastStatuses: ['600']}"),
		replay("short status", "spec.selector.lastStatuses[0]: must be an HTTP status code", "spec.selector={lastStatuses: ['5']}"),
		replay("long status", "spec.selector.lastStatuses[0]: may not be more than 3", "spec.selector={lastStatuses: ['5000']}"),
		replay("half a class", "spec.selector.lastStatuses[0]: must be an HTTP status code", "spec.selector={lastStatuses: ['50x']}"),
		replay("class in capitals", "spec.selector.lastStatuses[0]: must be an HTTP status code", "spec.selector={lastStatuses: ['5XX']}"),
		replay("status twice", "spec.selector.lastStatuses[1]: stands twice in the list", "spec.selector={lastStatuses: ['503', '503']}"),
		replay("all with statuses", "spec.selector.match: cannot stand beside other criteria", "spec.selector={match: All, lastStatuses: ['503']}"),
		replay("empty lists about deaths", "spec.selector: must have at least one of", "spec.selector={reasons: [], lastStatuses: []}"),
		replay("died after", "", "spec.selector={diedAfter: '2026-01-01T00:00:00Z'}"),
		replay("died before", "", "spec.selector={diedBefore: '2026-01-01T00:00:00Z', states: [Dead]}"),
		replay("died in a window", "", "spec.selector={diedAfter: '2026-01-01T00:00:00Z', diedBefore: '2026-01-01T00:00:01Z'}"),
		replay("died in an empty window", "spec.selector.diedBefore: must be later than diedAfter", "spec.selector={diedAfter: '2026-01-01T00:00:00Z', diedBefore: '2026-01-01T00:00:00Z'}"),
		replay("died in an inverted window", "spec.selector.diedBefore: must be later than diedAfter", "spec.selector={diedAfter: '2026-01-02T00:00:00Z', diedBefore: '2026-01-01T00:00:00Z'}"),
		replay("done that died after", "spec.selector.diedAfter: goes with states: [Dead] only", "spec.selector={diedAfter: '2026-01-01T00:00:00Z', states: [Done]}"),
		replay("done that died before", "spec.selector.diedBefore: goes with states: [Dead] only", "spec.selector={diedBefore: '2026-01-01T00:00:00Z', states: [Dead, Done]}"),
		replay("all that died after", "spec.selector.match: cannot stand beside other criteria", "spec.selector={match: All, diedAfter: '2026-01-01T00:00:00Z'}"),
		replay("all that died before", "spec.selector.match: cannot stand beside other criteria", "spec.selector={match: All, diedBefore: '2026-01-01T00:00:00Z'}"),
		replay("limit 1", "", "spec.limit=1"),
		replay("limit 0", "spec.limit: should be greater than or equal to 1", "spec.limit=0"),
		replay("dry run", "", "spec.mode=DryRun"),
		replay("mode", `spec.mode: unknown value "dryRun"`, "spec.mode=dryRun"),
		replay("rate 1", "", "spec.maxPerSecond=1"),
		replay("rate 0", "spec.maxPerSecond: should be greater than or equal to 1", "spec.maxPerSecond=0"),
		replay("rate 10000", "", "spec.maxPerSecond=10000"),
		replay("rate 10001", "spec.maxPerSecond: should be less than or equal to 10000", "spec.maxPerSecond=10001"),
		replay("suspended", "", "spec.suspend=true"),
		replay("suspend as a text", "spec.suspend: must be of type boolean", "spec.suspend='true'"),
		replay("ttl 0", "", "spec.ttlSecondsAfterFinished=0"),
		replay("ttl -1", "spec.ttlSecondsAfterFinished: should be greater than or equal to 0", "spec.ttlSecondsAfterFinished=-1"),
		replay("ttl of a year", "", "spec.ttlSecondsAfterFinished=31536000"),
		replay("ttl beyond a year", "spec.ttlSecondsAfterFinished: should be less than or equal to 31536000", "spec.ttlSecondsAfterFinished=31536001"),
		replay("status is dropped", "", "status={matched: -5}"),
		replay("status of unknown shape", "status.done: unknown field", "status={done: 1}"),
	}
}

// resources are rows about a pod's compute resources.
func resources(path string) []row {
	at := func(name, want, value string) row { return endpoint(path+" "+name, want, path+"="+value) }
	return []row{
		at("empty", "", "{}"),
		at("full", "", "{requests: {cpu: 100m, memory: 64Mi, ephemeral-storage: 1Gi}, limits: {cpu: 1, memory: 128Mi, ephemeral-storage: 2Gi}}"),
		at("only limits", "", "{limits: {memory: 128Mi}}"),
		at("equal", "", "{requests: {memory: 1Gi}, limits: {memory: 1024Mi}}"),
		at("unlimited", "", "{requests: {cpu: 2}, limits: {memory: 1Gi}}"),
		at("above its limit", path+".requests: must not exceed limits", "{requests: {memory: 1025Mi}, limits: {memory: 1Gi}}"),
		at("number above its limit", path+".requests: must not exceed limits", "{requests: {cpu: 2}, limits: {cpu: 1900m}}"),
		at("request of another kind", path+".requests: can hold cpu, memory and ephemeral-storage only", "{requests: {nvidia.com/gpu: 1}}"),
		at("limit of another kind", path+".limits: can hold cpu, memory and ephemeral-storage only", "{limits: {hugepages-2Mi: 4Mi}}"),
		at("claims", path+".claims: unknown field", "{claims: []}"),
	}
}

// list writes a YAML list of n items made with format from their numbers.
func list(n int, format string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(format, i)
	}
	return "[" + strings.Join(items, ", ") + "]"
}

func TestRules(t *testing.T) {
	var refusals strings.Builder
	for _, row := range append(endpointRows(), replayRows()...) {
		t.Run(row.name, func(t *testing.T) {
			_, err := read(edit(t, row.base, row.set...))
			switch {
			case row.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case row.want != "" && err == nil:
				t.Errorf("accepted, want an error with %q", row.want)
			case row.want != "":
				if !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("error: %v\nwant one line with %q", err, row.want)
				}
				refusals.WriteString(err.Error() + "\n")
			}
		})
	}
	for _, message := range messages(t) {
		// The rule of transitions is no rule for new objects; see
		// TestReplaySpecIsImmutable.
		if !strings.Contains(refusals.String(), message) && !strings.HasPrefix(message, "cannot be changed") {
			t.Errorf("no row is refused by the rule with the message %q", message)
		}
	}
}

// messages returns the messages of all rules in the embedded definitions.
func messages(t *testing.T) []string {
	t.Helper()
	files, err := fs.Glob(crd.Bases, "bases/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	var walk func(node any)
	walk = func(node any) {
		switch node := node.(type) {
		case []any:
			for _, child := range node {
				walk(child)
			}
		case map[string]any:
			if rules, ok := node["x-kubernetes-validations"].([]any); ok {
				for _, rule := range rules {
					message, _ := rule.(map[string]any)["message"].(string)
					if message == "" {
						t.Errorf("a rule has no message: %v", rule)
					}
					found = append(found, message)
				}
			}
			for _, child := range node {
				walk(child)
			}
		}
	}
	for _, file := range files {
		data, err := fs.ReadFile(crd.Bases, file)
		if err != nil {
			t.Fatal(err)
		}
		var content any
		if err := yaml.Unmarshal(data, &content); err != nil {
			t.Fatal(err)
		}
		walk(content)
	}
	if len(found) < 20 {
		t.Fatalf("found only %d rules", len(found))
	}
	return found
}
