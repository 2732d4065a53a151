//! A Kubernetes-compatible API server as a library.

pub mod access;
pub mod builtin;
pub mod decode;
pub mod kinds;
pub mod openapi;
pub mod protobuf;
pub mod serve;
