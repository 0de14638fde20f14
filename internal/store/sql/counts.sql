-- Deliveries by destination and state, and for how long the oldest one that
-- is due has been waiting. Reads sums and one index entry per destination,
-- never the backlog. Arguments: namespaces, endpoints, destinations.
WITH want AS MATERIALIZED (
    SELECT w.n, d.id
    FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS w(namespace, endpoint, destination, n)
    JOIN endpoint e ON e.namespace = w.namespace AND e.name = w.endpoint
    JOIN destination d ON d.endpoint_id = e.id AND d.name = w.destination
), counted AS MATERIALIZED (
    SELECT destination_id, state, sum(n) AS n
    FROM (SELECT * FROM tally UNION ALL SELECT * FROM tally_delta) AS t
    GROUP BY 1, 2
)
SELECT w.n,
       coalesce(sum(c.n) FILTER (WHERE c.state = 'pending'), 0)::bigint,
       coalesce(sum(c.n) FILTER (WHERE c.state = 'claimed'), 0)::bigint,
       coalesce(sum(c.n) FILTER (WHERE c.state = 'failed'), 0)::bigint,
       coalesce(sum(c.n) FILTER (WHERE c.state = 'dead'), 0)::bigint,
       greatest(extract(epoch FROM now() - (
           SELECT d.next_at FROM delivery d WHERE d.destination_id = w.id ORDER BY d.next_at, d.event_id LIMIT 1
       )), 0)::float8
FROM want w LEFT JOIN counted c ON c.destination_id = w.id
GROUP BY w.n, w.id
