//! A Kubernetes-compatible API server as a library.
//!
//! [`Server`] is a tower service: put sockets in front of it with [`serve`], or call it in process.

pub mod access;
mod admission;
mod aggregate;
pub mod audit;
mod authorize;
mod backend;
mod body;
mod bootstrap;
pub mod builtin;
pub mod cel;
mod conversion;
pub mod decode;
mod definitions;
mod discovery;
mod encode;
mod handlers;
mod health;
mod index;
pub mod kinds;
mod metrics;
mod negotiate;
pub mod openapi;
mod outbound;
mod own_service;
pub mod protobuf;
mod registry;
mod request;
mod response;
mod selection;
pub mod serve;
mod server;
mod status;
mod table;

pub use aggregate::{GroupHandler, MountError};
pub use backend::Reach;
pub use body::{Body, BodyError};
pub use handlers::node_proxy::KubeletClient;
pub use server::{Abilities, Options, Server, StartError};
