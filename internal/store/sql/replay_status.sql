SELECT r.planned_at, r.completed_at,
       i.matched, i.queued, i.skipped,
       coalesce(r.succeeded, (SELECT count(*) FROM settled s WHERE s.replay_id = r.id)),
       coalesce(r.dead, (SELECT count(*) FROM dead_letter l WHERE l.replay_id = r.id)),
       (SELECT count(*) FROM delivery d WHERE d.replay_id = r.id)
FROM replay r
CROSS JOIN LATERAL (
    SELECT count(*) AS matched, count(*) FILTER (WHERE state = 'queued') AS queued, count(*) FILTER (WHERE state = 'skipped') AS skipped
    FROM replay_item i WHERE i.replay_id = r.id
) AS i
WHERE r.id = $1
