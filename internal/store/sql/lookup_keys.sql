-- The first events of idempotency keys that are taken.
SELECT w.n, d.event_id, d.body_digest
FROM unnest($1::text[], $2::text[], $3::bytea[]) WITH ORDINALITY AS w(namespace, name, key_digest, n)
JOIN endpoint e ON e.namespace = w.namespace AND e.name = w.name
JOIN dedup d ON d.endpoint_id = e.id AND d.key_digest = w.key_digest
