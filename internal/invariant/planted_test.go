package invariant_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ackrail/ackrail/internal/invariant"
	"github.com/ackrail/ackrail/internal/pipeline"
)

// Every bug is caught by the invariant that it breaks. The traffic is that of TestNothingIsViolated, which is clean.
func TestPlantedBugs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		breaks string
		// follow are invariants that cannot hold either.
		follow []string
		bug    pieces
	}{
		{"an answer before the commit", invariant.I1, nil, pieces{enqueuer: answerEarly("plain-3")}},
		{"an event that is not owed to all", invariant.I1, nil, pieces{enqueuer: owesLess("plain-3")}},
		{"a key that does not stay", invariant.I2, nil, pieces{schema: forgetfulKeys}},
		{"a key that the last one takes", invariant.I2, nil, pieces{schema: lastBodyWins}},
		{"a delivery that ends nowhere", invariant.I3, nil, pieces{store: lose("plain-3")}},
		{"a request before its claim", invariant.I4, nil, pieces{store: hasty("plain-3")}},
		{"an intent that is not written", invariant.I4, []string{invariant.I8}, pieces{schema: withoutIntents("plain-3")}},
		{"a success without a request", invariant.I4, nil, pieces{sender: pretend}},
		{"a ledger that says another status", invariant.I4, nil, pieces{sender: misquote}},
		{"outcomes without a fence", invariant.I5, []string{invariant.I3, invariant.I4}, pieces{store: unfenced}},
		{"the same attempt twice", invariant.I5, []string{invariant.I4}, pieces{schema: stutter("plain-3")}},
		{"one attempt more than allowed", invariant.I7, nil, pieces{store: stubborn}},
		{"an infinite wait", invariant.I7, nil, pieces{schema: endless}},
		{"a replay that takes again", invariant.I8, nil, pieces{replays: repeat}},
		{"a ledger that a replay replaces", invariant.I8, []string{invariant.I4}, pieces{replays: forgetEarlierRuns}},
		{"a worker's own clock, late", invariant.I9, []string{invariant.I5}, pieces{store: stamp("-1 hour")}},
		{"a worker's own clock, early", invariant.I9, []string{invariant.I4, invariant.I5}, pieces{store: stamp("1 hour")}},
		{"housekeeping that drops what is held", invariant.I10, nil, pieces{store: tidyUp}},
		{"a body that is encoded anew when it comes", invariant.I11, []string{invariant.I2}, pieces{enqueuer: reencodeIn}},
		{"a body that is encoded anew when it goes", invariant.I11, nil, pieces{sender: reencodeOut}},
		{"a missing verifier that accepts", invariant.I12, nil, pieces{ingress: acceptAll}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, tc.bug)
			r.traffic()
			v := r.check()
			if err := v.Err(); err != nil {
				t.Log(err)
			}
			if !slices.Contains(v.Broken(), tc.breaks) {
				t.Errorf("%v are broken, want %s", v.Broken(), tc.breaks)
			}
			for _, broken := range v.Broken() {
				if broken != tc.breaks && !slices.Contains(tc.follow, broken) {
					t.Errorf("%s is broken, which does not follow", broken)
				}
			}
		})
	}
}

// forgetfulKeys removes a key as soon as it is used again.
const forgetfulKeys = `
CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM dedup WHERE endpoint_id = NEW.endpoint_id AND key_digest = NEW.key_digest;
    RETURN NEW;
END $$;
CREATE TRIGGER forget BEFORE INSERT ON dedup FOR EACH ROW EXECUTE FUNCTION forget()`

// lastBodyWins replaces an event's body by that of a request with its key.
const lastBodyWins = `
CREATE FUNCTION replace_body() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE event SET body = convert_to('{"wish": "refused"}', 'UTF8') WHERE idempotency_key = 'plain-1';
    RETURN NULL;
END $$;
CREATE TRIGGER replace_body AFTER INSERT ON dedup FOR EACH STATEMENT EXECUTE FUNCTION replace_body()`

// endless has what is held wait for ever.
const endless = `
ALTER TABLE delivery DROP CONSTRAINT delivery_next_at_check;
CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM destination d JOIN endpoint e ON e.id = d.endpoint_id WHERE d.id = NEW.destination_id AND e.name = 'held') THEN
        NEW.next_at := 'infinity';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER wait BEFORE INSERT ON delivery FOR EACH ROW EXECUTE FUNCTION wait()`

// withoutIntents leaves the attempts at an event out of the ledger.
func withoutIntents(key string) string {
	return fmt.Sprintf(`
CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE WHEN EXISTS (SELECT FROM event WHERE id = NEW.event_id AND idempotency_key = '%s') THEN NULL ELSE NEW END;
END $$;
CREATE TRIGGER skip BEFORE INSERT ON attempt_default FOR EACH ROW EXECUTE FUNCTION skip()`, key)
}

// stutter has two claims of an event get the same attempt: a fence that lets both through.
func stutter(key string) string {
	return fmt.Sprintf(`
CREATE FUNCTION stutter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO attempt SELECT NEW.event_id, NEW.destination_id, NEW.run, NEW.attempt, NEW.started_at, NEW.expires_at, 'worker-3'
    FROM event WHERE id = NEW.event_id AND idempotency_key = '%s' AND NEW.worker <> 'worker-3';
    RETURN NULL;
END $$;
CREATE TRIGGER stutter AFTER INSERT ON attempt_default FOR EACH ROW EXECUTE FUNCTION stutter()`, key)
}

// acceptAll takes an endpoint whose verifier is not there for one that needs none.
func acceptAll(c *pipeline.Config) {
	c.Endpoints[0].Verification = pipeline.Verification{Provider: pipeline.ProviderNone}
	c.Endpoints[0].Identity.IdempotencyKeyHeader = "X-GitHub-Delivery"
}
