-- Claims what is due, for many destinations at once.
-- $1       worker
-- $2,$3,$4 destinations: namespace, endpoint, destination
-- $5…      for each: most rows, bytes of bodies with which it has enough, lease
--          in milliseconds, most attempts, seconds to keep the ledger, the
--          earliest next_at to look from, the same for runs of replays, and
--          how many of the most rows are not for these
-- $13      whether to read the events: one that is damaged fails the statement
-- Runs of replays come after what is due without one, however long that has
-- waited: both are found in the index delivery_lane.
-- Returns, beside the delivery and its event (a NULL time: it is gone), the
-- event's age in seconds and the greatest next_at that was claimed for the
-- destination, of replays or of all else as the delivery is, from which the
-- next call may look.
-- An expired lease is simply due again. A delivery whose attempts are used up
-- is claimed too, so that its last owner is fenced off, but marked exhausted
-- and without an intent: it must not be sent, and does not count.
WITH durable AS MATERIALIZED (
    SELECT CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
                THEN set_config('synchronous_commit', 'on', true) END
), want AS MATERIALIZED (
    SELECT w.*, d.id AS destination_id
    FROM durable, unnest($2::text[], $3::text[], $4::text[], $5::int[], $6::bigint[], $7::bigint[], $8::int[], $9::int[], $10::timestamptz[],
                        $11::timestamptz[], $12::int[])
         WITH ORDINALITY AS w(namespace, endpoint, destination, most, bytes, lease, attempts, keep, since, since_replays, reserved, n)
    JOIN endpoint e ON e.namespace = w.namespace AND e.name = w.endpoint
    JOIN destination d ON d.endpoint_id = e.id AND d.name = w.destination
), live AS MATERIALIZED (
    SELECT w.bytes, false AS replayed, d.*
    FROM want w CROSS JOIN LATERAL (
        SELECT d.ctid AS tid, d.event_id, d.destination_id, d.run, d.next_at, d.size,
               d.attempt - d.released >= w.attempts AS exhausted
        FROM delivery d
        WHERE 2 * d.destination_id + (d.replay_id IS NOT NULL)::int = 2 * w.destination_id AND d.next_at <= now() AND d.next_at >= w.since
        ORDER BY d.next_at, d.event_id
        LIMIT w.most
        FOR UPDATE SKIP LOCKED
    ) AS d
), replayed AS MATERIALIZED (
    SELECT w.bytes, true AS replayed, d.*
    FROM want w CROSS JOIN LATERAL (
        SELECT d.ctid AS tid, d.event_id, d.destination_id, d.run, d.next_at, d.size,
               d.attempt - d.released >= w.attempts AS exhausted
        FROM delivery d
        WHERE 2 * d.destination_id + (d.replay_id IS NOT NULL)::int = 2 * w.destination_id + 1 AND d.next_at <= now() AND d.next_at >= w.since_replays
        ORDER BY d.next_at, d.event_id
        LIMIT greatest(w.most - greatest(w.reserved, (SELECT count(*) FROM live l WHERE l.destination_id = w.destination_id)), 0)
        FOR UPDATE SKIP LOCKED
    ) AS d
), fits AS MATERIALIZED (
    SELECT * FROM (
        SELECT *, sum(size) OVER (PARTITION BY destination_id ORDER BY replayed, next_at, event_id) - size AS before
        FROM (SELECT * FROM live UNION ALL SELECT * FROM replayed) AS due
    ) AS d
    WHERE before = 0 OR before < bytes
), seen AS MATERIALIZED (
    -- Once for each lane, not for each delivery.
    SELECT destination_id, replayed, max(next_at) AS next_at FROM fits GROUP BY 1, 2
), claimed AS (
    -- By tuple id: the rows are locked, and no statistics can talk the
    -- planner into reading the table, or (+ 0) an index of it.
    UPDATE delivery d
    SET state = 'claimed', attempt = d.attempt + 1, next_at = now() + w.lease * interval '1 millisecond',
        released = d.released + CASE WHEN d.attempt - d.released >= w.attempts THEN 1 ELSE 0 END
    FROM want w
    WHERE d.ctid = ANY (ARRAY(SELECT tid FROM fits)) AND w.destination_id = d.destination_id + 0
    RETURNING w.n, w.keep, d.event_id, d.destination_id, d.run, d.attempt, d.attempt - d.released AS attempts,
              (d.event_id, d.destination_id, d.run) IN (SELECT event_id, destination_id, run FROM fits WHERE exhausted) AS exhausted,
              d.event_expires_at, d.replay_id
), intent AS (
    INSERT INTO attempt (event_id, destination_id, run, attempt, started_at, expires_at, worker)
    SELECT event_id, destination_id, run, attempt, now(), now() + keep * interval '1 second', $1
    FROM claimed WHERE NOT exhausted
)
SELECT c.n, c.event_id, c.destination_id, c.run, c.attempt, c.attempts, c.exhausted,
       c.exhausted AND EXISTS (
           SELECT 1 FROM outcome o
           WHERE o.event_id = c.event_id AND o.destination_id = c.destination_id AND o.run = c.run AND o.attempt = c.attempt - 1
       ), c.replay_id,
       coalesce(e.received_at, h.received_at), coalesce(e.type, h.type, ''), coalesce(e.content_type, h.content_type, ''),
       coalesce(e.trace_parent, h.trace_parent, ''), coalesce(e.body, h.body),
       coalesce(extract(epoch FROM now() - coalesce(e.received_at, h.received_at)), 0)::float8,
       (SELECT next_at FROM seen WHERE seen.destination_id = c.destination_id AND seen.replayed = (c.replay_id IS NOT NULL))
FROM claimed c
LEFT JOIN LATERAL (
    SELECT * FROM event e WHERE $13 AND e.expires_at = c.event_expires_at AND e.id = c.event_id LIMIT 1
) AS e ON true
LEFT JOIN LATERAL (
    SELECT * FROM held_event h WHERE $13 AND e.id IS NULL AND h.id = c.event_id LIMIT 1
) AS h ON true
