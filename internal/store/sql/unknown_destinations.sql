-- Which destinations of a known endpoint are not known, one of them.
-- Arguments: namespace, endpoint, destinations.
SELECT n.name
FROM endpoint e CROSS JOIN unnest($3::text[]) AS n(name)
WHERE e.namespace = $1 AND e.name = $2
  AND NOT EXISTS (SELECT FROM destination d WHERE d.endpoint_id = e.id AND d.name = n.name)
ORDER BY 1 LIMIT 1
