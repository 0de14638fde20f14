-- Wakes the workers. A lost notification costs one poll interval, so nothing
-- is flushed for it.
SELECT set_config('synchronous_commit', 'off', true), pg_notify('ackrail_' || md5(current_schema()), '')
