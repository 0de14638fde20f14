-- After select_replay.sql: how many deliveries a replay would take, and when
-- that was so. No row: the endpoint is unknown.
SELECT now(), (SELECT count(*) FROM selected)
FROM endpoint e WHERE e.namespace = $1 AND e.name = $2
