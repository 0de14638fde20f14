-- After select_replay.sql: how many deliveries a replay would take, the oldest
-- events of them, and when that was so. No row: the endpoint is unknown.
SELECT now(), (SELECT count(*) FROM selected),
       ARRAY(SELECT DISTINCT event_id FROM selected ORDER BY event_id LIMIT 20)
FROM endpoint e WHERE e.namespace = $1 AND e.name = $2
