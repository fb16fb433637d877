-- Profiles: integer scopes inside a collection, each with documents of its own.
SET LOCAL ROLE vectorforge_migrator;

-- True: every document belongs to a profile, and every search names one.
ALTER TABLE vectorforge.collections ADD COLUMN by_profile boolean NOT NULL DEFAULT false;

-- Who writes a profile's documents holds its row, so that two writers never mix their editions.
CREATE TABLE vectorforge.profiles (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    collection_id uuid NOT NULL,
    profile_id bigint NOT NULL CHECK (profile_id >= 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, collection_id, profile_id),
    FOREIGN KEY (tenant_id, collection_id) REFERENCES vectorforge.collections (tenant_id, id) ON DELETE CASCADE
);

-- Not a column of documents and chunks: an index on those would have to be built beside their writers.
CREATE TABLE vectorforge.profile_documents (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    document_id uuid NOT NULL,
    collection_id uuid NOT NULL,
    profile_id bigint NOT NULL,
    PRIMARY KEY (tenant_id, document_id),
    FOREIGN KEY (tenant_id, collection_id, profile_id)
        REFERENCES vectorforge.profiles (tenant_id, collection_id, profile_id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, collection_id, document_id)
        REFERENCES vectorforge.documents (tenant_id, collection_id, id) ON DELETE CASCADE
);
CREATE INDEX profile_documents_by_profile
    ON vectorforge.profile_documents (tenant_id, collection_id, profile_id, document_id);

ALTER TABLE vectorforge.profiles ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectorforge.profiles FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON vectorforge.profiles
    USING (tenant_id = NULLIF(current_setting('vectorforge.tenant', true), ''));
ALTER TABLE vectorforge.profile_documents ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectorforge.profile_documents FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON vectorforge.profile_documents
    USING (tenant_id = NULLIF(current_setting('vectorforge.tenant', true), ''));
GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.profiles, vectorforge.profile_documents TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.profiles, vectorforge.profile_documents TO vectorforge_eraser;
