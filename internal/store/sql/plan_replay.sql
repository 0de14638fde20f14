-- What a replay will take: frozen here, so that what dies later is no part of
-- it. One run per event and destination: the latest.
-- $1 replay, $2,$3 endpoint, $4 states, $5 destinations, $6 types, $7 events,
-- $8 received at or after, $9 received before, $10 limit; NULL: any.
-- $11,$12 the replay's own namespace and name, $13 spec.
-- Returns whether the replay is new; one that is there is not planned again.
WITH created AS (
    INSERT INTO replay (id, namespace, name, endpoint_id, spec, planned_at)
    SELECT $1, $11, $12, e.id, $13, now() FROM endpoint e WHERE e.namespace = $2 AND e.name = $3
    ON CONFLICT (id) DO NOTHING
    RETURNING id
), names AS MATERIALIZED (
    SELECT d.id
    FROM endpoint e JOIN destination d ON d.endpoint_id = e.id
    WHERE e.namespace = $2 AND e.name = $3 AND ($5::text[] IS NULL OR d.name = ANY ($5))
), candidate AS (
    SELECT l.event_id, l.destination_id, l.run
    FROM dead_letter l
    WHERE 'Dead' = ANY ($4::text[]) AND l.replayed_by IS NULL
      AND l.destination_id IN (SELECT id FROM names)
      AND ($7::uuid[] IS NULL OR l.event_id = ANY ($7))
    UNION ALL
    SELECT s.event_id, s.destination_id, s.run
    FROM settled s
    WHERE 'Done' = ANY ($4::text[])
      AND s.destination_id IN (SELECT id FROM names)
      AND ($7::uuid[] IS NULL OR s.event_id = ANY ($7))
      AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.event_id = s.event_id AND d.destination_id + 0 = s.destination_id)
      AND NOT EXISTS (SELECT 1 FROM dead_letter l WHERE l.event_id = s.event_id AND l.destination_id = s.destination_id AND l.run > s.run)
      AND NOT EXISTS (SELECT 1 FROM settled t WHERE t.event_id = s.event_id AND t.destination_id = s.destination_id AND t.run > s.run)
), planned AS (
    INSERT INTO replay_item (replay_id, event_id, destination_id, run, state)
    SELECT $1, c.event_id, c.destination_id, c.run, 'planned'
    FROM candidate c
    LEFT JOIN LATERAL (
        SELECT e.type, e.received_at FROM event e WHERE e.id = c.event_id
        UNION ALL
        SELECT h.type, h.received_at FROM held_event h WHERE h.id = c.event_id
        LIMIT 1
    ) AS e ON true
    WHERE EXISTS (SELECT FROM created)
      AND ($6::text[] IS NULL OR e.type = ANY ($6))
      AND ($8::timestamptz IS NULL OR e.received_at >= $8)
      AND ($9::timestamptz IS NULL OR e.received_at < $9)
    ORDER BY c.event_id, c.destination_id
    LIMIT $10
)
SELECT EXISTS (SELECT FROM created)
