//! Writing: what a reconciler changes goes through a [`Writer`].
//!
//! A writer applies with one field manager, sends nothing when nothing would change, puts preconditions on what it
//! changes and deletes, and stops at once when the work it writes for has gone to another replica ([`Fence`]).

mod children;
pub(crate) mod fence;
mod memory;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use fence::{Fence, Permit};

use crate::gate::Shard;
use crate::reconcile::{Class, Error, Result, class_of};
use crate::{ObjectKey, owner};
use memory::Memory;

/// How often [`Writer::modify`] reads again after a conflict before it gives up.
const CONFLICT_ATTEMPTS: u32 = 6;

/// A kind known at compile time: what the writer can read and write.
pub trait Object:
    Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug + Send + Sync + 'static
{
}

impl<T> Object for T where
    T: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug + Send + Sync + 'static
{
}

/// What came of an apply.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied<T> {
    /// The cluster already has it; nothing was sent.
    InEffect,
    /// It was sent; this is the object now.
    Written(Box<T>),
}

/// Which part of an object a write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    Main,
    Status,
}

/// Writes objects for one controller. Clones share what was written last.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use shoal_runtime::{Applied, ObjectKey, Writer};
///
/// # let cluster = shoal_testkit::Cluster::start().await;
/// // In a reconciler: `context.writer()`.
/// let writer = Writer::new(cluster.client(), "web");
/// let map = |value: &str| -> ConfigMap {
///     let map = serde_json::json!({"metadata": {"name": "a", "namespace": "default"}, "data": {"k": value}});
///     serde_json::from_value(map).unwrap()
/// };
/// let Applied::Written(live) = writer.apply(&map("1"), None).await? else { return Err("it was not there".into()) };
/// // The same again: nothing is sent, because the cluster has it already.
/// assert_eq!(writer.apply(&map("1"), Some(&live)).await?, Applied::InEffect);
/// assert!(matches!(writer.apply(&map("2"), Some(&live)).await?, Applied::Written(_)));
///
/// // Read, change, write; after a conflict, once more from the beginning.
/// let key = ObjectKey::new("default", "a");
/// let changed = writer
///     .modify::<ConfigMap>(&key, None, |map| {
///         map.data.get_or_insert_default().insert("more".to_owned(), "3".to_owned());
///     })
///     .await?;
/// # let _ = changed;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Writer {
    client: Client,
    field_manager: Arc<str>,
    memory: Arc<Memory>,
    fence: Option<Fence>,
    /// The label of children that are created, and its value.
    slot: Option<(Arc<str>, u32)>,
}

impl Writer {
    /// A writer whose fields belong to `field_manager`, by custom the controller's name.
    pub fn new(client: Client, field_manager: &str) -> Writer {
        Writer {
            client,
            field_manager: field_manager.into(),
            memory: Arc::default(),
            fence: None,
            slot: None,
        }
    }

    /// The same writer for work that may end at any moment: asked before every request.
    #[must_use]
    pub fn fenced(&self, fence: Fence) -> Writer {
        Writer { fence: Some(fence), ..self.clone() }
    }

    /// The same writer for work that was let in by a gate. Children that it makes carry the label of their slot.
    pub(crate) fn within(&self, fence: Option<Fence>, shard: Option<&Shard>) -> Writer {
        let slot = shard.map(|shard| (shard.label.clone(), shard.slot));
        Writer { fence, slot, ..self.clone() }
    }

    /// Puts the label of the slot on an object that another one controls.
    fn label(&self, body: &mut Value) {
        let Some((label, slot)) = &self.slot else { return };
        let owners = body.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        if !owners.is_some_and(|owners| owners.iter().any(|owner| owner["controller"] == true)) {
            return;
        }
        let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) else { return };
        let labels = metadata.entry("labels").or_insert_with(|| Value::Object(serde_json::Map::new()));
        if let Some(labels) = labels.as_object_mut() {
            labels.insert(label.to_string(), Value::String(slot.to_string()));
        }
    }

    /// The name under which fields are owned.
    pub fn field_manager(&self) -> &str {
        &self.field_manager
    }

    /// The client behind this writer, for requests that it does not know.
    /// They are neither fenced nor skipped.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Makes the cluster have the fields of `desired`, by server-side apply.
    ///
    /// Fields that an earlier apply set and `desired` lacks are removed; fields of others stay, but where both want
    /// one this writer wins. With `live`, the object as the cache has it, nothing is sent when nothing would change.
    pub async fn apply<T: Object>(&self, desired: &T, live: Option<&T>) -> Result<Applied<T>> {
        self.apply_part(desired, live, Part::Main).await
    }

    /// As [`Writer::apply`], with `owner` as the controlling owner of `child`.
    pub async fn apply_child<O, T>(&self, parent: &O, child: &T, live: Option<&T>) -> Result<Applied<T>>
    where
        O: Object,
        T: Object,
    {
        let mut child = child.clone();
        owner::set_controller(parent, &mut child)?;
        self.apply(&child, live).await
    }

    /// Sets the status that `object` carries, and only that.
    ///
    /// `live` is the object as it was read: an equal status sends nothing.
    pub async fn apply_status<T: Object>(&self, object: &T, live: Option<&T>) -> Result<Applied<T>> {
        self.apply_part(object, live, Part::Status).await
    }

    async fn apply_part<T: Object>(&self, desired: &T, live: Option<&T>, part: Part) -> Result<Applied<T>> {
        let key = ObjectKey::of(desired);
        let action = || describe::<T>("apply", &key, part);
        let mut body = to_value(desired, &action)?;
        prepare(&mut body, part);
        if part == Part::Main {
            self.label(&mut body);
        }
        let place = memory::Place { path: path_of::<T>(&key), name: key.name.clone(), part };
        let print = memory::fingerprint(&body);
        if let Some(live) = live
            && self.memory.in_effect(&place, print, live, &body)
        {
            return Ok(Applied::InEffect);
        }
        if self.fence.is_some() {
            // Another replica may have worked on the object since the cache saw it.
            let fresh;
            let seen = match live {
                Some(live) => Some(live),
                None => {
                    fresh = self.get::<T>(&key).await?;
                    fresh.as_ref()
                }
            };
            if let Some(seen) = seen {
                fence::pin(&mut body, seen.meta());
            }
        }
        let params = PatchParams::apply(&self.field_manager).force();
        let request = Request::new(place.path.clone());
        let patch = Patch::Apply(&body);
        let request = match part {
            Part::Main => request.patch(&key.name, &params, &patch),
            Part::Status => request.patch_subresource("status", &key.name, &params, &patch),
        };
        let written: T = self.send(request, &action).await?;
        self.memory.remember(place, print, written.meta());
        Ok(Applied::Written(Box::new(written)))
    }

    /// Creates an object. Work that is fenced needs a name: a retried `generateName` would make two.
    pub async fn create<T: Object>(&self, object: &T) -> Result<T> {
        let key = ObjectKey::of(object);
        let action = || describe::<T>("create", &key, Part::Main);
        if self.fence.is_some() && object.meta().name.is_none() {
            let remedy = "needs metadata.name: sharded work must not use generateName, because a repeated request would make a second object";
            return Err(Error::permanent(format!("{}: {remedy}", action())));
        }
        let params =
            PostParams { field_manager: Some(self.field_manager.to_string()), ..PostParams::default() };
        let mut body = to_value(object, &action)?;
        self.label(&mut body);
        let body = serde_json::to_vec(&body).map_err(|error| Error::permanent(action()).because(error))?;
        self.send(Request::new(path_of::<T>(&key)).create(&params, body), &action).await
    }

    /// Reads an object from the API server, not from the cache. `None` when the server says that it does not exist.
    pub async fn get<T: Object>(&self, key: &ObjectKey) -> Result<Option<T>> {
        let action = || describe::<T>("read", key, Part::Main);
        let request = Request::new(path_of::<T>(key)).get(&key.name, &GetParams::default());
        absent_as_none(self.send(request, &action).await)
    }

    /// Changes an object by reading, changing and replacing it; after a conflict, reads again and repeats.
    ///
    /// `cached` is tried first. Nothing is sent when `change` changes nothing. `None`: the object does not exist.
    pub async fn modify<T: Object>(
        &self,
        key: &ObjectKey,
        cached: Option<&T>,
        change: impl FnMut(&mut T),
    ) -> Result<Option<T>> {
        self.modify_part(key, cached, change, Part::Main).await
    }

    /// As [`Writer::modify`], for the status.
    pub async fn modify_status<T: Object>(
        &self,
        key: &ObjectKey,
        cached: Option<&T>,
        change: impl FnMut(&mut T),
    ) -> Result<Option<T>> {
        self.modify_part(key, cached, change, Part::Status).await
    }

    async fn modify_part<T: Object>(
        &self,
        key: &ObjectKey,
        cached: Option<&T>,
        mut change: impl FnMut(&mut T),
        part: Part,
    ) -> Result<Option<T>> {
        let action = || describe::<T>("update", key, part);
        let mut current = cached.cloned();
        let mut attempt = 0;
        loop {
            let Some(before) = (match current.take() {
                Some(object) => Some(object),
                None => self.get::<T>(key).await?,
            }) else {
                return Ok(None);
            };
            let mut after = before.clone();
            change(&mut after);
            if to_value(&before, &action)? == to_value(&after, &action)? {
                return Ok(Some(before));
            }
            let params =
                PostParams { field_manager: Some(self.field_manager.to_string()), ..PostParams::default() };
            let body =
                serde_json::to_vec(&after).map_err(|error| Error::permanent(action()).because(error))?;
            let request = Request::new(path_of::<T>(key));
            let request = match part {
                Part::Main => request.replace(&key.name, &params, body),
                Part::Status => request.replace_subresource("status", &key.name, &params, body),
            };
            match self.send::<T>(request, &action).await {
                Ok(object) => return Ok(Some(object)),
                Err(error) if status_code(&error) == Some(404) => return Ok(None),
                Err(error) if status_code(&error) == Some(409) && attempt + 1 < CONFLICT_ATTEMPTS => {
                    attempt += 1;
                    tokio::time::sleep(Duration::from_millis(5 << attempt)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A JSON merge patch of an object that was read, refused by the server if the object has changed since.
    pub async fn patch_as_read<T: Object>(&self, read: &T, mut patch: Value) -> Result<T> {
        let key = ObjectKey::of(read);
        let action = || describe::<T>("patch", &key, Part::Main);
        fence::pin(&mut patch, read.meta());
        let params =
            PatchParams { field_manager: Some(self.field_manager.to_string()), ..PatchParams::default() };
        self.send(Request::new(path_of::<T>(&key)).patch(&key.name, &params, &Patch::Merge(&patch)), &action)
            .await
    }

    /// Deletes exactly this object, dependents in the background. An object that is already gone, or replaced by
    /// another of the same name, is no error: `false`.
    pub async fn delete<T: Object>(&self, object: &T) -> Result<bool> {
        self.delete_with(object, DeleteParams::background()).await
    }

    /// As [`Writer::delete`], with other options. The uid is always a precondition.
    pub async fn delete_with<T: Object>(&self, object: &T, mut params: DeleteParams) -> Result<bool> {
        let key = ObjectKey::of(object);
        let action = || describe::<T>("delete", &key, Part::Main);
        let Some(uid) = object.meta().uid.clone() else {
            return Err(Error::permanent(format!(
                "{}: only objects that were read can be deleted, this one has no uid",
                action()
            )));
        };
        params.preconditions.get_or_insert(Preconditions { uid: None, resource_version: None }).uid =
            Some(uid);
        let request = Request::new(path_of::<T>(&key)).delete(&key.name, &params);
        // The answer is the object while it waits for finalizers and a Status when it is gone.
        match self.send::<Value>(request, &action).await {
            Ok(_) => {
                self.memory.forget(&path_of::<T>(&key), &key.name);
                Ok(true)
            }
            Err(error) if status_code(&error) == Some(404) => Ok(false),
            Err(error) if status_code(&error) == Some(409) && params_name_only_uid(&params) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn send<R: DeserializeOwned>(
        &self,
        request: std::result::Result<http::Request<Vec<u8>>, kube::core::request::Error>,
        action: &impl Fn() -> String,
    ) -> Result<R> {
        let mut request = request.map_err(|error| Error::permanent(action()).because(error))?;
        let reading = request.method() == http::Method::GET;
        let limit = match &self.fence {
            Some(fence) => {
                Some(fence.check().map_err(|error| Error::transient(action()).because(error))?.remaining)
            }
            None => None,
        };
        if let Some(limit) = limit
            && !reading
        {
            fence::limit(&mut request, limit);
        }
        let answer = self.client.request::<R>(request);
        let answer = match limit {
            Some(limit) => tokio::time::timeout(limit, answer).await.map_err(|_| {
                Error::transient(format!("{}: no answer while this replica may still work on it", action()))
            })?,
            None => answer.await,
        };
        answer.map_err(|error| Error {
            class: class_of(&error),
            action: action().into(),
            source: Some(error.into()),
        })
    }
}

/// The HTTP status of an API error below `error`.
pub fn status_code(error: &Error) -> Option<u16> {
    match error.source.as_ref()?.downcast_ref::<kube::Error>()? {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

fn params_name_only_uid(params: &DeleteParams) -> bool {
    params.preconditions.as_ref().is_none_or(|preconditions| preconditions.resource_version.is_none())
}

fn absent_as_none<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(object) => Ok(Some(object)),
        Err(error) if status_code(&error) == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}

fn path_of<T: Object>(key: &ObjectKey) -> String {
    T::url_path(&(), Some(&*key.namespace).filter(|namespace| !namespace.is_empty()))
}

fn describe<T: Object>(verb: &str, key: &ObjectKey, part: Part) -> String {
    let part = match part {
        Part::Main => "",
        Part::Status => "the status of ",
    };
    format!("cannot {verb} {part}{} {key}", T::kind(&()))
}

fn to_value<T: Serialize>(object: &T, action: &impl Fn() -> String) -> Result<Value> {
    serde_json::to_value(object).map_err(|error| Error {
        class: Class::Permanent,
        action: action().into(),
        source: Some(error.into()),
    })
}

/// Leaves in an applied configuration only what this writer means to own.
fn prepare(body: &mut Value, part: Part) {
    let Some(fields) = body.as_object_mut() else { return };
    match part {
        Part::Main => {
            fields.remove("status");
            if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
                // What the server fills in: an object that was read may be changed and applied as it is.
                for name in
                    ["managedFields", "creationTimestamp", "generation", "selfLink", "deletionTimestamp"]
                {
                    metadata.remove(name);
                }
            }
        }
        Part::Status => {
            fields.retain(|name, _| matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
            if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
                metadata.retain(|name, _| matches!(name.as_str(), "name" | "namespace" | "uid"));
            }
        }
    }
}
