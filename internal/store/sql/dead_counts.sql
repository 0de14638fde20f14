-- Dead letters that no replay has taken up: by destination and reason, when
-- the first of them died, and how many are purged soon. Destinations without
-- any are left out. Reads sums, one index entry per destination, and those
-- that are purged soon; neither the backlog nor the other dead letters.
-- $1,$2 endpoints: namespaces, names; $3 seconds that are soon for each.
WITH want AS MATERIALIZED (
    SELECT e.namespace, e.name AS endpoint, d.id, d.name, now() + w.soon * interval '1 second' AS soon
    FROM unnest($1::text[], $2::text[], $3::int[]) AS w(namespace, name, soon)
    JOIN endpoint e ON e.namespace = w.namespace AND e.name = w.name
    JOIN destination d ON d.endpoint_id = e.id
), counted AS MATERIALIZED (
    SELECT destination_id, substr(state, 6) AS reason, sum(n)::bigint AS n
    FROM (SELECT * FROM tally UNION ALL SELECT * FROM tally_delta) AS t
    WHERE state LIKE 'dead/%'
    GROUP BY 1, 2 HAVING sum(n) > 0
), reasons AS MATERIALIZED (
    SELECT destination_id, json_object_agg(reason, n) AS by_reason FROM counted GROUP BY 1
)
SELECT w.namespace, w.endpoint, w.name, r.by_reason, o.died_at, coalesce(extract(epoch FROM now() - o.died_at), 0)::float8,
       p.n, p.first, p.last
FROM want w
JOIN reasons r ON r.destination_id = w.id
LEFT JOIN LATERAL (
    SELECT l.died_at FROM dead_letter l
    WHERE l.destination_id = w.id AND l.replayed_by IS NULL
    ORDER BY l.died_at LIMIT 1
) AS o ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS n, min(x.expires_at) AS first, max(x.expires_at) AS last
    FROM (
        SELECT l.expires_at FROM dead_letter l
        WHERE l.destination_id = w.id AND l.replayed_by IS NULL AND l.expires_at <= w.soon
        ORDER BY l.expires_at
    ) AS x
) AS p
ORDER BY 1, 2, 3
