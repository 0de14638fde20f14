DELETE FROM attempt_default WHERE expires_at <= now()
