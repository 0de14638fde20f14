DELETE FROM dedup WHERE ctid = ANY (ARRAY(SELECT ctid FROM dedup WHERE expires_at <= now() ORDER BY expires_at LIMIT $1))
