//! Protobuf bodies of built-in kinds, transcoded by the type table.
