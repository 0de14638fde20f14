-- The channel on which notify.sql wakes the workers.
SELECT 'ackrail_' || md5(current_schema())
