-- Run once by a single-user server in the new data folder. Each statement must end with a semicolon and an empty line.
-- The role is not a superuser, so that whoever learns its password cannot reach files or programs through the server,
-- and so that a statement which needs more than an ordinary database owner may do fails here and not in production.
-- The superuser has no password and therefore cannot log in over the network.

CREATE ROLE ackrail LOGIN CREATEDB CREATEROLE PASSWORD '{{password}}';

GRANT pg_monitor, pg_signal_backend TO ackrail;

CREATE DATABASE ackrail OWNER ackrail;

