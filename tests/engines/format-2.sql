-- A library of format 2, made by Marklight when that was current.
PRAGMA application_id = 1296780372;
PRAGMA user_version = 2;
BEGIN TRANSACTION;
CREATE TABLE chunks (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    ordinal INTEGER NOT NULL, digest TEXT NOT NULL,
    kind TEXT NOT NULL, parent TEXT NOT NULL, anchor TEXT NOT NULL,
    first_line INTEGER NOT NULL, last_line INTEGER NOT NULL,
    title TEXT NOT NULL, headings TEXT NOT NULL, merged TEXT NOT NULL, languages TEXT NOT NULL,
    code TEXT NOT NULL, text TEXT NOT NULL
);
INSERT INTO "chunks" VALUES(1,'4a7475a92abe7f73',1,0,'be94c7d9cdd6a84300fe02ab2935327c','prose','a9980c7cc7cc33db','',7,7,'Authentication','','','','','Tokens expire after an hour.');
INSERT INTO "chunks" VALUES(2,'9fbe14ea0c5b03d1',1,1,'9946b54cd5a3931275c321c193a3fd92','prose','a9980c7cc7cc33db','refresh',11,11,'Authentication','["Refresh"]','','','','A refresh token gives a new access token without asking the user again.');
INSERT INTO "chunks" VALUES(3,'c538e0ef5af2385b',2,0,'71b701639e653be48a6c2a26e3a8e3e1','prose','ddd917bd2e9953ca','rolling-back',3,3,'Rolling back','["Rolling back"]','','','','Use the undo command to return to an earlier revision of the deployment.');
INSERT INTO "chunks" VALUES(4,'0253eb6fe645c1ea',3,0,'9dd35da9a751c5bb6d2f70f747d4c60e','prose','59b598b7b2e5ea18','scaling',3,3,'Scaling','["Scaling"]','','','','More replicas carry more load. See [[rollback]].');
INSERT INTO "chunks" VALUES(5,'bf61928ba4f75d70',4,0,'d4d4978819de81e7d605d498774776e0','prose','8e6e57ad185d3a04','',1,1,'notes','','','','','Plain notes about the espresso machine in the kitchen.');
CREATE TABLE contents (
    document INTEGER PRIMARY KEY REFERENCES documents ON DELETE CASCADE,
    record TEXT NOT NULL, text TEXT NOT NULL
);
INSERT INTO "contents" VALUES(1,'{"title":"Authentication","description":"","keywords":[],"tags":["security"],"aliases":[],"author":"","category":"","metadata":{"title":"Authentication","tags":["security"],"status":"draft"},"outline":[[2,"Refresh","refresh",[9,12]]],"blocks":{},"remarks":[]}','---
title: Authentication
tags: [security]
status: draft
---

Tokens expire after an hour.

## Refresh

A refresh token gives a new access token without asking the user again.
');
INSERT INTO "contents" VALUES(2,'{"title":"Rolling back","description":"","keywords":[],"tags":[],"aliases":[],"author":"","category":"","metadata":{},"outline":[[1,"Rolling back","rolling-back",[1,4]]],"blocks":{},"remarks":[]}','# Rolling back

Use the undo command to return to an earlier revision of the deployment.
');
INSERT INTO "contents" VALUES(3,'{"title":"Scaling","description":"","keywords":[],"tags":[],"aliases":[],"author":"","category":"","metadata":{},"outline":[[1,"Scaling","scaling",[1,4]]],"blocks":{},"remarks":[]}','# Scaling

More replicas carry more load. See [[rollback]].
');
INSERT INTO "contents" VALUES(4,'{"title":"notes","description":"","keywords":[],"tags":[],"aliases":[],"author":"","category":"","metadata":{},"outline":[],"blocks":{},"remarks":[]}','Plain notes about the espresso machine in the kitchen.
');
CREATE TABLE dead (chunk INTEGER PRIMARY KEY, since REAL NOT NULL);
CREATE TABLE documents (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    collection TEXT NOT NULL, path TEXT NOT NULL,
    size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, ctime_ns INTEGER NOT NULL,
    digest TEXT NOT NULL, recipe TEXT NOT NULL,
    date TEXT, moment TEXT NOT NULL,
    UNIQUE (path, collection)            -- in this order a path alone is found by it too
);
INSERT INTO "documents" VALUES(1,'default','auth.md',176,1794781905524938648,1794781905524938648,'d762155ee8cdf538f934af13fa35fea5','0673f09a80c221a9',NULL,'2026-11-15T22:31:45.524938+00:00');
INSERT INTO "documents" VALUES(2,'default','deploy/rollback.md',89,1794781905525016793,1794781905525016793,'e8189f4ea886e895262eab79eb76d4df','0673f09a80c221a9',NULL,'2026-11-15T22:31:45.525016+00:00');
INSERT INTO "documents" VALUES(3,'default','deploy/scale.md',60,1794781905525131573,1794781905525131573,'379cac8493446578862e175efb2984cf','0673f09a80c221a9',NULL,'2026-11-15T22:31:45.525131+00:00');
INSERT INTO "documents" VALUES(4,'default','notes.txt',55,1794781905525174937,1794781905525174937,'217cd40c16e6b70142be81e135cbab6c','0673f09a80c221a9',NULL,'2026-11-15T22:31:45.525174+00:00');
CREATE TABLE facts (
    key TEXT NOT NULL, value TEXT NOT NULL,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    PRIMARY KEY (key, value, document)
) WITHOUT ROWID;
INSERT INTO "facts" VALUES('#','security',1);
INSERT INTO "facts" VALUES('status','draft',1);
INSERT INTO "facts" VALUES('tags','security',1);
INSERT INTO "facts" VALUES('title','authentication',1);
INSERT INTO "facts" VALUES('title','rolling back',2);
INSERT INTO "facts" VALUES('title','scaling',3);
INSERT INTO "facts" VALUES('title','notes',4);
CREATE TABLE failures (
    collection TEXT NOT NULL, path TEXT NOT NULL, reason TEXT NOT NULL,
    size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER,
    PRIMARY KEY (collection, path)
) WITHOUT ROWID;
INSERT INTO "failures" VALUES('default','bad.md','holds NUL bytes, so it is not text',8,1794781905525212353,1794781905525212353);
CREATE TABLE languages (
    language TEXT NOT NULL,
    chunk INTEGER NOT NULL REFERENCES chunks ON DELETE CASCADE,
    PRIMARY KEY (language, chunk)
) WITHOUT ROWID;
CREATE TABLE link_keys (
    key TEXT NOT NULL,
    link INTEGER NOT NULL REFERENCES links ON DELETE CASCADE,
    PRIMARY KEY (key, link)
) WITHOUT ROWID;
INSERT INTO "link_keys" VALUES('rollback',1);
CREATE TABLE links (
    row INTEGER PRIMARY KEY,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    type TEXT NOT NULL, target TEXT NOT NULL, fragment TEXT NOT NULL, text TEXT NOT NULL,
    line INTEGER NOT NULL, keys TEXT NOT NULL
);
INSERT INTO "links" VALUES(1,3,'links_to','rollback','','rollback',3,'["rollback"]');
CREATE TABLE manifest (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "manifest" VALUES('failures_recipe','0673f09a80c221a9');
INSERT INTO "manifest" VALUES('model fake-64','fake');
CREATE TABLE models (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    dimension INTEGER NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0,    -- which file of the matrix
    places INTEGER NOT NULL DEFAULT 0,   -- how many rows it has, dropped ones included
    embedded INTEGER NOT NULL DEFAULT 0, -- passages that have a vector
    done INTEGER NOT NULL DEFAULT 0      -- all passages up to this row have one
);
INSERT INTO "models" VALUES(1,'fake-64',64,0,5,5,5);
CREATE TABLE names (
    row INTEGER PRIMARY KEY,
    key TEXT NOT NULL, strength TEXT NOT NULL,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE
);
INSERT INTO "names" VALUES(1,'auth.md','1-path',1);
INSERT INTO "names" VALUES(2,'auth','1-path',1);
INSERT INTO "names" VALUES(3,'deploy/rollback.md','1-path',2);
INSERT INTO "names" VALUES(4,'deploy/rollback','1-path',2);
INSERT INTO "names" VALUES(5,'rollback.md','2-suffix',2);
INSERT INTO "names" VALUES(6,'rollback','2-suffix',2);
INSERT INTO "names" VALUES(7,'deploy/scale.md','1-path',3);
INSERT INTO "names" VALUES(8,'deploy/scale','1-path',3);
INSERT INTO "names" VALUES(9,'scale.md','2-suffix',3);
INSERT INTO "names" VALUES(10,'scale','2-suffix',3);
INSERT INTO "names" VALUES(11,'notes.txt','1-path',4);
INSERT INTO "names" VALUES(12,'notes','1-path',4);
CREATE TABLE sections (
    row INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    headings TEXT NOT NULL, anchor TEXT NOT NULL,
    first_line INTEGER NOT NULL, last_line INTEGER NOT NULL,
    span_from INTEGER NOT NULL, span_to INTEGER NOT NULL
);
INSERT INTO "sections" VALUES(1,'a9980c7cc7cc33db',1,'','',6,11,61,175);
INSERT INTO "sections" VALUES(2,'ddd917bd2e9953ca',2,'["Rolling back"]','rolling-back',1,3,0,88);
INSERT INTO "sections" VALUES(3,'59b598b7b2e5ea18',3,'["Scaling"]','scaling',1,3,0,59);
INSERT INTO "sections" VALUES(4,'8e6e57ad185d3a04',4,'','',1,1,0,54);
CREATE TABLE state (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    library TEXT NOT NULL,               -- a random name that derived files carry too
    generation INTEGER NOT NULL DEFAULT 0,
    documents INTEGER NOT NULL DEFAULT 0,  -- counted here, so that nobody has to scan
    chunks INTEGER NOT NULL DEFAULT 0,
    waste INTEGER NOT NULL DEFAULT 0,      -- vectors that no passage uses
    opstamp INTEGER NOT NULL DEFAULT -1    -- of the words that hold all passages of this generation
);
INSERT INTO "state" VALUES(1,'4f18dcf5013f70f9',4,4,5,0,6);
CREATE TABLE vectors (
    row INTEGER PRIMARY KEY,
    model INTEGER NOT NULL REFERENCES models ON DELETE CASCADE,
    digest TEXT NOT NULL, place INTEGER NOT NULL, vector BLOB NOT NULL
);
INSERT INTO "vectors" VALUES(1,1,'be94c7d9cdd6a84300fe02ab2935327c',0,X'00000000000000000000000000000000000000000000000000000000000000000000000000000000000000002EF9E4BE0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000002EF9E43E00000000000000000000000000000000000000002EF9E4BE000000000000000000000000000000002EF9E4BE0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000002EF9E4BE');
INSERT INTO "vectors" VALUES(2,1,'9946b54cd5a3931275c321c193a3fd92',1,X'0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000F304B5BEF304B53E00000000F304B53E000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000F304B53E00000000F304B5BE00000000F304B5BE0000000000000000F304B53E0000000000000000F304B53E0000000000000000000000000000000000000000000000000000000000000000');
INSERT INTO "vectors" VALUES(3,1,'71b701639e653be48a6c2a26e3a8e3e1',2,X'0000000000000000000000000000000000000000ABAAAABE0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000ABAAAA3EABAAAA3EABAAAABE0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000ABAAAABE0000000000000000000000000000000000000000000000000000000000000000ABAAAA3E0000000000000000ABAAAA3E000000000000000000000000ABAAAABE0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000ABAAAA3E00000000');
INSERT INTO "vectors" VALUES(4,1,'9dd35da9a751c5bb6d2f70f747d4c60e',3,X'000000000000000000000000000000009BE8A1BE0000000000000000000000000000000000000000000000009BE8A1BE000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000009BE8A13E000000000000000000000000000000009BE8A1BE00000000000000009BE8A1BE0000000000000000000000000000000000000000000000009BE8A1BE0000000000000000000000000000000000000000000000009BE8213F00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000');
INSERT INTO "vectors" VALUES(5,1,'d4d4978819de81e7d605d498774776e0',4,X'00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000F304B53E000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000F304B5BE00000000000000000000000000000000000000000000000000000000F304B5BE00000000F304B53E0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000F304353F');
CREATE INDEX facts_of ON facts (document);
CREATE INDEX chunks_of ON chunks (document, ordinal, digest, id);
CREATE INDEX chunks_by_digest ON chunks (digest);
CREATE INDEX languages_of ON languages (chunk);
CREATE INDEX sections_by_id ON sections (id);
CREATE INDEX sections_of ON sections (document);
CREATE INDEX links_of ON links (document);
CREATE INDEX link_keys_of ON link_keys (link);
CREATE INDEX names_by_key ON names (key, document, strength);
CREATE INDEX names_of ON names (document);
CREATE UNIQUE INDEX vectors_by_digest ON vectors (digest, model, place);
CREATE INDEX vectors_by_place ON vectors (model, place, digest);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('documents',4);
INSERT INTO "sqlite_sequence" VALUES('chunks',5);
INSERT INTO "sqlite_sequence" VALUES('models',1);
COMMIT;
