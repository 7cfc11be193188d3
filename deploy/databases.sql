-- One database and one user per role, so that no role can read another's tables. PostgreSQL runs this once, at its first start.
CREATE USER shuffler PASSWORD 'shuffler';
CREATE USER server PASSWORD 'server';
CREATE USER board PASSWORD 'board';
CREATE DATABASE shuffler OWNER shuffler;
CREATE DATABASE server OWNER server;
CREATE DATABASE board OWNER board;
REVOKE CONNECT ON DATABASE shuffler, server, board FROM PUBLIC;
