-- Makes endpoints known. Sorted, so that two processes that register the same
-- names cannot deadlock. Arguments: namespaces, names.
INSERT INTO endpoint (namespace, name)
SELECT DISTINCT namespace, name FROM unnest($1::text[], $2::text[]) AS w(namespace, name)
ORDER BY 1, 2
ON CONFLICT DO NOTHING
