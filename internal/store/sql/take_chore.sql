-- Whoever moves the due time does the chore. $1 name, $2 milliseconds to the
-- next time.
UPDATE chore SET due_at = now() + $2 * interval '1 millisecond'
WHERE name = $1 AND due_at <= now()
RETURNING true
