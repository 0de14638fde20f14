-- The first schema of the session's search path, unless it is there, or is
-- none that anybody would make. No right to make schemas is needed to ask.
SELECT name::text
FROM (SELECT (parse_ident(nullif(current_setting('search_path'), ''), false)::name[])[1] AS name) AS first
WHERE name NOT IN ('$user', 'pg_temp') AND NOT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = name)
