//! PUT of one object, and the way every change of an existing object takes.

use std::sync::Arc;

use serde_json::{Value, json};
use shoal_objects::managed_fields::{Entries, take_managed_fields};
use shoal_objects::{Errors, Path, meta};
use shoal_store::{EventKind, Object, Precondition, WriteError};

use crate::admission;
use crate::conversion;
use crate::encode;
use crate::handlers::create::{self, Written};
use crate::handlers::ownership::{self, Ownership, Proposal};
use crate::handlers::{Call, apply, complete, conform_known, custom, default, served, served_apart};
use crate::kinds::access::equal_but;
use crate::kinds::{namespace, pod};
use crate::registry::Resource;
use crate::response::Reply;
use crate::status::{Failure, Outcome};

/// How often a change that names no resourceVersion is tried on an object that others change too.
const TRIES: usize = 100;

/// Which part of the object a request may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Facet {
    /// Everything but the status.
    Main,
    /// The status.
    Status,
    /// A pod's ephemeral containers.
    EphemeralContainers,
    /// A pod's resources.
    Resize,
    /// A namespace's spec.finalizers.
    Finalize,
    /// A certificate request's approval conditions.
    Approval,
    /// What binding a pod to a node sets.
    Binding,
}

impl Facet {
    /// The facet behind a subresource.
    pub fn named(subresource: &str) -> Facet {
        match subresource {
            "ephemeralcontainers" => Facet::EphemeralContainers,
            "resize" => Facet::Resize,
            "finalize" => Facet::Finalize,
            "approval" => Facet::Approval,
            _ => Facet::Status,
        }
    }
}

/// Answers an update request.
pub async fn update(call: &Call<'_>, facet: Facet) -> Outcome<Reply> {
    let dry_run = call.dry_run("UpdateOptions")?;
    let resource = &call.target.resource;
    let mut object = call.body()?;
    create::check_namespace(call, &mut object)?;
    check_name(call, &mut object)?;
    default(resource, &mut object);
    let exists = call.stored().await;
    if facet == Facet::Main && resource.traits.create_on_update && exists.is_err() {
        let version = meta::resource_version(&object);
        if !version.is_empty() && version != "0" {
            return Err(Failure::not_found(resource, &call.target.name));
        }
        let written = create::insert(call, object, None, dry_run).await?;
        return create::answer(call, 201, &written).await;
    }
    if (facet == Facet::Main || resource.custom.is_some())
        && resource.traits.conditional_update
        && meta::resource_version(&object).is_empty()
    {
        exists?;
        let mut errors = Errors::new();
        errors.invalid(
            &Path::new("metadata").child("resourceVersion"),
            &json!(0),
            "must be specified for an update",
        );
        return Err(Failure::invalid(&resource.group, &resource.plural, &call.target.name, &errors));
    }
    let written = modify(call, facet, dry_run, |_| Ok(Some(Proposal::written(object.clone())))).await?;
    create::answer(call, 200, &written).await
}

fn check_name(call: &Call<'_>, object: &mut Value) -> Outcome<()> {
    let (given, wanted) = (meta::name(object), call.target.name.as_str());
    if given.is_empty() {
        object["metadata"]["name"] = Value::from(wanted);
    } else if given != wanted {
        return Err(Failure::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({wanted})"
        )));
    }
    Ok(())
}

/// An object as a change finds it.
pub struct Present<'o> {
    /// As it is stored.
    pub stored: &'o Object,
    /// In the version of the request, without its entries and without what only the wire shows: nulls, zeros, empty
    /// lists. Rules compare such objects.
    pub object: Value,
    /// Who owns what.
    pub entries: Entries<'o>,
    /// As a webhook has converted it.
    converted: Option<Value>,
}

/// How the new object is made from the present one.
pub enum Change<'a> {
    /// By a function.
    By(&'a mut (dyn FnMut(&Present<'_>) -> Outcome<Option<Proposal>> + Send)),
    /// By applying a configuration.
    Apply {
        /// What is applied.
        config: &'a Value,
        /// Nobody wants to know of an apply that changes nothing.
        quiet: bool,
    },
}

impl<'o> Present<'o> {
    async fn read(call: &Call<'_>, stored: &'o Object) -> Outcome<Present<'o>> {
        let resource = &*call.target.resource;
        let (mut object, entries) = served_apart(resource, stored)?;
        let converted = match conversion::webhook(resource) {
            Some(_) => Some(call.served(stored).await?),
            None => None,
        };
        if let Some(converted) = &converted {
            object.clone_from(converted);
            take_managed_fields(&mut object);
        }
        conform_known(resource, &mut object);
        Ok(Present { stored, object, entries, converted })
    }

    /// As clients see it.
    pub fn seen(&self, resource: &Resource) -> Outcome<Value> {
        match &self.converted {
            Some(converted) => Ok(converted.clone()),
            None => served(resource, self.stored),
        }
    }
}

/// Changes the object of the path: `propose` makes the new object from the present one.
pub async fn modify(
    call: &Call<'_>,
    facet: Facet,
    dry_run: bool,
    mut propose: impl FnMut(&Present<'_>) -> Outcome<Option<Proposal>> + Send,
) -> Outcome<Written> {
    modify_by(call, facet, dry_run, Change::By(&mut propose)).await
}

/// Changes the object of the path. The change is made again when another writer was faster, unless it names a
/// resourceVersion. Without a proposal nothing is written.
pub async fn modify_by(
    call: &Call<'_>,
    facet: Facet,
    dry_run: bool,
    mut change: Change<'_>,
) -> Outcome<Written> {
    let resource = &*call.target.resource;
    let mut stored = call.stored().await?;
    for _ in 0..TRIES {
        let found = stored.clone();
        let present = Present::read(call, &found).await?;
        let current = &present.object;
        let proposal = match &mut change {
            Change::By(propose) => propose(&present)?,
            Change::Apply { config, quiet } => apply::propose(call, facet, &present, config, *quiet).await?,
        };
        let proposal = match proposal {
            Some(proposal) => proposal,
            // Whoever judges or changes objects is asked even if nothing would change.
            None if admission::is_watched(call, dry_run).await? => {
                Proposal { object: current.clone(), ownership: Ownership::Kept }
            }
            None => return Ok(Written::Stored(stored)),
        };
        let Proposal { object: mut proposed, ownership } = proposal;
        let sent = take_managed_fields(&mut proposed);
        let conditional = check_version(resource, &proposed, current)?;
        prepare(call, facet, &mut proposed, current);
        // What admission and the server add belongs to nobody.
        let account = match ownership {
            Ownership::Kept => present.entries.kept(),
            Ownership::Applied(account) => account,
            Ownership::Written => {
                let objects = (current, &proposed);
                ownership::account(call, facet, &present.entries, sent.as_ref(), objects).await?
            }
        };
        if admission::update(call, facet, &mut proposed, current, dry_run).await? {
            // Webhooks may change no more than the client.
            prepare(call, facet, &mut proposed, current);
        }
        let reserved = call.server.allocate(resource, &mut proposed, Some(current), dry_run)?;
        validate(resource, facet, &proposed, current)?;
        let charge = admission::validate_update(call, facet, &proposed, current, dry_run).await?;
        (resource.rules.warnings)(&proposed).into_iter().for_each(|text| call.warn(text));
        complete(resource, &mut proposed);
        let finished = deletion_is_finished(&proposed, current);
        let shown = (dry_run || finished).then(|| ownership::with_entries(proposed.clone(), &account));
        let draft = encode::draft_with(resource, &call.to_storage(proposed).await?, &account.json);
        if account.unchanged && draft.is_stored_in(&stored.value, &present.entries.kept().json) {
            return Ok(Written::Stored(stored));
        }
        let result = match shown {
            Some(shown) if dry_run => return Ok(Written::Shown(shown)),
            // The deletion shows the object as it was last stored.
            Some(shown) => remove(call, &stored).await.map(|_| Written::Shown(shown)),
            None => {
                let precondition = Precondition::Revision(stored.revision);
                let seal = |revision, _| draft.seal(EventKind::Updated, revision);
                let put = call.server.store.put(&resource.table, &stored.key, precondition, seal);
                put.await.map(Written::Stored)
            }
        };
        match result {
            Ok(written) => {
                reserved.keep();
                charge.settle(call).await;
                if finished {
                    call.server.release(resource, current);
                }
                if let Written::Stored(object) = &written {
                    call.server.written(resource, object).await;
                    match facet {
                        Facet::Main => call.server.proven.accepted(call, object),
                        _ => call.server.proven.carried(stored.revision, object.revision),
                    }
                }
                return Ok(written);
            }
            Err(WriteError::Changed(_) | WriteError::Exists(_)) if conditional => {
                return Err(Failure::modified(resource, &call.target.name));
            }
            Err(WriteError::Changed(newer) | WriteError::Exists(newer)) => stored = newer,
            Err(WriteError::Missing) => return Err(Failure::not_found(resource, &call.target.name)),
            Err(WriteError::Unavailable(why)) => return Err(Failure::unavailable(&why)),
        }
    }
    Err(Failure::modified(resource, &call.target.name))
}

/// Deletes exactly this revision of an object.
pub async fn remove(call: &Call<'_>, stored: &Object) -> Result<Arc<Object>, WriteError> {
    let resource = &*call.target.resource;
    let value: Value = serde_json::from_slice(encode::object_slice(&stored.value)).unwrap_or_default();
    let draft = encode::draft(resource, &value);
    let seal = |revision| draft.seal(EventKind::Deleted, revision);
    let removed = call.server.store.delete(&resource.table, &stored.key, stored.revision, seal).await?;
    call.server.removed(resource, &removed).await;
    Ok(removed)
}

/// Refuses a proposal made from another version; tells whether it named one at all.
fn check_version(resource: &Resource, proposed: &Value, current: &Value) -> Outcome<bool> {
    let (name, uid) = (meta::name(current), meta::uid(proposed));
    if !uid.is_empty() && uid != meta::uid(current) {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            meta::uid(current)
        );
        return Err(Failure::conflict(&resource.group, &resource.plural, name, &why));
    }
    let version = meta::resource_version(proposed);
    if version.is_empty() {
        return Ok(false);
    }
    // A number, however it is written.
    let Ok(number) = version.parse::<u64>() else {
        let text = format!("strconv.ParseUint: parsing {version:?}: invalid syntax");
        return Err(Failure::internal(text));
    };
    if number != 0 && Ok(number) != meta::resource_version(current).parse() {
        return Err(Failure::modified(resource, name));
    }
    Ok(number != 0)
}

/// Carries over what this request may not change.
fn prepare(call: &Call<'_>, facet: Facet, proposed: &mut Value, current: &Value) {
    let resource = &*call.target.resource;
    let rules = &resource.rules;
    match facet {
        Facet::Main => {
            if resource.traits.status {
                carry(proposed, current, "status");
            }
            keep_system_metadata(proposed, current);
            (rules.prepare_update)(proposed, current);
        }
        Facet::Status | Facet::Approval => {
            let mut next = current.clone();
            if facet == Facet::Approval {
                next["status"]["conditions"] = proposed["status"]["conditions"].take();
            } else {
                carry(&mut next, proposed, "status");
            }
            if resource.traits.open_status {
                for field in ["labels", "annotations", "finalizers"] {
                    carry(&mut next["metadata"], &proposed["metadata"], field);
                }
            }
            *proposed = next;
            (rules.prepare_status)(proposed, current);
        }
        Facet::Binding => return,
        Facet::Finalize => {
            let mut next = current.clone();
            carry(&mut next, proposed, "spec");
            *proposed = next;
        }
        Facet::EphemeralContainers => pod::prepare_ephemeral_containers(proposed, current),
        Facet::Resize => pod::prepare_resize(proposed, current),
    }
    if resource.custom.is_some() {
        // Everything but the metadata counts; the status is the old one where it has a subresource.
        let changed = facet == Facet::Main && !equal_but(proposed, current, &["metadata"]);
        proposed["metadata"]["generation"] = (meta::generation(current) + i64::from(changed)).into();
        return;
    }
    let spec_changed = proposed.get("spec") != current.get("spec")
        || (resource.type_id.is_some()
            && current.get("spec").is_none()
            && !equal_but(proposed, current, &["metadata", "status"]));
    if resource.traits.generation {
        let generation = meta::generation(current) + i64::from(spec_changed);
        proposed["metadata"]["generation"] = generation.into();
    }
}

fn carry(to: &mut Value, from: &Value, field: &str) {
    let Some(members) = to.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => members.insert(field.to_owned(), value.clone()),
        None => members.remove(field),
    };
}

/// Fields of the metadata that only the server sets.
fn keep_system_metadata(proposed: &mut Value, current: &Value) {
    if let Some(metadata) = proposed.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("selfLink");
    }
    let metadata = &mut proposed["metadata"];
    for field in ["uid", "resourceVersion", "generation"] {
        carry(metadata, &current["metadata"], field);
    }
    for field in
        ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generateName", "namespace"]
    {
        if metadata.get(field).is_none() {
            carry(metadata, &current["metadata"], field);
        }
    }
}

fn validate(resource: &Resource, facet: Facet, proposed: &Value, current: &Value) -> Outcome<()> {
    let errors = match &resource.custom {
        Some(custom) => custom::validate(resource, custom, proposed, Some(current)),
        None => builtin_errors(resource, facet, proposed, current),
    };
    if errors.is_empty() {
        return Ok(());
    }
    Err(Failure::invalid(resource.error_group(), &resource.kind, meta::name(current), &errors))
}

fn builtin_errors(resource: &Resource, facet: Facet, proposed: &Value, current: &Value) -> Errors {
    let mut errors = Errors::new();
    // The real server checks the metadata once for all kinds and once more with each kind, and reports both.
    meta::validate_metadata_update(proposed, current, &mut errors);
    if !errors.is_empty() {
        meta::validate_metadata_update(proposed, current, &mut errors);
    }
    let rules = &resource.rules;
    match facet {
        Facet::Main => {
            (rules.validate)(proposed, &mut errors);
            (rules.validate_update)(proposed, current, &mut errors);
        }
        Facet::Status | Facet::Approval => (rules.validate_status)(proposed, current, &mut errors),
        Facet::EphemeralContainers => {
            pod::validate_ephemeral_containers_update(proposed, current, &mut errors);
        }
        Facet::Resize => pod::validate_resize(proposed, current, &mut errors),
        Facet::Finalize => namespace::validate_finalize(proposed, &mut errors),
        Facet::Binding => {}
    }
    errors
}

/// The last finalizer of an object marked for deletion is gone.
fn deletion_is_finished(proposed: &Value, current: &Value) -> bool {
    // Namespaces have no grace period.
    meta::deletion_grace_period_seconds(current).unwrap_or(0) == 0
        && meta::deletion_timestamp(current).is_some()
        && meta::finalizers(proposed).next().is_none()
        && proposed["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty)
}
