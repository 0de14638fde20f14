-- +goose Up

-- Nothing may die, be taken up or be purged between the counting and the
-- moment from which the trigger counts.
LOCK TABLE dead_letter IN SHARE ROW EXCLUSIVE MODE;

-- The dead letter that waits the longest, and those that are purged next.
CREATE INDEX IF NOT EXISTS dead_letter_died_at ON dead_letter (destination_id, died_at) WHERE replayed_by IS NULL;
CREATE INDEX IF NOT EXISTS dead_letter_purge ON dead_letter (destination_id, expires_at) WHERE replayed_by IS NULL;

-- Dead letters that nobody has taken up are counted by reason too, as the
-- states 'dead/<reason>'. Binaries that do not know these fold them, and count
-- the state 'dead' as before.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION tally_dead_letter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO tally_delta
        SELECT destination_id, s.state, count(*)
        FROM new_rows, unnest(ARRAY['dead', 'dead/' || reason]) AS s(state)
        WHERE replayed_by IS NULL GROUP BY 1, 2;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO tally_delta
        SELECT destination_id, s.state, -count(*)
        FROM old_rows, unnest(ARRAY['dead', 'dead/' || reason]) AS s(state)
        WHERE replayed_by IS NULL GROUP BY 1, 2;
    ELSE
        INSERT INTO tally_delta
        SELECT destination_id, s.state, sum(n)
        FROM (SELECT destination_id, reason, 1 AS n FROM new_rows WHERE replayed_by IS NULL
              UNION ALL
              SELECT destination_id, reason, -1 FROM old_rows WHERE replayed_by IS NULL) AS change,
             unnest(ARRAY['dead', 'dead/' || reason]) AS s(state)
        GROUP BY 1, 2 HAVING sum(n) <> 0;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

DELETE FROM tally WHERE state LIKE 'dead/%';
DELETE FROM tally_delta WHERE state LIKE 'dead/%';
INSERT INTO tally_delta
SELECT destination_id, 'dead/' || reason, count(*) FROM dead_letter WHERE replayed_by IS NULL GROUP BY 1, 2;
