//! Leases and the record on the API server: reads and compare-and-swap writes, in the words of the core.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
};
use kube::core::Request;
use kube::{Client, Resource as _};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use shoal_objects::Clock;
use shoal_sharding::{
    LEASE_ANNOTATION, LeaseObject, LeaseRecord, Observed, Outcome, ReplicaId, ShardMap, ShardMapSpec,
    decode_lease, encode_lease, encode_map, fnv1a64, read_map,
};

use super::crd::{self, GROUP_LABEL};
use crate::apply::fence;

/// Reads and writes the objects of one group.
pub(crate) struct Records {
    client: Client,
    /// Made for coordination alone.
    own: OnceLock<Client>,
    clock: Clock,
    pub(crate) namespace: String,
    pub(crate) group: String,
    /// Uids by the numbers that stand for them in the core.
    uids: Mutex<HashMap<u64, Arc<str>>>,
}

/// A record as it was read.
#[derive(Clone, Debug)]
pub(crate) struct SeenMap {
    pub(crate) uid: String,
    pub(crate) resource_version: u64,
    pub(crate) observed: Observed,
    pub(crate) spec: Arc<ShardMapSpec>,
    pub(crate) alarmed: bool,
}

/// Everything about the group at one moment.
pub(crate) struct Listed {
    pub(crate) leases: Vec<Arc<LeaseObject>>,
    pub(crate) leases_revision: u64,
    pub(crate) map: Option<SeenMap>,
    pub(crate) map_revision: u64,
}

impl Records {
    pub(crate) fn new(client: Client, clock: Clock, namespace: &str, group: &str) -> Records {
        let (namespace, group) = (namespace.to_owned(), group.to_owned());
        Records { client, own: OnceLock::new(), clock, namespace, group, uids: Mutex::default() }
    }

    /// The client of all reads and writes.
    pub(crate) fn client(&self) -> &Client {
        self.own.get().unwrap_or(&self.client)
    }

    /// From now on this client does it.
    pub(crate) fn use_own(&self, client: Client) {
        // A second call comes with an equal client: the first stays.
        let _ = self.own.set(client);
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client().clone(), &self.namespace)
    }

    fn maps(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client().clone(), &self.namespace, &crd::resource())
    }

    pub(crate) fn map_path(&self) -> String {
        DynamicObject::url_path(&crd::resource(), Some(&self.namespace))
    }

    /// All Leases and the record, consistently: no version is asked for, so no cache may answer from the past.
    pub(crate) async fn list(&self) -> Result<Listed, kube::Error> {
        let mut params = ListParams::default().labels(&format!("{GROUP_LABEL}={}", self.group)).limit(500);
        let (mut leases, mut revision) = (Vec::new(), None);
        loop {
            let page = self.leases().list(&params).await?;
            // Later pages show the moment of the first one.
            revision = revision.or_else(|| version(page.metadata.resource_version.as_deref()));
            leases.extend(page.items.iter().filter_map(|lease| self.seen_lease(&lease.metadata)));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
        let (map, map_revision) = self.read_map().await?;
        Ok(Listed { leases, leases_revision: revision.unwrap_or_default(), map, map_revision })
    }

    /// One Lease, consistently, and the moment of the read.
    pub(crate) async fn read_lease(
        &self,
        id: &ReplicaId,
    ) -> Result<(Option<Arc<LeaseObject>>, u64), kube::Error> {
        let named = ListParams::default().fields(&format!("metadata.name={id}"));
        let list = self.leases().list(&named).await?;
        let revision = version(list.metadata.resource_version.as_deref()).unwrap_or_default();
        Ok((list.items.iter().find_map(|lease| self.seen_lease(&lease.metadata)), revision))
    }

    /// The record, consistently, and the moment of the read.
    pub(crate) async fn read_map(&self) -> Result<(Option<SeenMap>, u64), kube::Error> {
        let named = ListParams::default().fields(&format!("metadata.name={}", self.group));
        let list = self.maps().list(&named).await?;
        let revision = version(list.metadata.resource_version.as_deref()).unwrap_or_default();
        let object = list.items.into_iter().find(|map| map.metadata.name.as_ref() == Some(&self.group));
        let map = object.and_then(|map| seen_map(&serde_json::to_value(map).ok()?));
        Ok((map, revision))
    }

    /// Reads a Lease; all of it stands in its metadata.
    pub(crate) fn seen_lease(&self, meta: &ObjectMeta) -> Option<Arc<LeaseObject>> {
        let ObjectMeta { name, uid, resource_version, annotations, .. } = meta;
        let annotation = annotations.as_ref().and_then(|all| all.get(LEASE_ANNOTATION));
        let (record, genuine) = decode_lease(name.as_deref()?, annotation.map(String::as_str));
        let uid = self.number_of(uid.as_deref().unwrap_or_default());
        let resource_version = version(resource_version.as_deref())?;
        Some(Arc::new(LeaseObject { uid, resource_version, record, genuine }))
    }

    fn number_of(&self, uid: &str) -> u64 {
        let number = fnv1a64(uid);
        self.uids.lock().entry(number).or_insert_with(|| uid.into());
        number
    }

    /// Creates a Lease; never replaces one.
    pub(crate) async fn create_lease(&self, record: &LeaseRecord, limit: Duration) -> Outcome {
        let body = self.lease(record, None);
        let request = Request::new(Lease::url_path(&(), Some(&self.namespace)));
        self.write::<Lease>(request.create(&PostParams::default(), encoded(&body)), limit).await
    }

    /// Replaces a Lease in exactly this version.
    pub(crate) async fn replace_lease(
        &self,
        record: &LeaseRecord,
        uid: u64,
        resource_version: u64,
        limit: Duration,
    ) -> Outcome {
        let Some(uid) = self.uids.lock().get(&uid).cloned() else { return Outcome::Conflict };
        let body = self.lease(record, Some((&uid, resource_version)));
        let request = Request::new(Lease::url_path(&(), Some(&self.namespace)));
        let name = record.replica.as_str();
        self.write::<Lease>(request.replace(name, &PostParams::default(), encoded(&body)), limit).await
    }

    /// Deletes the Lease of this uid.
    pub(crate) async fn delete_lease(&self, id: &ReplicaId, uid: u64) {
        let Some(uid) = self.uids.lock().get(&uid).cloned() else { return };
        let exactly = Preconditions { uid: Some(uid.to_string()), resource_version: None };
        let params = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
        if let Err(error) = self.leases().delete(id.as_str(), &params).await {
            tracing::debug!(lease = %id, %error, "a tombstone could not be cleared away");
        }
    }

    fn lease(&self, record: &LeaseRecord, replaces: Option<(&str, u64)>) -> Lease {
        let now = MicroTime(micro_time(&self.clock));
        // Whole seconds, rounded up, for people; the record has it exactly.
        let seconds = i32::try_from(record.duration.as_millis().div_ceil(1000)).unwrap_or(i32::MAX).max(1);
        Lease {
            metadata: ObjectMeta {
                name: Some(record.replica.to_string()),
                namespace: Some(self.namespace.clone()),
                uid: replaces.map(|(uid, _)| uid.to_owned()),
                resource_version: replaces.map(|(_, version)| version.to_string()),
                labels: Some([(GROUP_LABEL.to_owned(), self.group.clone())].into()),
                annotations: Some([(LEASE_ANNOTATION.to_owned(), encode_lease(record))].into()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(match &record.revoked {
                    Some(_) => String::new(),
                    None => record.replica.to_string(),
                }),
                lease_duration_seconds: Some(seconds),
                renew_time: Some(now),
                ..LeaseSpec::default()
            }),
        }
    }

    /// Creates an empty record; never replaces one.
    pub(crate) async fn create_map(&self, limit: Duration) -> Outcome {
        let body = json!({
            "apiVersion": crd::resource().api_version,
            "kind": "ShardMap",
            "metadata": {"name": self.group, "namespace": self.namespace, "labels": {GROUP_LABEL: self.group}},
            "spec": {},
        });
        let request = Request::new(self.map_path()).create(&PostParams::default(), encoded(&body));
        self.write::<DynamicObject>(request, limit).await
    }

    /// Replaces the record in exactly this version. What people ask for and the conditions stay as they are.
    pub(crate) async fn write_map(&self, map: &ShardMap, resource_version: u64, limit: Duration) -> Outcome {
        self.patch_map(resource_version, json!(encode_map(map)), limit).await
    }

    /// Sets the conditions of the record in exactly this version.
    pub(crate) async fn write_conditions(
        &self,
        conditions: Value,
        resource_version: u64,
        limit: Duration,
    ) -> Outcome {
        self.patch_map(resource_version, json!({"conditions": conditions}), limit).await
    }

    async fn patch_map(&self, resource_version: u64, status: Value, limit: Duration) -> Outcome {
        // A deleted and recreated record has another version, too: versions are never used twice.
        let patch = json!({"metadata": {"resourceVersion": resource_version.to_string()}, "status": status});
        let params = PatchParams::default();
        let request = Request::new(self.map_path()).patch(&self.group, &params, &Patch::Merge(&patch));
        self.write::<DynamicObject>(request, limit).await
    }

    async fn write<T: DeserializeOwned + Identified>(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
        limit: Duration,
    ) -> Outcome {
        let Ok(mut request) = request else { return Outcome::Unknown };
        fence::limit(&mut request, limit);
        let answer = tokio::time::timeout(limit, self.client().request::<T>(request)).await;
        match answer {
            Ok(Ok(object)) => {
                let meta = object.meta();
                match (&meta.uid, version(meta.resource_version.as_deref())) {
                    (Some(uid), Some(resource_version)) => {
                        Outcome::Applied { uid: self.number_of(uid), resource_version }
                    }
                    _ => Outcome::Unknown,
                }
            }
            Ok(Err(error)) => outcome_of(&error, limit),
            Err(_) => Outcome::Unknown,
        }
    }
}

/// What an error says about a write. Where it may have been stored, nobody knows.
fn outcome_of(error: &kube::Error, limit: Duration) -> Outcome {
    let kube::Error::Api(status) = error else { return Outcome::Unknown };
    match status.code {
        409 => Outcome::Conflict,
        404 => Outcome::NotFound,
        429 => {
            let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            Outcome::Throttled { after: Duration::from_secs(u64::from(seconds.max(1))) }
        }
        400..=499 => {
            tracing::error!(%error, "a write of the shard records was refused");
            Outcome::Throttled { after: limit }
        }
        _ => Outcome::Unknown,
    }
}

trait Identified {
    fn meta(&self) -> &ObjectMeta;
}

impl Identified for Lease {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl Identified for DynamicObject {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// Reads a ShardMap object.
pub(crate) fn seen_map(object: &Value) -> Option<SeenMap> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str);
    let observed = read_map(object.get("status"));
    let spec = object.get("spec").and_then(|spec| serde_json::from_value(spec.clone()).ok());
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let raised = |condition: &Value| condition["type"] == "SlotsUnowned" && condition["status"] == "True";
    Some(SeenMap {
        uid: text("/metadata/uid").unwrap_or_default().to_owned(),
        resource_version: version(text("/metadata/resourceVersion"))?,
        observed,
        spec: Arc::new(spec.unwrap_or_default()),
        alarmed: conditions.is_some_and(|all| all.iter().any(raised)),
    })
}

/// A version as a number, which every Kubernetes server writes.
pub(crate) fn version(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

fn encoded(body: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(body).unwrap_or_default()
}

fn micro_time(clock: &Clock) -> jiff::Timestamp {
    jiff::Timestamp::from_microsecond(clock.now().0).unwrap_or_default()
}
