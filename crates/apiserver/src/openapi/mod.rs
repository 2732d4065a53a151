//! OpenAPI v3 documents, made from the type table and the registry.
