//! The garbage collector: objects whose owners are gone go too.

pub mod graph;
