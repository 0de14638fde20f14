-- Records how attempts ended, each only while its claim still holds (I5).
-- $1…$4  the tokens, sorted, none of them twice: event, destination, run, attempt
-- $5…    attempts that count, verdict, milliseconds until due again, reason (dead),
--        status, milliseconds that the exchange took, error class, error,
--        response excerpt, seconds to keep the ledger and the ended delivery
-- Returns the tokens that took effect; the others are fenced off.
-- Deliveries are found by their event. What statistics say of a backlog is
-- wrong when it matters, so + 0 keeps the planner from looking for them among
-- all that is due to their destination.
WITH durable AS MATERIALIZED (
    SELECT CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
                THEN set_config('synchronous_commit', 'on', true) END
), reported AS MATERIALIZED (
    SELECT r.*
    FROM durable, unnest($1::uuid[], $2::int[], $3::int[], $4::int[], $5::int[], $6::text[], $7::bigint[], $8::text[], $9::int[],
                         $10::int[], $11::text[], $12::text[], $13::text[], $14::int[], $15::int[])
         AS r(event_id, destination_id, run, attempt, attempts, verdict, delay, reason, status, latency, error_class, error, excerpt, keep, keep_ended)
), held AS MATERIALIZED (
    -- Locked one by one in the order given, so that two batches with rows in
    -- common cannot deadlock.
    SELECT r.*
    FROM reported r CROSS JOIN LATERAL (
        SELECT 1 FROM delivery d
        WHERE d.event_id = r.event_id AND d.destination_id + 0 = r.destination_id AND d.run = r.run
          AND d.attempt = r.attempt AND d.state = 'claimed'
        LIMIT 1
        FOR UPDATE
    ) AS d
), ended AS (
    DELETE FROM delivery d USING held h
    WHERE h.verdict IN ('done', 'dead')
      AND d.event_id = h.event_id AND d.destination_id + 0 = h.destination_id AND d.run = h.run
      AND d.attempt = h.attempt AND d.state = 'claimed'
    RETURNING d.*, h.attempts, h.verdict, h.reason, h.status, h.latency, h.error_class, h.error, h.keep_ended
), kept AS (
    UPDATE delivery d
    SET state    = CASE h.verdict WHEN 'failed' THEN 'failed' ELSE 'pending' END,
        released = d.released + CASE h.verdict WHEN 'released' THEN 1 ELSE 0 END,
        next_at  = now() + h.delay * interval '1 millisecond'
    FROM held h
    WHERE h.verdict IN ('failed', 'released')
      AND d.event_id = h.event_id AND d.destination_id + 0 = h.destination_id AND d.run = h.run
      AND d.attempt = h.attempt AND d.state = 'claimed'
    RETURNING d.event_id, d.destination_id, d.run, d.attempt
), settled_now AS (
    INSERT INTO settled (event_id, destination_id, run, attempt, attempts, size, status, latency_ms, settled_at, expires_at, replay_id)
    SELECT event_id, destination_id, run, attempt, attempts, size, coalesce(status, 0), latency, now(), now() + keep_ended * interval '1 second', replay_id
    FROM ended WHERE verdict = 'done'
), died_now AS (
    INSERT INTO dead_letter (event_id, destination_id, run, attempt, attempts, size, event_expires_at, reason, last_status,
                             error_class, last_error, died_at, expires_at, replay_id)
    SELECT event_id, destination_id, run, attempt, attempts, size, event_expires_at, reason, status,
           error_class, error, now(), now() + keep_ended * interval '1 second', replay_id
    FROM ended WHERE verdict = 'dead'
), taken AS (
    SELECT event_id, destination_id, run, attempt FROM ended
    UNION ALL
    SELECT event_id, destination_id, run, attempt FROM kept
), ledger AS (
    INSERT INTO outcome (event_id, destination_id, run, attempt, verdict, status, latency_ms, error_class, error, excerpt, ended_at, expires_at)
    SELECT event_id, destination_id, run, attempt, h.verdict, h.status, h.latency, h.error_class, h.error, h.excerpt,
           now(), now() + h.keep * interval '1 second'
    FROM held h
    -- A hashed subplan: as a join, which IS TRUE prevents, it would compare
    -- every row with every other one.
    WHERE ((event_id, destination_id, run, attempt) IN (SELECT event_id, destination_id, run, attempt FROM taken)) IS TRUE
      AND (h.verdict IN ('failed', 'released')
           -- An exhausted claim was no attempt, and has no outcome.
           OR h.verdict = 'dead' AND EXISTS (
               SELECT 1 FROM attempt a
               WHERE a.event_id = h.event_id AND a.destination_id = h.destination_id AND a.run = h.run AND a.attempt = h.attempt
           ))
)
SELECT event_id, destination_id, run, attempt FROM taken
