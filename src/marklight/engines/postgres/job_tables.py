"""Tables of the queue of texts to embed: models that have a queue, jobs with leases, workers, and counts per minute."""

from __future__ import annotations

TABLES = """
CREATE TABLE queued_models (
    model text COLLATE "C" PRIMARY KEY,
    filled boolean NOT NULL DEFAULT false  -- all texts from before the queue was opened are in it
);
CREATE TABLE jobs (
    row bigint GENERATED ALWAYS AS IDENTITY,
    model text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    attempts bigint NOT NULL DEFAULT 0,
    worker text COLLATE "C",
    leased_until timestamptz,
    failed_at timestamptz,                 -- the job is set aside
    reason text COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (model, digest)
) WITH (fillfactor = 70);
CREATE INDEX jobs_in_order ON jobs (model, row) WHERE failed_at IS NULL;
CREATE INDEX jobs_by_worker ON jobs (worker) WHERE worker IS NOT NULL;
CREATE INDEX jobs_failed ON jobs (model, failed_at) WHERE failed_at IS NOT NULL;
CREATE TABLE workers (
    worker text COLLATE "C" PRIMARY KEY,
    model text COLLATE "C" NOT NULL,
    seen timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE embedded_per_minute (
    model text COLLATE "C" NOT NULL,
    minute timestamptz NOT NULL,
    texts bigint NOT NULL,
    PRIMARY KEY (model, minute)
);
"""
