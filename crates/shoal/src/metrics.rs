//! The group `metrics.k8s.io` in `shoal up`.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use shoal_apiserver::{Body, GroupHandler, Server};
use shoal_controllers::autoscaler;
use shoal_node::metrics::{GROUP, Handle, Options, VERSION};
use shoal_node::simulated;
use shoal_runtime::config::duration;

/// Settings of the figures, and of those who scale by them, on the command line.
#[derive(clap::Args)]
#[group(id = "metrics")]
pub struct Args {
    /// How often nodes are asked what their pods use
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = at_least_a_second)]
    metrics_resolution: Duration,

    /// How often HorizontalPodAutoscalers look at it
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = at_least_a_second)]
    horizontal_pod_autoscaler_sync_period: Duration,

    /// For how long they must have wanted less before they take replicas away, unless they say it themselves
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration::parse)]
    horizontal_pod_autoscaler_downscale_stabilization: Duration,
}

impl Args {
    /// The settings, with the nodes that are simulated.
    pub fn options(&self, simulated: Option<simulated::Options>) -> Options {
        Options { resolution: self.metrics_resolution, simulated }
    }

    /// How autoscalers work.
    pub fn autoscaler(&self) -> autoscaler::Options {
        autoscaler::Options {
            sync_period: self.horizontal_pod_autoscaler_sync_period,
            downscale_stabilization: self.horizontal_pod_autoscaler_downscale_stabilization,
            ..autoscaler::Options::default()
        }
    }
}

fn at_least_a_second(text: &str) -> Result<Duration, String> {
    let least = Duration::from_secs(1);
    duration::parse(text)
        .and_then(|time| if time < least { Err("less than 1s".to_owned()) } else { Ok(time) })
}

/// Lets the API server serve the group; figures come with the collector that the handle is given to.
pub async fn mount(server: &Server) -> anyhow::Result<Handle> {
    let handle = Handle::default();
    let answering = handle.clone();
    let handler: GroupHandler = Arc::new(move |request| {
        let handle = answering.clone();
        async move { handle.answer(request).await.map(Body::Full) }.boxed()
    });
    server.mount_group(GROUP, VERSION, handler).await?;
    Ok(handle)
}
