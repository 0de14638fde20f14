SELECT event_id, namespace, endpoint, destination, run, state, attempts, next_at, ended_at, coalesce(reason, ''), last_status,
       coalesce(error_class, ''), coalesce(last_error, ''), replay_id, replayed_by, size, '' AS type, NULL::timestamptz
FROM delivery_state WHERE event_id = $1
ORDER BY destination, run
