//! Registers the nodes and keeps them alive: one task for all of them.

use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use http::Request;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Client, Resource, ResourceExt as _};
use serde_json::Value;
use shoal_objects::Clock;
use shoal_runtime::client::send_unread;
use shoal_runtime::manager::{BoxError, Stop};
use shoal_runtime::{Lister, ObjectKey};

use super::node;
use super::options::Options;

/// Each lease is renewed once in this time.
const RENEW: Duration = Duration::from_secs(10);
/// Each node's status is written once in so many renewals: every five minutes.
const STATUS_EVERY: u64 = 30;
/// Renewals are spread over so many batches at most.
const BATCHES: u32 = 100;
/// Requests at one time.
const AT_ONCE: usize = 16;
/// Until the server answers at all.
const RETRY: Duration = Duration::from_millis(200);

/// What keeps the nodes alive.
pub(super) struct Heart {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) options: Options,
    pub(super) nodes: Lister<Node>,
}

impl Heart {
    /// Registers all nodes, then renews until it is told to stop.
    pub(super) async fn run(self, stop: Stop, registered: impl FnOnce()) -> Result<(), BoxError> {
        tokio::select! {
            biased;
            () = stop.requested() => return Ok(()),
            () = self.register_all() => {}
        }
        registered();
        let batches = self.options.nodes.clamp(1, BATCHES);
        let mut ticks = tokio::time::interval(RENEW / batches);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut tick = 0_u64;
        loop {
            tokio::select! {
                biased;
                () = stop.requested() => return Ok(()),
                _ = ticks.tick() => {}
            }
            let (round, batch) = (tick / u64::from(batches), tick % u64::from(batches));
            tick += 1;
            let of_batch = (0..self.options.nodes).filter(|index| u64::from(index % batches) == batch);
            tokio::select! {
                biased;
                () = stop.requested() => return Ok(()),
                () = self.renew_all(of_batch.collect(), round) => {}
            }
        }
    }

    async fn register_all(&self) {
        let nodes = stream::iter(0..self.options.nodes);
        nodes.for_each_concurrent(AT_ONCE, |index| self.register(index)).await;
    }

    async fn renew_all(&self, nodes: Vec<u32>, round: u64) {
        let nodes = stream::iter(nodes);
        nodes.for_each_concurrent(AT_ONCE, |index| self.beat(index, round)).await;
    }

    async fn beat(&self, index: u32, round: u64) {
        let key = ObjectKey::cluster(&self.options.name(index));
        if super::is_dead(&self.nodes, &key) {
            return;
        }
        self.renew(index).await;
        // One that was taken for dead says at once that it is not.
        let doubted = self.nodes.meta(&key).is_some() && !super::is_ready(&self.nodes, &key);
        if doubted || (round + u64::from(index)) % STATUS_EVERY == STATUS_EVERY - 1 {
            self.tell_status(index, doubted).await;
        }
    }

    /// Creates the node, or brings the status of one that is there up to date, until the server has accepted it.
    async fn register(&self, index: u32) {
        while let Err(error) = self.try_register(index).await {
            tracing::warn!(node = self.options.name(index), %error, "a simulated node could not be registered");
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn try_register(&self, index: u32) -> Result<(), kube::Error> {
        let (name, now) = (self.options.name(index), self.clock.now());
        let nodes: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::erase::<Node>(&()));
        let wanted = decode(node::registration(&self.options, index, now))?;
        let node = match nodes.create(&PostParams::default(), &wanted).await {
            Ok(node) => node,
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let status = serde_json::json!({"status": node::status(&self.options, index, now)});
                nodes.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status)).await?
            }
            Err(error) => return Err(error),
        };
        self.create_lease(&name, &node.uid().unwrap_or_default()).await
    }

    async fn create_lease(&self, name: &str, uid: &str) -> Result<(), kube::Error> {
        let resource = ApiResource::erase::<Lease>(&());
        let leases: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), node::LEASES, &resource);
        let lease = decode(node::lease(name, uid, self.clock.now()))?;
        match leases.create(&PostParams::default(), &lease).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => self.patch_lease(name).await,
            Err(error) => Err(error),
        }
    }

    async fn patch_lease(&self, name: &str) -> Result<(), kube::Error> {
        let path = format!("{}/{name}", Lease::url_path(&(), Some(node::LEASES)));
        let patch = merge_patch(&path, "application/merge-patch+json", node::renewal(self.clock.now()))?;
        send_unread(&self.client, patch).await
    }

    async fn renew(&self, index: u32) {
        let name = self.options.name(index);
        let Err(error) = self.patch_lease(&name).await else { return };
        if !matches!(&error, kube::Error::Api(status) if status.code == 404) {
            tracing::debug!(node = name, %error, "a lease could not be renewed");
            return;
        }
        // The lease is gone. It goes with its node; a node that is still there gets another.
        let nodes: Api<Node> = Api::all(self.client.clone());
        if let Ok(Some(node)) = nodes.get_opt(&name).await
            && let Err(error) = self.create_lease(&name, &node.uid().unwrap_or_default()).await
        {
            tracing::debug!(node = name, %error, "a lease could not be made again");
        }
    }

    /// `anew`: what was said of the node in its absence is over now.
    async fn tell_status(&self, index: u32, anew: bool) {
        let (name, now) = (self.options.name(index), self.clock.now());
        let told = match anew {
            true => serde_json::json!({"status": node::status(&self.options, index, now)}),
            false => node::heartbeat(&self.options, index, now),
        };
        let body = told.to_string().into_bytes();
        let path = format!("{}/{name}/status", Node::url_path(&(), None));
        let sent = match merge_patch(&path, "application/strategic-merge-patch+json", body) {
            Ok(patch) => send_unread(&self.client, patch).await,
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            tracing::debug!(node = name, %error, "a node's status could not be written");
        }
    }
}

/// A PATCH with a body that is already encoded.
pub(super) fn merge_patch(path: &str, kind: &str, body: Vec<u8>) -> Result<Request<Vec<u8>>, kube::Error> {
    Request::patch(path).header(http::header::CONTENT_TYPE, kind).body(body).map_err(kube::Error::HttpError)
}

fn decode(object: Value) -> Result<DynamicObject, kube::Error> {
    serde_json::from_value(object).map_err(kube::Error::SerdeError)
}
