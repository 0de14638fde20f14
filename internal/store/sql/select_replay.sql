-- What a replay takes: the start of every statement that plans or counts, so
-- that both say the same. One run per event and destination: the latest.
-- $1,$2 endpoint, $3 states, $4 destinations, $5 types, $6 events,
-- $7 received at or after, $8 received before, $9 limit, $10 reasons,
-- $11 last statuses, $12 died at or after, $13 died before; NULL: any.
WITH names AS MATERIALIZED (
    SELECT d.id
    FROM endpoint e JOIN destination d ON d.endpoint_id = e.id
    WHERE e.namespace = $1 AND e.name = $2 AND ($4::text[] IS NULL OR d.name = ANY ($4))
), candidate AS (
    SELECT l.event_id, l.destination_id, l.run
    FROM dead_letter l
    WHERE 'Dead' = ANY ($3::text[]) AND l.replayed_by IS NULL
      AND l.destination_id IN (SELECT id FROM names)
      AND ($6::uuid[] IS NULL OR l.event_id = ANY ($6))
      AND ($10::text[] IS NULL OR l.reason = ANY ($10))
      AND ($11::int[] IS NULL OR l.last_status = ANY ($11))
      AND ($12::timestamptz IS NULL OR l.died_at >= $12)
      AND ($13::timestamptz IS NULL OR l.died_at < $13)
    UNION ALL
    SELECT s.event_id, s.destination_id, s.run
    FROM settled s
    WHERE 'Done' = ANY ($3::text[])
      AND s.destination_id IN (SELECT id FROM names)
      AND ($6::uuid[] IS NULL OR s.event_id = ANY ($6))
      AND ($11::int[] IS NULL OR s.status = ANY ($11))
      -- What is done has neither a reason nor died.
      AND $10::text[] IS NULL AND $12::timestamptz IS NULL AND $13::timestamptz IS NULL
      AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.event_id = s.event_id AND d.destination_id + 0 = s.destination_id)
      AND NOT EXISTS (SELECT 1 FROM dead_letter l WHERE l.event_id = s.event_id AND l.destination_id = s.destination_id AND l.run > s.run)
      AND NOT EXISTS (SELECT 1 FROM settled t WHERE t.event_id = s.event_id AND t.destination_id = s.destination_id AND t.run > s.run)
    UNION ALL
    -- No trace of any run, so the next one is the first. The ledger stays when
    -- a dead letter is purged.
    SELECT e.id, n.id, 0
    FROM endpoint p JOIN event e ON e.endpoint_id = p.id CROSS JOIN names n
    WHERE 'Missing' = ANY ($3::text[]) AND p.namespace = $1 AND p.name = $2
      AND ($6::uuid[] IS NULL OR e.id = ANY ($6))
      -- What was never sent has no end.
      AND $10::text[] IS NULL AND $11::int[] IS NULL AND $12::timestamptz IS NULL AND $13::timestamptz IS NULL
      AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.event_id = e.id AND d.destination_id + 0 = n.id)
      AND NOT EXISTS (SELECT 1 FROM dead_letter l WHERE l.event_id = e.id AND l.destination_id = n.id)
      AND NOT EXISTS (SELECT 1 FROM settled t WHERE t.event_id = e.id AND t.destination_id = n.id)
      AND NOT EXISTS (SELECT 1 FROM attempt a WHERE a.event_id = e.id AND a.destination_id = n.id)
), selected AS (
    SELECT c.event_id, c.destination_id, c.run
    FROM candidate c
    LEFT JOIN LATERAL (
        SELECT e.type, e.received_at FROM event e WHERE e.id = c.event_id
        UNION ALL
        SELECT h.type, h.received_at FROM held_event h WHERE h.id = c.event_id
        LIMIT 1
    ) AS e ON true
    WHERE ($5::text[] IS NULL OR e.type = ANY ($5))
      AND ($7::timestamptz IS NULL OR e.received_at >= $7)
      AND ($8::timestamptz IS NULL OR e.received_at < $8)
    ORDER BY c.event_id, c.destination_id
    LIMIT $9
)
