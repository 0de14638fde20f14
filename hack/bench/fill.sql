-- Fills a queue with $4 deliveries of as many events, in the order of their
-- ids, as an ingress' clock makes them. $1, $2, $3 name the destination, $5 is
-- the body, $6 a time in milliseconds, the last one is due $7 from now.
WITH names AS MATERIALIZED (
    SELECT e.id AS endpoint_id, d.id AS destination_id
    FROM endpoint e JOIN destination d ON d.endpoint_id = e.id
    WHERE e.namespace = $1 AND e.name = $2 AND d.name = $3
), made AS MATERIALIZED (
    SELECT n, (lpad(to_hex($6::bigint + n / 10), 12, '0') || '7' || left(h, 3) || '8' || substr(h, 4, 15))::uuid AS id
    FROM generate_series(1, $4::bigint) AS n, LATERAL md5($6::bigint::text || n) AS h
), stored AS (
    INSERT INTO event (id, expires_at, received_at, endpoint_id, type, idempotency_key, content_type, trace_parent, headers, body)
    SELECT id, now() + interval '7 days', now(), endpoint_id, 'push', id::text, 'application/json', '',
           '{"User-Agent": ["GitHub-Hookshot/1"], "X-Github-Event": ["push"]}', $5::bytea
    FROM made, names
)
INSERT INTO delivery (event_id, destination_id, run, size, next_at, event_expires_at, state)
SELECT id, destination_id, 1, length($5::bytea), now() + $7::interval - ($4::bigint - n) * interval '1 microsecond', now() + interval '7 days', 'pending'
FROM made, names
