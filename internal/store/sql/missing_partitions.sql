-- Which daily partitions rows will need in the next days that are not there.
-- $1 tables, $2 seconds for which their rows are kept, $3 days ahead.
SELECT DISTINCT p.parent, d.day
FROM unnest($1::text[], $2::int[]) AS p(parent, keep)
CROSS JOIN LATERAL (
    SELECT ((now() + p.keep * interval '1 second') AT TIME ZONE 'UTC')::date + ahead AS day
    FROM generate_series(0, $3::int) AS ahead
) AS d
WHERE to_regclass(format('%I', p.parent || '_' || to_char(d.day, 'YYYYMMDD'))) IS NULL
ORDER BY 1, 2
