-- Commits a batch of events with everything that they owe, or nothing of it.
-- $1,$2  endpoints: namespace, name
-- $3,$4  destinations: position of the endpoint in $1 (from 1), name
-- $5…$8  what is owed: event, position of the destination, bytes of the body,
--        seconds to keep the event
-- $9…    events: position of the endpoint, id, key digest, body digest, key,
--        type, content type, trace parent, headers, body, seconds to keep the
--        event, seconds to keep the key
-- Keys are inserted in one order, so that two batches cannot deadlock, and of
-- several events with one key the first wins.
-- Returns whether all names are known (if not, nothing was written), and the
-- ids of the events that are new.
WITH durable AS MATERIALIZED (
    -- An answer promises that the event survives the server (I1), whatever
    -- the session's default is. remote_apply and the like are left alone.
    SELECT CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
                THEN set_config('synchronous_commit', 'on', true) END
), wanted_endpoint AS MATERIALIZED (
    SELECT w.n, e.id
    FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w(namespace, name, n)
    JOIN endpoint e ON e.namespace = w.namespace AND e.name = w.name
), wanted_destination AS MATERIALIZED (
    SELECT w.n, d.id
    FROM unnest($3::int[], $4::text[]) WITH ORDINALITY AS w(endpoint, name, n)
    JOIN wanted_endpoint e ON e.n = w.endpoint
    JOIN destination d ON d.endpoint_id = e.id AND d.name = w.name
), resolved AS MATERIALIZED (
    SELECT (SELECT count(*) FROM wanted_endpoint) = cardinality($1::text[])
       AND (SELECT count(*) FROM wanted_destination) = cardinality($4::text[]) AS ok
    FROM durable
), incoming AS MATERIALIZED (
    SELECT i.*, e.id AS endpoint_id, now() + i.keep * interval '1 second' AS expires_at
    FROM unnest($9::int[], $10::uuid[], $11::bytea[], $12::bigint[], $13::text[], $14::text[], $15::text[], $16::text[],
                $17::text[], $18::bytea[], $19::int[], $20::int[]) WITH ORDINALITY
         AS i(endpoint, event_id, key_digest, body_digest, key, type, content_type, trace_parent, headers, body, keep, dedup, n)
    JOIN wanted_endpoint e ON e.n = i.endpoint
    WHERE (SELECT ok FROM resolved)
), fresh AS (
    INSERT INTO dedup (endpoint_id, key_digest, event_id, body_digest, expires_at)
    SELECT endpoint_id, key_digest, event_id, body_digest, now() + dedup * interval '1 second'
    FROM incoming ORDER BY endpoint_id, key_digest, n
    ON CONFLICT (endpoint_id, key_digest) DO NOTHING
    RETURNING event_id
), stored AS (
    INSERT INTO event (id, expires_at, received_at, endpoint_id, type, idempotency_key, content_type, trace_parent, headers, body)
    SELECT event_id, expires_at, now(), endpoint_id, type, key, content_type, trace_parent, headers::jsonb, body
    FROM incoming
    -- A hashed subplan: as a join, which IS TRUE prevents, it would compare
    -- every row with every other one.
    WHERE (event_id IN (SELECT event_id FROM fresh)) IS TRUE
), owed AS (
    INSERT INTO delivery (event_id, destination_id, run, size, next_at, event_expires_at, state)
    SELECT o.event_id, d.id, 1, o.size, now(), now() + o.keep * interval '1 second', 'pending'
    FROM unnest($5::uuid[], $6::int[], $7::int[], $8::int[]) AS o(event_id, destination, size, keep)
    JOIN wanted_destination d ON d.n = o.destination
    WHERE (o.event_id IN (SELECT event_id FROM fresh)) IS TRUE
)
SELECT (SELECT ok FROM resolved), ARRAY(SELECT event_id FROM fresh)
