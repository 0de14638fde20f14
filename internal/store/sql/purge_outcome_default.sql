DELETE FROM outcome_default WHERE expires_at <= now()
