-- After select_replay.sql: how many deliveries a replay would match, for how
-- many of them the endpoint has no destination any more, the oldest events of
-- them, and when that was so. $14 destinations that the endpoint has (NULL:
-- not known). No row: the endpoint is unknown.
SELECT now(), (SELECT count(*) FROM selected),
       (SELECT count(*) FROM selected s JOIN destination d ON d.id = s.destination_id WHERE d.name <> ALL ($14::text[])),
       ARRAY(SELECT DISTINCT event_id FROM selected ORDER BY event_id LIMIT 20)
FROM endpoint e WHERE e.namespace = $1 AND e.name = $2
