-- Heartbeat: extends leases that still hold. Arguments: the tokens, sorted,
-- and the lease of each in milliseconds. Returns the tokens that it extended.
-- On + 0 see complete.sql; the array keeps the planner from reading the table.
WITH held AS MATERIALIZED (
    SELECT r.*
    FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[], $5::bigint[]) AS r(event_id, destination_id, run, attempt, lease)
    CROSS JOIN LATERAL (
        SELECT 1 FROM delivery d
        WHERE d.event_id = r.event_id AND d.destination_id + 0 = r.destination_id AND d.run = r.run
          AND d.attempt = r.attempt AND d.state = 'claimed'
        LIMIT 1
        FOR UPDATE
    ) AS d
)
UPDATE delivery d SET next_at = now() + h.lease * interval '1 millisecond'
FROM held h
WHERE d.event_id = ANY (ARRAY(SELECT event_id FROM held))
  AND d.event_id = h.event_id AND d.destination_id + 0 = h.destination_id AND d.run = h.run
  AND d.attempt = h.attempt AND d.state = 'claimed'
RETURNING d.event_id, d.destination_id, d.run, d.attempt
