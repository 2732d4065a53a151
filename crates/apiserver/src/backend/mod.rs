//! Programs outside that the server itself calls: where they listen, and a connection that trusts only them.

mod connect;
mod resolve;
mod trust;

pub use connect::{Connection, connect, exchange, exchange_plain};
pub use resolve::{Backend, Port, Reach, Unresolved, resolve, resolve_port};
pub use trust::{Trust, client_config};
