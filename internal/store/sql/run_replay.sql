-- Queues the next planned items of a replay as new runs, or says why not. Run
-- 0 was planned for what had none.
-- $1 replay, $2 most items, $3 destinations that the endpoint has (NULL: not
-- known). Under the lock that all replays share, so that no
-- other replay starts a run of the same delivery in the meantime. On + 0 see
-- complete.sql.
WITH picked AS MATERIALIZED (
    SELECT i.event_id, i.destination_id, i.run,
           (SELECT n.name FROM destination n WHERE n.id = i.destination_id) <> ALL ($3::text[]) IS TRUE AS gone
    FROM replay_item i
    WHERE i.replay_id = $1 AND i.state = 'planned'
    ORDER BY i.event_id, i.destination_id
    LIMIT $2
), judged AS MATERIALIZED (
    SELECT p.*, l.run IS NOT NULL AS was_dead, e.expires_at,
           coalesce(l.size, s.size, e.size, h.size) AS size, coalesce(l.event_expires_at, s.expires_at, h.expires_at) AS event_expires_at,
           CASE
               WHEN p.gone THEN 'DestinationGone'
               WHEN o.run IS NOT NULL THEN 'AlreadyPending'
               WHEN p.run > 0 AND l.run IS NULL AND s.run IS NULL THEN 'Purged'
               WHEN l.replayed_by IS NOT NULL OR n.run IS NOT NULL THEN 'TakenByAnotherReplay'
               WHEN e.id IS NULL AND h.id IS NULL THEN 'PayloadPurged'
               ELSE ''
           END AS skip
    FROM picked p
    LEFT JOIN LATERAL (
        SELECT * FROM dead_letter l
        WHERE l.event_id = p.event_id AND l.destination_id = p.destination_id AND l.run = p.run LIMIT 1
    ) AS l ON true
    LEFT JOIN LATERAL (
        SELECT * FROM settled s
        WHERE s.event_id = p.event_id AND s.destination_id = p.destination_id AND s.run = p.run LIMIT 1
    ) AS s ON true
    LEFT JOIN LATERAL (
        SELECT d.run FROM delivery d
        WHERE d.event_id = p.event_id AND d.destination_id + 0 = p.destination_id LIMIT 1
    ) AS o ON true
    LEFT JOIN LATERAL (
        SELECT x.run FROM (
            SELECT t.run FROM settled t WHERE t.event_id = p.event_id AND t.destination_id = p.destination_id AND t.run > p.run
            UNION ALL
            SELECT t.run FROM dead_letter t WHERE t.event_id = p.event_id AND t.destination_id = p.destination_id AND t.run > p.run
        ) AS x LIMIT 1
    ) AS n ON true
    LEFT JOIN LATERAL (SELECT e.id, e.expires_at, octet_length(e.body) AS size FROM event e WHERE e.id = p.event_id LIMIT 1) AS e ON true
    LEFT JOIN LATERAL (SELECT h.id, h.expires_at, octet_length(h.body) AS size FROM held_event h WHERE h.id = p.event_id LIMIT 1) AS h ON true
), kept AS (
    -- An event whose partition may go before this is committed, or at any
    -- moment, is copied first.
    INSERT INTO held_event
    SELECT DISTINCT ON (e.id) e.*
    FROM judged j JOIN event e ON e.id = j.event_id AND e.expires_at = j.expires_at
    WHERE j.skip = '' AND j.expires_at <= now() + interval '1 hour'
    ON CONFLICT DO NOTHING
), taken AS (
    UPDATE dead_letter l SET replayed_by = $1
    FROM judged j
    WHERE j.skip = '' AND j.was_dead
      AND l.event_id = j.event_id AND l.destination_id = j.destination_id AND l.run = j.run
), queued AS (
    INSERT INTO delivery (event_id, destination_id, run, size, next_at, event_expires_at, state, replay_id)
    SELECT event_id, destination_id, run + 1, size, now(), coalesce(expires_at, event_expires_at), 'pending', $1
    FROM judged WHERE skip = ''
), marked AS (
    UPDATE replay_item i
    SET state = CASE j.skip WHEN '' THEN 'queued' ELSE 'skipped' END, skip_reason = j.skip
    FROM judged j
    WHERE i.replay_id = $1 AND i.event_id = j.event_id AND i.destination_id = j.destination_id
)
SELECT count(*) FILTER (WHERE skip = ''), count(*) FILTER (WHERE skip <> '') FROM judged
