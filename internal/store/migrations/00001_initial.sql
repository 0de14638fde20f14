-- +goose Up

-- Names of endpoints and destinations, so that the hot tables carry integers.
-- Rows are never deleted: an endpoint that is applied again is the same one.
CREATE TABLE endpoint (
    id        int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text NOT NULL,
    name      text NOT NULL,
    UNIQUE (namespace, name)
);

CREATE TABLE destination (
    id          int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint_id int  NOT NULL REFERENCES endpoint,
    name        text NOT NULL,
    UNIQUE (endpoint_id, name)
);

-- What was accepted: written once, never updated. A row lies in the partition
-- of the day on which it may go, so retention is DROP TABLE whatever the
-- endpoints' periods are.
CREATE TABLE event (
    id              uuid        NOT NULL,
    expires_at      timestamptz NOT NULL,
    received_at     timestamptz NOT NULL,
    endpoint_id     int         NOT NULL,
    type            text        NOT NULL,
    idempotency_key text        NOT NULL,
    content_type    text        NOT NULL,
    trace_parent    text        NOT NULL,
    headers         jsonb       NOT NULL,
    body            bytea       NOT NULL
) PARTITION BY RANGE (expires_at);
CREATE INDEX event_id ON event (id);
CREATE TABLE event_default PARTITION OF event DEFAULT;

-- Events that are needed for longer than their partition stands: by dead
-- letters, and by deliveries that are still open.
CREATE TABLE held_event (LIKE event, PRIMARY KEY (id));

-- One row per idempotency key inside its window. Not partitioned: a unique
-- key on a partitioned table would hold within one partition only.
CREATE TABLE dedup (
    endpoint_id int         NOT NULL,
    key_digest  bytea       NOT NULL,
    event_id    uuid        NOT NULL,
    body_digest bigint      NOT NULL,
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (endpoint_id, key_digest)
);
CREATE INDEX dedup_expires_at ON dedup (expires_at);

-- What is owed and not terminal. Narrow and hot. next_at is when the delivery
-- may be claimed: its first or next attempt, or the end of its lease.
CREATE TABLE delivery (
    event_id         uuid        NOT NULL,
    destination_id   int         NOT NULL,
    run              int         NOT NULL CHECK (run >= 1),
    attempt          int         NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    released         int         NOT NULL DEFAULT 0 CHECK (released BETWEEN 0 AND attempt),
    size             int         NOT NULL,
    next_at          timestamptz NOT NULL CHECK (next_at < 'infinity'),
    event_expires_at timestamptz NOT NULL,
    state            text        NOT NULL CHECK (state IN ('pending', 'claimed', 'failed')),
    replay_id        uuid,
    PRIMARY KEY (event_id, destination_id, run)
) WITH (
    fillfactor = 75,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX delivery_due ON delivery (destination_id, next_at, event_id);
CREATE INDEX delivery_replay ON delivery (replay_id) WHERE replay_id IS NOT NULL;

-- Deliveries in state dead. replayed_by names the replay that took the dead
-- letter up again; one that is NULL still waits for somebody to look.
CREATE TABLE dead_letter (
    event_id         uuid        NOT NULL,
    destination_id   int         NOT NULL,
    run              int         NOT NULL,
    attempt          int         NOT NULL,
    attempts         int         NOT NULL,
    size             int         NOT NULL,
    event_expires_at timestamptz NOT NULL,
    reason           text        NOT NULL CHECK (reason <> ''),
    last_status      int,
    error_class      text        NOT NULL,
    last_error       text        NOT NULL,
    died_at          timestamptz NOT NULL,
    expires_at       timestamptz NOT NULL,
    replay_id        uuid,
    replayed_by      uuid,
    PRIMARY KEY (event_id, destination_id, run)
);
CREATE INDEX dead_letter_open ON dead_letter (destination_id, event_id) WHERE replayed_by IS NULL;
CREATE INDEX dead_letter_expires_at ON dead_letter (expires_at);
CREATE INDEX dead_letter_replay ON dead_letter (replay_id) WHERE replay_id IS NOT NULL;

-- Deliveries in state done, with the outcome of their last attempt.
CREATE TABLE settled (
    event_id       uuid        NOT NULL,
    destination_id int         NOT NULL,
    run            int         NOT NULL,
    attempt        int         NOT NULL,
    attempts       int         NOT NULL,
    size           int         NOT NULL,
    status         int         NOT NULL,
    latency_ms     int         NOT NULL,
    settled_at     timestamptz NOT NULL,
    expires_at     timestamptz NOT NULL,
    replay_id      uuid
) PARTITION BY RANGE (expires_at);
CREATE INDEX settled_event ON settled (event_id);
CREATE INDEX settled_replay ON settled (replay_id) WHERE replay_id IS NOT NULL;
CREATE TABLE settled_default PARTITION OF settled DEFAULT;

-- The ledger: an intent is written by the claim's own commit, before the
-- request leaves; an attempt with neither an outcome nor a row in settled
-- ended in a way that nobody saw.
CREATE TABLE attempt (
    event_id       uuid        NOT NULL,
    destination_id int         NOT NULL,
    run            int         NOT NULL,
    attempt        int         NOT NULL,
    started_at     timestamptz NOT NULL,
    expires_at     timestamptz NOT NULL,
    worker         text        NOT NULL
) PARTITION BY RANGE (expires_at);
CREATE INDEX attempt_event ON attempt (event_id);
CREATE TABLE attempt_default PARTITION OF attempt DEFAULT;

-- Outcomes of attempts that did not end in settled.
CREATE TABLE outcome (
    event_id       uuid        NOT NULL,
    destination_id int         NOT NULL,
    run            int         NOT NULL,
    attempt        int         NOT NULL,
    verdict        text        NOT NULL CHECK (verdict IN ('failed', 'dead', 'released')),
    status         int,
    latency_ms     int         NOT NULL,
    error_class    text        NOT NULL,
    error          text        NOT NULL,
    excerpt        text        NOT NULL,
    ended_at       timestamptz NOT NULL,
    expires_at     timestamptz NOT NULL
) PARTITION BY RANGE (expires_at);
CREATE INDEX outcome_event ON outcome (event_id);
CREATE TABLE outcome_default PARTITION OF outcome DEFAULT;

-- Counts by destination and state. Every statement that changes delivery or
-- dead_letter appends its difference, which no other statement waits for;
-- the differences are folded into the sums now and then.
CREATE TABLE tally (
    destination_id int    NOT NULL,
    state          text   NOT NULL,
    n              bigint NOT NULL,
    PRIMARY KEY (destination_id, state)
);
CREATE TABLE tally_delta (
    destination_id int    NOT NULL,
    state          text   NOT NULL,
    n              bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- +goose StatementBegin
CREATE FUNCTION tally_delivery() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO tally_delta
        SELECT destination_id, state, count(*) FROM new_rows GROUP BY 1, 2;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO tally_delta
        SELECT destination_id, state, -count(*) FROM old_rows GROUP BY 1, 2;
    ELSE
        INSERT INTO tally_delta
        SELECT destination_id, state, sum(n)
        FROM (SELECT destination_id, state, 1 AS n FROM new_rows
              UNION ALL
              SELECT destination_id, state, -1 FROM old_rows) AS change
        GROUP BY 1, 2 HAVING sum(n) <> 0;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER tally_insert AFTER INSERT ON delivery
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION tally_delivery();
CREATE TRIGGER tally_update AFTER UPDATE ON delivery
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION tally_delivery();
CREATE TRIGGER tally_delete AFTER DELETE ON delivery
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION tally_delivery();

-- +goose StatementBegin
CREATE FUNCTION tally_dead_letter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO tally_delta
        SELECT destination_id, 'dead', count(*) FROM new_rows WHERE replayed_by IS NULL GROUP BY 1;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO tally_delta
        SELECT destination_id, 'dead', -count(*) FROM old_rows WHERE replayed_by IS NULL GROUP BY 1;
    ELSE
        INSERT INTO tally_delta
        SELECT destination_id, 'dead', sum(n)
        FROM (SELECT destination_id, 1 AS n FROM new_rows WHERE replayed_by IS NULL
              UNION ALL
              SELECT destination_id, -1 FROM old_rows WHERE replayed_by IS NULL) AS change
        GROUP BY 1 HAVING sum(n) <> 0;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER tally_insert AFTER INSERT ON dead_letter
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION tally_dead_letter();
CREATE TRIGGER tally_update AFTER UPDATE ON dead_letter
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION tally_dead_letter();
CREATE TRIGGER tally_delete AFTER DELETE ON dead_letter
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION tally_dead_letter();

-- Replays, and what each of them planned to take. An item belongs to one
-- replay once, which is what makes a replay repeatable.
CREATE TABLE replay (
    id           uuid        PRIMARY KEY,
    namespace    text        NOT NULL,
    name         text        NOT NULL,
    endpoint_id  int         NOT NULL REFERENCES endpoint,
    spec         text        NOT NULL,
    planned_at   timestamptz NOT NULL,
    completed_at timestamptz,
    succeeded    bigint,
    dead         bigint
);
CREATE TABLE replay_item (
    replay_id      uuid NOT NULL REFERENCES replay ON DELETE CASCADE,
    event_id       uuid NOT NULL,
    destination_id int  NOT NULL,
    run            int  NOT NULL,
    state          text NOT NULL CHECK (state IN ('planned', 'queued', 'skipped')),
    skip_reason    text NOT NULL DEFAULT '',
    PRIMARY KEY (replay_id, event_id, destination_id)
);
CREATE INDEX replay_item_planned ON replay_item (replay_id, event_id, destination_id) WHERE state = 'planned';

-- Housekeeping that one process does for all: whoever moves due_at does it.
CREATE TABLE chore (
    name   text        PRIMARY KEY,
    due_at timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO chore (name) VALUES ('partitions'), ('purge'), ('tally');

-- Makes the partition of one UTC day. Rows of that day that came before it
-- lie in the default partition and are moved, so a partition that is made
-- late costs nothing but time.
-- +goose StatementBegin
CREATE FUNCTION create_partition(parent text, day date) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    child text := format('%s_%s', parent, to_char(day, 'YYYYMMDD'));
    lo timestamptz := day::timestamp AT TIME ZONE 'UTC';
    hi timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
BEGIN
    -- Not to_regclass: it may answer from a cache older than the lock that
    -- the caller waited for.
    IF EXISTS (SELECT FROM pg_class WHERE relname = child AND relnamespace = current_schema()::regnamespace) THEN
        RETURN false;
    END IF;
    -- Everybody waits for the parent, before they look which partitions there
    -- are. Who knew them already and then waited for the default partition
    -- would, as a writer, be refused by its new bounds, and as a reader miss
    -- the rows that were moved.
    EXECUTE format('LOCK TABLE ONLY %I IN ACCESS EXCLUSIVE MODE', parent);
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', parent || '_default');
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', child, parent);
    EXECUTE format('WITH moved AS (DELETE FROM %I WHERE expires_at >= %L AND expires_at < %L RETURNING *)
                    INSERT INTO %I SELECT * FROM moved', parent || '_default', lo, hi, child);
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, child, lo, hi);
    RETURN true;
END
$$;
-- +goose StatementEnd

-- The daily partitions of a table whose day is over.
CREATE FUNCTION expired_partitions(parent text) RETURNS SETOF text LANGUAGE sql STABLE AS $$
    SELECT c.relname::text
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = to_regclass(format('%I', parent))
      AND c.relname ~ ('^' || parent || '_[0-9]{8}$')
      AND to_date(right(c.relname, 8), 'YYYYMMDD') < (now() AT TIME ZONE 'UTC')::date
    ORDER BY 1
$$;

-- Copies what is still needed out of an event partition that is about to go.
-- Whatever may be needed is open or dead by then: new deliveries of an event
-- arise from dead letters, or take a copy of the event themselves.
-- +goose StatementBegin
CREATE FUNCTION hold_events(child text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    held bigint;
BEGIN
    EXECUTE format('INSERT INTO held_event
                    SELECT e.* FROM %I e
                    WHERE e.expires_at <= now()
                      AND (EXISTS (SELECT 1 FROM delivery d WHERE d.event_id = e.id)
                           OR EXISTS (SELECT 1 FROM dead_letter d WHERE d.event_id = e.id))
                    ON CONFLICT DO NOTHING', child);
    GET DIAGNOSTICS held = ROW_COUNT;
    RETURN held;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION drop_partition(child text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('DROP TABLE IF EXISTS %I', child);
END
$$;
-- +goose StatementEnd

-- Large bodies are compressed with lz4 where the server has it: a tenth of
-- the cost of pglz.
-- +goose StatementBegin
DO $$
BEGIN
    ALTER TABLE event ALTER COLUMN body SET COMPRESSION lz4;
    ALTER TABLE held_event ALTER COLUMN body SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN
    NULL;
END
$$;
-- +goose StatementEnd

-- For people: every delivery in every state, with its names.
CREATE VIEW delivery_state AS
SELECT en.namespace, en.name AS endpoint, de.name AS destination,
       d.event_id, d.run, d.state, d.attempts, d.next_at, d.ended_at,
       d.reason, d.last_status, d.error_class, d.last_error, d.size, d.replay_id, d.replayed_by
FROM (
    SELECT event_id, destination_id, run, state, attempt - released AS attempts, next_at,
           NULL::timestamptz AS ended_at, NULL::text AS reason, NULL::int AS last_status,
           NULL::text AS error_class, NULL::text AS last_error, size, replay_id, NULL::uuid AS replayed_by
    FROM delivery
    UNION ALL
    SELECT event_id, destination_id, run, 'dead', attempts, NULL, died_at, reason, last_status,
           error_class, last_error, size, replay_id, replayed_by
    FROM dead_letter
    UNION ALL
    SELECT event_id, destination_id, run, 'done', attempts, NULL, settled_at, NULL, status,
           NULL, NULL, size, replay_id, NULL
    FROM settled
) AS d
JOIN destination de ON de.id = d.destination_id
JOIN endpoint en ON en.id = de.endpoint_id;
