-- A chore that failed is tried again before its next time. $1 name,
-- $2 milliseconds.
UPDATE chore SET due_at = least(due_at, now() + $2 * interval '1 millisecond') WHERE name = $1
