-- Folds the differences into the sums.
WITH folded AS (
    DELETE FROM tally_delta RETURNING destination_id, state, n
)
INSERT INTO tally (destination_id, state, n)
SELECT destination_id, state, sum(n) FROM folded GROUP BY 1, 2 ORDER BY 1, 2
ON CONFLICT (destination_id, state) DO UPDATE SET n = tally.n + excluded.n
