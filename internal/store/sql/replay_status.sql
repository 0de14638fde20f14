SELECT r.planned_at, r.completed_at,
       i.matched, i.queued, i.skipped,
       coalesce(r.succeeded, (SELECT count(*) FROM settled s WHERE s.replay_id = r.id)),
       coalesce(r.dead, (SELECT count(*) FROM dead_letter l WHERE l.replay_id = r.id)),
       d.open, d.failed
FROM replay r
CROSS JOIN LATERAL (
    SELECT count(*) AS matched, count(*) FILTER (WHERE state = 'queued') AS queued, count(*) FILTER (WHERE state = 'skipped') AS skipped
    FROM replay_item i WHERE i.replay_id = r.id
) AS i
CROSS JOIN LATERAL (
    SELECT count(*) AS open, count(*) FILTER (WHERE state = 'failed') AS failed FROM delivery d WHERE d.replay_id = r.id
) AS d
WHERE r.id = $1
