DELETE FROM settled_default WHERE expires_at <= now()
