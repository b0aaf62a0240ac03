-- Roles of the library "docs", each with the rights that it needs. Run it once, as an administrator, in the database of
-- the index:  psql --dbname marklight --file roles.sql
-- Passwords are set afterwards:  \password docs_owner

CREATE EXTENSION IF NOT EXISTS vector;

CREATE ROLE docs_owner LOGIN;    -- creates the tables, builds the vector index
CREATE ROLE docs_writer NOLOGIN; -- indexes documents
CREATE ROLE docs_worker NOLOGIN; -- embeds passages
CREATE ROLE docs_reader NOLOGIN; -- searches

-- The second schema is that of commits: marklight commits, marklight index --history
CREATE SCHEMA docs AUTHORIZATION docs_owner;
CREATE SCHEMA docs_history AUTHORIZATION docs_owner;

GRANT USAGE ON SCHEMA docs, docs_history TO docs_reader, docs_writer, docs_worker;
ALTER DEFAULT PRIVILEGES FOR ROLE docs_owner IN SCHEMA docs, docs_history
    GRANT SELECT ON TABLES TO docs_reader, docs_writer, docs_worker;
ALTER DEFAULT PRIVILEGES FOR ROLE docs_owner IN SCHEMA docs, docs_history
    GRANT INSERT, UPDATE, DELETE ON TABLES TO docs_writer, docs_worker;
ALTER DEFAULT PRIVILEGES FOR ROLE docs_owner IN SCHEMA docs, docs_history
    GRANT USAGE ON SEQUENCES TO docs_writer, docs_worker;

-- People and programs
CREATE ROLE ann LOGIN IN ROLE docs_writer;
CREATE ROLE ben LOGIN IN ROLE docs_reader;
CREATE ROLE embedder LOGIN IN ROLE docs_worker;
