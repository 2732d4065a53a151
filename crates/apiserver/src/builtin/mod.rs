//! The types of the built-in kinds, read from the generated table.
