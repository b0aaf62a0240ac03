-- Roles of the library "docs", each with the rights that it needs. Run it once, as an administrator, in the database of
-- the index:  psql --dbname marklight --file roles.sql
-- Passwords are set afterwards:  \password docs_owner

CREATE EXTENSION IF NOT EXISTS vector;

CREATE ROLE docs_owner LOGIN;    -- creates the tables, builds the vector index
CREATE ROLE docs_writer NOLOGIN; -- indexes documents
CREATE ROLE docs_worker NOLOGIN; -- embeds passages
CREATE ROLE docs_reader NOLOGIN; -- searches

-- No other login may connect: whoever can connect can hold locks.
DO $$ BEGIN
    EXECUTE format('REVOKE CONNECT ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO docs_owner, docs_writer, docs_worker, docs_reader', current_database());
END $$;

-- The second schema is that of commits: marklight commits, marklight index --history
CREATE SCHEMA docs AUTHORIZATION docs_owner;
CREATE SCHEMA docs_history AUTHORIZATION docs_owner;
GRANT USAGE ON SCHEMA docs, docs_history TO docs_reader, docs_writer, docs_worker;

-- Who creates the tables, the owner, grants these roles the rights of their duty on each of them.
CREATE TABLE docs.roles (role name PRIMARY KEY, duty text NOT NULL CHECK (duty IN ('reader', 'writer', 'worker')));
INSERT INTO docs.roles VALUES ('docs_reader', 'reader'), ('docs_writer', 'writer'), ('docs_worker', 'worker');
CREATE TABLE docs_history.roles AS TABLE docs.roles;
ALTER TABLE docs.roles OWNER TO docs_owner;
ALTER TABLE docs_history.roles OWNER TO docs_owner;

-- People and programs
CREATE ROLE ann LOGIN IN ROLE docs_writer;
CREATE ROLE ben LOGIN IN ROLE docs_reader;
CREATE ROLE embedder LOGIN IN ROLE docs_worker;
