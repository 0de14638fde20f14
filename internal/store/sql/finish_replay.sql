-- Freezes the result of a replay whose runs have all ended.
UPDATE replay r
SET completed_at = now(),
    succeeded = (SELECT count(*) FROM settled s WHERE s.replay_id = r.id),
    dead = (SELECT count(*) FROM dead_letter l WHERE l.replay_id = r.id)
WHERE r.id = $1 AND r.completed_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM replay_item i WHERE i.replay_id = r.id AND i.state = 'planned')
  AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.replay_id = r.id)
