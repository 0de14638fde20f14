-- A page of the dead letters that no replay has taken up and that match, the
-- oldest events first, with their events.
-- $1 namespace, $2 endpoint, $3 destination, $4 types, $5 reasons; NULL: any.
-- $6,$7,$8 after this event, destination and run
-- $9 most rows, $10 bytes of bodies with which a page has enough
WITH names AS MATERIALIZED (
    SELECT d.id, en.namespace, en.name AS endpoint, d.name AS destination
    FROM destination d JOIN endpoint en ON en.id = d.endpoint_id
    WHERE ($1::text IS NULL OR en.namespace = $1) AND ($2::text IS NULL OR en.name = $2) AND ($3::text IS NULL OR d.name = $3)
), page AS MATERIALIZED (
    SELECT l.*
    FROM dead_letter l
    WHERE l.replayed_by IS NULL AND l.destination_id IN (SELECT id FROM names)
      AND (l.event_id, l.destination_id, l.run) > ($6::uuid, $7::int, $8::int)
      AND ($5::text[] IS NULL OR l.reason = ANY ($5))
      AND ($4::text[] IS NULL OR EXISTS (
          SELECT FROM event e WHERE e.id = l.event_id AND e.type = ANY ($4)
          UNION ALL
          SELECT FROM held_event e WHERE e.id = l.event_id AND e.type = ANY ($4)))
    ORDER BY l.event_id, l.destination_id, l.run
    LIMIT $9
), fits AS MATERIALIZED (
    SELECT * FROM (
        SELECT *, sum(size) OVER (ORDER BY event_id, destination_id, run) - size AS before FROM page
    ) AS p
    WHERE before = 0 OR before < $10::bigint
)
SELECT f.event_id, f.destination_id, f.run, n.namespace, n.endpoint, n.destination, f.attempts, f.died_at, f.reason, f.last_status,
       f.error_class, f.last_error, f.replay_id, f.size,
       e.received_at, coalesce(e.type, ''), coalesce(e.idempotency_key, ''), coalesce(e.content_type, ''), coalesce(e.trace_parent, ''), e.headers, e.body
FROM fits f
JOIN names n ON n.id = f.destination_id
LEFT JOIN LATERAL (
    SELECT * FROM event WHERE id = f.event_id
    UNION ALL
    SELECT * FROM held_event WHERE id = f.event_id
    LIMIT 1
) AS e ON true
ORDER BY f.event_id, f.destination_id, f.run
