//! What a controller has created and deleted, and its cache has not yet shown.

pub use shoal_runtime::expectations::Expectations as Pending;
