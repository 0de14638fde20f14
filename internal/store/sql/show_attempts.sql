-- The ledger of an event. An attempt without an outcome is running while its
-- delivery is claimed with it, and unknown otherwise.
SELECT d.name, a.run, a.attempt, a.worker, a.started_at,
       coalesce(o.ended_at, s.settled_at),
       CASE WHEN o.verdict IS NOT NULL THEN o.verdict
            WHEN s.attempt IS NOT NULL THEN 'done'
            WHEN c.attempt IS NOT NULL THEN 'running'
            ELSE 'unknown' END,
       coalesce(o.status, s.status), coalesce(o.latency_ms, s.latency_ms), coalesce(o.error_class, ''), coalesce(o.error, ''), coalesce(o.excerpt, '')
FROM attempt a
JOIN destination d ON d.id = a.destination_id
LEFT JOIN outcome o ON o.event_id = a.event_id AND o.destination_id = a.destination_id AND o.run = a.run AND o.attempt = a.attempt
LEFT JOIN settled s ON s.event_id = a.event_id AND s.destination_id = a.destination_id AND s.run = a.run AND s.attempt = a.attempt
LEFT JOIN delivery c ON c.event_id = a.event_id AND c.destination_id = a.destination_id AND c.run = a.run AND c.attempt = a.attempt AND c.state = 'claimed'
WHERE a.event_id = $1
ORDER BY d.name, a.run, a.attempt
