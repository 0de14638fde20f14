-- +goose Up

-- A destination has two lanes: runs of replays wait behind everything else
-- that is due. As an expression, which no other index has, so that nothing can
-- talk the planner into looking for one lane by reading the other. Binaries
-- that do not know it go on with delivery_due.
CREATE INDEX IF NOT EXISTS delivery_lane ON delivery ((2 * destination_id + (replay_id IS NOT NULL)::int), next_at, event_id);
