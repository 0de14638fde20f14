SELECT r.planned_at, r.completed_at,
       i.matched, i.queued, i.skipped, i.already_pending, i.payload_purged, i.purged, i.taken, i.gone,
       coalesce(r.succeeded, (SELECT count(*) FROM settled s WHERE s.replay_id = r.id)),
       coalesce(r.dead, (SELECT count(*) FROM dead_letter l WHERE l.replay_id = r.id)),
       d.open, d.failed, d.by_destination,
       ARRAY(SELECT DISTINCT i.event_id FROM replay_item i WHERE i.replay_id = r.id ORDER BY i.event_id LIMIT 20)
FROM replay r
CROSS JOIN LATERAL (
    SELECT count(*) AS matched, count(*) FILTER (WHERE state = 'queued') AS queued, count(*) FILTER (WHERE state = 'skipped') AS skipped,
           count(*) FILTER (WHERE skip_reason = 'AlreadyPending') AS already_pending,
           count(*) FILTER (WHERE skip_reason = 'PayloadPurged') AS payload_purged,
           count(*) FILTER (WHERE skip_reason = 'Purged') AS purged,
           count(*) FILTER (WHERE skip_reason = 'TakenByAnotherReplay') AS taken,
           count(*) FILTER (WHERE skip_reason = 'DestinationGone') AS gone
    FROM replay_item i WHERE i.replay_id = r.id
) AS i
CROSS JOIN LATERAL (
    SELECT coalesce(sum(d.open), 0)::bigint AS open, coalesce(sum(d.failed), 0)::bigint AS failed,
           json_agg(json_build_object('destination', n.name, 'open', d.open, 'failed', d.failed) ORDER BY n.name) AS by_destination
    FROM (
        SELECT destination_id, count(*) AS open, count(*) FILTER (WHERE state = 'failed') AS failed
        FROM delivery WHERE replay_id = r.id GROUP BY 1
    ) AS d
    JOIN destination n ON n.id = d.destination_id
) AS d
WHERE r.id = $1
