-- Copies that nothing needs any more.
DELETE FROM held_event h
WHERE NOT EXISTS (SELECT 1 FROM delivery d WHERE d.event_id = h.id)
  AND NOT EXISTS (SELECT 1 FROM dead_letter d WHERE d.event_id = h.id)
  AND h.expires_at <= now()
