DELETE FROM event_default WHERE expires_at <= now()
