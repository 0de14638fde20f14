SELECT e.id, en.namespace, en.name, e.idempotency_key, e.type, e.content_type, e.trace_parent, e.headers, e.body, e.received_at
FROM (SELECT * FROM event WHERE id = $1 UNION ALL SELECT * FROM held_event WHERE id = $1 LIMIT 1) AS e
JOIN endpoint en ON en.id = e.endpoint_id
