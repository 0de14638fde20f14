-- The first events of idempotency keys that are taken. One by one: what
-- statistics say of the keys is wrong when it matters, and as a join the
-- planner may compare each with all of its endpoint's.
-- $1…$3  keys: namespace and name of the endpoint, digest
-- An answer about them promises what that about the first event did. A commit
-- that waited for a standby when its server or its session ended is there
-- without having reached one. Where standbys count, the rows are locked, which
-- is a write: its own commit waits until the standby has this and all before.
WITH durable AS MATERIALIZED (
    SELECT CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
                THEN set_config('synchronous_commit', 'on', true) END
), taken AS MATERIALIZED (
    SELECT w.n, e.id AS endpoint_id, w.key_digest
    FROM durable, unnest($1::text[], $2::text[], $3::bytea[]) WITH ORDINALITY AS w(namespace, name, key_digest, n)
    JOIN endpoint e ON e.namespace = w.namespace AND e.name = w.name
), replicated AS MATERIALIZED (
    SELECT 1
    FROM taken t CROSS JOIN LATERAL (
        SELECT 1 FROM dedup d WHERE d.endpoint_id = t.endpoint_id AND d.key_digest = t.key_digest LIMIT 1 FOR KEY SHARE
    ) AS d
    WHERE current_setting('synchronous_standby_names') <> ''
)
SELECT t.n, d.event_id, d.body_digest
FROM taken t CROSS JOIN LATERAL (
    SELECT * FROM dedup d WHERE d.endpoint_id = t.endpoint_id AND d.key_digest = t.key_digest LIMIT 1
) AS d
WHERE (SELECT count(*) FROM replicated) >= 0
