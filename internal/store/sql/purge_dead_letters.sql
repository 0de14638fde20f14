DELETE FROM dead_letter WHERE ctid = ANY (ARRAY(SELECT ctid FROM dead_letter WHERE expires_at <= now() ORDER BY expires_at LIMIT $1))
