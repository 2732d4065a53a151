//! Programs outside that the server itself calls: where they listen, and a connection that trusts only them.

mod connect;
mod resolve;
mod trust;

pub use connect::{Connection, connect, exchange};
pub use resolve::{Backend, Unresolved, resolve};
pub use trust::{Trust, client_config};
