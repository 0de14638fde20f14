-- The newest deliveries that match, newest first.
-- $1 namespace, $2 endpoint, $3 destination, $4 states, $5 types, $6 limit;
-- NULL: any. Of the dead letters, the state dead selects those that no replay
-- has taken up.
WITH names AS MATERIALIZED (
    SELECT d.id, en.namespace, en.name AS endpoint, d.name AS destination
    FROM destination d JOIN endpoint en ON en.id = d.endpoint_id
    WHERE ($1::text IS NULL OR en.namespace = $1) AND ($2::text IS NULL OR en.name = $2) AND ($3::text IS NULL OR d.name = $3)
), found AS (
    (SELECT d.event_id, d.destination_id, d.run, d.state, d.attempt - d.released AS attempts, d.next_at,
            NULL::timestamptz AS ended_at, '' AS reason, NULL::int AS last_status, '' AS error_class, '' AS last_error,
            d.replay_id, NULL::uuid AS replayed_by, d.size, e.type, e.received_at
     FROM delivery d LEFT JOIN LATERAL (
         SELECT type, received_at FROM event WHERE id = d.event_id
         UNION ALL SELECT type, received_at FROM held_event WHERE id = d.event_id LIMIT 1) AS e ON true
     WHERE d.destination_id IN (SELECT id FROM names) AND ($4::text[] IS NULL OR d.state = ANY ($4)) AND ($5::text[] IS NULL OR e.type = ANY ($5))
     ORDER BY d.event_id DESC, d.destination_id, d.run DESC LIMIT $6)
    UNION ALL
    (SELECT d.event_id, d.destination_id, d.run, 'dead', d.attempts, NULL, d.died_at, d.reason, d.last_status, d.error_class,
            d.last_error, d.replay_id, d.replayed_by, d.size, e.type, e.received_at
     FROM dead_letter d LEFT JOIN LATERAL (
         SELECT type, received_at FROM event WHERE id = d.event_id
         UNION ALL SELECT type, received_at FROM held_event WHERE id = d.event_id LIMIT 1) AS e ON true
     WHERE d.destination_id IN (SELECT id FROM names) AND ($4::text[] IS NULL OR 'dead' = ANY ($4) AND d.replayed_by IS NULL) AND ($5::text[] IS NULL OR e.type = ANY ($5))
     ORDER BY d.event_id DESC, d.destination_id, d.run DESC LIMIT $6)
    UNION ALL
    (SELECT d.event_id, d.destination_id, d.run, 'done', d.attempts, NULL, d.settled_at, '', d.status, '',
            '', d.replay_id, NULL, d.size, e.type, e.received_at
     FROM settled d LEFT JOIN LATERAL (
         SELECT type, received_at FROM event WHERE id = d.event_id
         UNION ALL SELECT type, received_at FROM held_event WHERE id = d.event_id LIMIT 1) AS e ON true
     WHERE d.destination_id IN (SELECT id FROM names) AND ($4::text[] IS NULL OR 'done' = ANY ($4)) AND ($5::text[] IS NULL OR e.type = ANY ($5))
     ORDER BY d.event_id DESC, d.destination_id, d.run DESC LIMIT $6)
)
SELECT f.event_id, n.namespace, n.endpoint, n.destination, f.run, f.state, f.attempts, f.next_at, f.ended_at, f.reason,
       coalesce(f.last_status, o.status), coalesce(nullif(f.error_class, ''), o.error_class, ''), coalesce(nullif(f.last_error, ''), o.error, ''),
       f.replay_id, f.replayed_by, f.size, coalesce(f.type, ''), f.received_at
FROM found f
JOIN names n ON n.id = f.destination_id
LEFT JOIN LATERAL (
    -- What the last attempt of an open delivery met.
    SELECT o.status, o.error_class, o.error FROM outcome o
    WHERE f.ended_at IS NULL AND o.event_id = f.event_id AND o.destination_id = f.destination_id AND o.run = f.run
    ORDER BY o.attempt DESC LIMIT 1
) AS o ON true
ORDER BY f.event_id DESC, f.destination_id, f.run DESC
LIMIT $6
