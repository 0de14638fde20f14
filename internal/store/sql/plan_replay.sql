-- After select_replay.sql: freezes what a replay takes, so that what dies
-- later is no part of it.
-- $14 replay, $15,$16 its own namespace and name, $17 spec.
-- Returns whether the replay is new; one that is there is not planned again.
, created AS (
    INSERT INTO replay (id, namespace, name, endpoint_id, spec, planned_at)
    SELECT $14, $15, $16, e.id, $17, now() FROM endpoint e WHERE e.namespace = $1 AND e.name = $2
    ON CONFLICT (id) DO NOTHING
    RETURNING id
), planned AS (
    INSERT INTO replay_item (replay_id, event_id, destination_id, run, state)
    SELECT $14, event_id, destination_id, run, 'planned'
    FROM selected
    WHERE EXISTS (SELECT FROM created)
)
SELECT EXISTS (SELECT FROM created)
