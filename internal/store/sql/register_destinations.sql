-- Makes destinations of known endpoints known, in an order as above.
-- Arguments: namespaces, endpoints, destinations.
INSERT INTO destination (endpoint_id, name)
SELECT DISTINCT e.id, w.destination
FROM unnest($1::text[], $2::text[], $3::text[]) AS w(namespace, endpoint, destination)
JOIN endpoint e ON e.namespace = w.namespace AND e.name = w.endpoint
ORDER BY 1, 2
ON CONFLICT DO NOTHING
