//! A cluster for tests: a whole API server inside the test, no sockets, no files, ready in a moment.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::api::{Api, PostParams};
//!
//! let cluster = shoal_testkit::Cluster::start().await;
//! let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
//! let map = serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}, "data": {"k": "v"}}))?;
//! maps.create(&PostParams::default(), &map).await?;
//! assert_eq!(maps.get("a").await?.data.unwrap()["k"], "v");
//! # Ok(())
//! # }
//! ```

mod cluster;
mod events;
mod fault_body;
mod faults;
mod http_client;
mod log;
mod manifest;
mod wait;

pub use cluster::{Builder, Cluster};
pub use events::{Events, Mirror};
pub use faults::{BoxError, Effect, FaultBody, FaultLayer, Rule};
pub use http_client::{Answer, Http};
pub use log::CapturedLog;
pub use manifest::path;
pub use shoal_apiserver::Abilities;
pub use wait::eventually;
