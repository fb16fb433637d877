-- Profiles: integer scopes inside a collection, each with its own documents.
SET LOCAL ROLE vectorforge_migrator;

-- A writer of a profile's documents locks its row, so that the editions of two writers never mix.
CREATE TABLE vectorforge.profiles (
    tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 128),
    collection_id uuid NOT NULL,
    profile_id bigint NOT NULL CHECK (profile_id >= 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, collection_id, profile_id),
    FOREIGN KEY (tenant_id, collection_id) REFERENCES vectorforge.collections (tenant_id, id) ON DELETE CASCADE
);

-- The profile of each document. Not a column of documents and chunks, which most collections would leave empty.
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

SELECT vectorforge.enable_tenant_isolation('profiles'), vectorforge.enable_tenant_isolation('profile_documents');
GRANT SELECT, INSERT, UPDATE, DELETE ON vectorforge.profiles, vectorforge.profile_documents TO vectorforge_app;
GRANT SELECT, DELETE ON vectorforge.profiles, vectorforge.profile_documents TO vectorforge_eraser;
