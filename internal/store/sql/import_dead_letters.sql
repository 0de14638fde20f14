-- Puts dead letters of another database here, with their events, or says why
-- not: what there is any trace of already stays as it is.
-- $1…$4   the delivery: event, namespace, endpoint, destination
-- $5…$11  run, attempts, reason, last status, error class, error, died at
-- $12…$20 the event: received at, type, key, key digest, body digest, content
--         type, trace parent, headers, body
-- $21,$22 seconds to keep dead letters and idempotency keys
-- $23     whether to write, or only to judge
-- Under the lock that all replays share, so that no run of the same delivery
-- arises, and no copy of an event is purged, in the meantime.
-- Returns for each row, in order: new, known (a trace of it is here),
-- taken (another event here has its idempotency key), or conflict (another
-- event here has its id). Where there is a conflict, nothing is written.
WITH durable AS MATERIALIZED (
    SELECT CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
                THEN set_config('synchronous_commit', 'on', true) END
), line AS MATERIALIZED (
    SELECT l.*, e.id AS endpoint_id, d.id AS destination_id
    FROM durable, unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::int[], $6::int[], $7::text[], $8::int[], $9::text[], $10::text[],
                         $11::timestamptz[], $12::timestamptz[], $13::text[], $14::text[], $15::bytea[], $16::bigint[], $17::text[], $18::text[],
                         $19::text[], $20::bytea[]) WITH ORDINALITY
         AS l(event_id, namespace, endpoint, destination, run, attempts, reason, last_status, error_class, error,
              died_at, received_at, type, key, key_digest, body_digest, content_type, trace_parent, headers, body, n)
    LEFT JOIN endpoint e ON e.namespace = l.namespace AND e.name = l.endpoint
    LEFT JOIN destination d ON d.endpoint_id = e.id AND d.name = l.destination
), judged AS MATERIALIZED (
    SELECT l.*, CASE
        WHEN x.endpoint_id IS NOT NULL AND (x.endpoint_id IS DISTINCT FROM l.endpoint_id OR x.body <> l.body) THEN 'conflict'
        WHEN EXISTS (SELECT FROM delivery d WHERE d.event_id = l.event_id AND d.destination_id + 0 = l.destination_id)
          OR EXISTS (SELECT FROM dead_letter d WHERE d.event_id = l.event_id AND d.destination_id = l.destination_id)
          OR EXISTS (SELECT FROM settled s WHERE s.event_id = l.event_id AND s.destination_id = l.destination_id)
          OR row_number() OVER (PARTITION BY l.event_id, l.namespace, l.endpoint, l.destination ORDER BY l.n) > 1 THEN 'known'
        WHEN l.key <> '' AND (
             EXISTS (SELECT FROM dedup k WHERE k.endpoint_id = l.endpoint_id AND k.key_digest = l.key_digest AND k.event_id <> l.event_id)
             OR first_value(l.event_id) OVER (PARTITION BY l.namespace, l.endpoint, l.key ORDER BY l.n) <> l.event_id) THEN 'taken'
        ELSE 'new' END AS verdict
    FROM line l
    LEFT JOIN LATERAL (
        SELECT e.endpoint_id, e.body FROM event e WHERE e.id = l.event_id
        UNION ALL
        SELECT h.endpoint_id, h.body FROM held_event h WHERE h.id = l.event_id
        LIMIT 1
    ) AS x ON true
), fresh AS MATERIALIZED (
    SELECT * FROM judged WHERE verdict = 'new' AND $23::boolean AND NOT EXISTS (SELECT FROM judged WHERE verdict = 'conflict')
), held AS (
    -- Also where the event is here: its partition may go at any moment.
    INSERT INTO held_event (id, expires_at, received_at, endpoint_id, type, idempotency_key, content_type, trace_parent, headers, body)
    SELECT DISTINCT ON (event_id) event_id, now() + $21::int * interval '1 second', received_at, endpoint_id, type, key, content_type, trace_parent, headers::jsonb, body
    FROM fresh ORDER BY event_id, n
    ON CONFLICT DO NOTHING
), keys AS (
    -- What the sender sends again is a duplicate here too.
    INSERT INTO dedup (endpoint_id, key_digest, event_id, body_digest, expires_at)
    SELECT DISTINCT ON (endpoint_id, key_digest) endpoint_id, key_digest, event_id, body_digest, now() + $22::int * interval '1 second'
    FROM fresh WHERE key <> '' ORDER BY endpoint_id, key_digest, n
    ON CONFLICT DO NOTHING
), dead AS (
    INSERT INTO dead_letter (event_id, destination_id, run, attempt, attempts, size, event_expires_at, reason, last_status,
                             error_class, last_error, died_at, expires_at)
    SELECT event_id, destination_id, run, attempts, attempts, octet_length(body), now() + $21::int * interval '1 second', reason, last_status,
           error_class, error, died_at, now() + $21::int * interval '1 second'
    FROM fresh ORDER BY event_id, destination_id
)
SELECT verdict FROM judged ORDER BY n
