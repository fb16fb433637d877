-- Which credential began a conversation, since each has a share of the tenant's conversations only.
SET LOCAL ROLE vectorforge_migrator;

ALTER TABLE vectorforge.conversations
    -- as logs name it; null: none, or begun by a version before this one
    ADD COLUMN credential text CHECK (char_length(credential) <= 512);
