-- One database a role, so that none reads another's tables. Run once, by PostgreSQL's own start.
CREATE DATABASE shuffler;
CREATE DATABASE server;
CREATE DATABASE board;
