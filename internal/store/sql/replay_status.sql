SELECT r.planned_at, r.completed_at,
       i.matched, i.queued, i.skipped, i.already_pending, i.payload_purged, i.purged, i.taken,
       coalesce(r.succeeded, (SELECT count(*) FROM settled s WHERE s.replay_id = r.id)),
       coalesce(r.dead, (SELECT count(*) FROM dead_letter l WHERE l.replay_id = r.id)),
       d.open, d.failed,
       ARRAY(SELECT DISTINCT i.event_id FROM replay_item i WHERE i.replay_id = r.id ORDER BY i.event_id LIMIT 20)
FROM replay r
CROSS JOIN LATERAL (
    SELECT count(*) AS matched, count(*) FILTER (WHERE state = 'queued') AS queued, count(*) FILTER (WHERE state = 'skipped') AS skipped,
           count(*) FILTER (WHERE skip_reason = 'AlreadyPending') AS already_pending,
           count(*) FILTER (WHERE skip_reason = 'PayloadPurged') AS payload_purged,
           count(*) FILTER (WHERE skip_reason = 'Purged') AS purged,
           count(*) FILTER (WHERE skip_reason = 'TakenByAnotherReplay') AS taken
    FROM replay_item i WHERE i.replay_id = r.id
) AS i
CROSS JOIN LATERAL (
    SELECT count(*) AS open, count(*) FILTER (WHERE state = 'failed') AS failed FROM delivery d WHERE d.replay_id = r.id
) AS d
WHERE r.id = $1
