-- What a claim carries of one event ($1), wherever it lies.
SELECT received_at, type, content_type, trace_parent, body, extract(epoch FROM now() - received_at)::float8
FROM event WHERE id = $1
UNION ALL
SELECT received_at, type, content_type, trace_parent, body, extract(epoch FROM now() - received_at)::float8
FROM held_event WHERE id = $1
LIMIT 1
