//! Endpoints and EndpointSlices: where the pods of a Service are.

pub mod legacy;
pub mod slices;
