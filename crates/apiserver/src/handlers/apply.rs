//! Server-side apply: PATCH with `application/apply-patch+yaml`.

use http::StatusCode;
use serde_json::{Value, json};
use shoal_objects::managed_fields::{
    self, Account, Applied, Config, Conflict, Entries, KUBECTL, LAST_APPLIED, Writer, check,
    sync_last_applied,
};
use shoal_objects::meta;

use crate::authorize::{Attributes, refusal};
use crate::builtin;
use crate::decode;
use crate::handlers::create::{self, Written};
use crate::handlers::edited::edited;
use crate::handlers::ownership::{Ownership, Proposal, with_writer};
use crate::handlers::repeated::Repeated;
use crate::handlers::update::{Change, Facet, Present, modify_by};
use crate::handlers::{Call, FieldValidation, custom, default};
use crate::registry::Resource;
use crate::response::Reply;
use crate::status::{Failure, Outcome};

/// How often an object that comes and goes meanwhile is tried again.
const TRIES: usize = 5;

/// Answers an apply request. What does not exist is created.
pub async fn apply(call: &Call<'_>, facet: Facet) -> Outcome<Reply> {
    let dry_run = call.dry_run("PatchOptions")?;
    let resource = &*call.target.resource;
    let mut config = None;
    for attempt in 1.. {
        let stored = call.stored().await;
        let repeated = match &stored {
            Ok(stored) => Repeated::of(call, stored).await,
            Err(_) => None,
        };
        if let (Ok(stored), Some(repeated)) = (&stored, &repeated)
            && repeated.is_known()
        {
            return call.answer_stored(200, stored).await;
        }
        if let (Ok(stored), Some(repeated)) = (&stored, &repeated)
            && !dry_run
            && let Some(written) = edited(call, stored).await
        {
            let written = written?;
            if let Written::Stored(now) = &written {
                repeated.remember(now);
            }
            return create::answer(call, 200, &written).await;
        }
        let config = match &config {
            Some(config) => config,
            None => config.insert(read(call, &resource.group, &resource.version, &resource.kind)?),
        };
        if stored.is_err() && facet == Facet::Main {
            match create(call, config, dry_run).await {
                Err(failure) if failure.reason == "AlreadyExists" && attempt < TRIES => continue,
                written => return create::answer(call, 201, &written?).await,
            }
        }
        let quiet = repeated.is_some();
        match modify_by(call, facet, dry_run, Change::Apply { config, quiet }).await {
            Err(failure) if failure.reason == "NotFound" && facet == Facet::Main && attempt < TRIES => {}
            written => {
                let written = written?;
                if let (Written::Stored(now), Some(repeated)) = (&written, repeated) {
                    repeated.remember(now);
                }
                return create::answer(call, 200, &written).await;
            }
        }
    }
    Err(Failure::modified(resource, &call.target.name))
}

/// Applies to the scale of an object: the same as applying its replicas, under the name of the subresource.
pub async fn scale(call: &Call<'_>, replicas_path: &[String]) -> Outcome<Written> {
    let dry_run = call.dry_run("PatchOptions")?;
    let resource = &*call.target.resource;
    let config = read(call, "autoscaling", "v1", "Scale")?;
    let scale = managed_fields::Schema {
        types: builtin::types(),
        root: builtin::type_of("autoscaling", "v1", "Scale"),
    };
    check(scale, &config).map_err(|why| form_failure(&config, "autoscaling", "v1", "Scale", &why))?;
    let mut parent = json!({
        "apiVersion": &*resource.api_version, "kind": &*resource.kind, "metadata": {"name": call.target.name},
    });
    if let Some(version) = config.pointer("/metadata/resourceVersion") {
        parent["metadata"]["resourceVersion"] = version.clone();
    }
    if let Some(replicas) = config.pointer("/spec/replicas") {
        crate::registry::custom::set_at_path(&mut parent, replicas_path, replicas.clone());
    }
    modify_by(call, Facet::Main, dry_run, Change::Apply { config: &parent, quiet: false }).await
}

/// Reads the configuration and refuses what could never be applied.
fn read(call: &Call<'_>, group: &str, version: &str, kind: &str) -> Outcome<Value> {
    // Mostly it is JSON, which is read much faster.
    let json = call.body.first() == Some(&b'{');
    let parsed = if json { decode::parse_json(&call.body).ok() } else { None };
    let parsed = parsed.map_or_else(|| decode::parse_yaml(&call.body), Ok);
    let (config, duplicates) =
        parsed.map_err(|why| Failure::bad_request(format!("error decoding YAML: {why}")))?;
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let given = text("apiVersion");
    let (given_group, given_version) = given.split_once('/').unwrap_or(("", given));
    if (given_group, given_version, text("kind")) != (group, version, kind) {
        let found = text("kind");
        return Err(Failure::bad_request(format!(
            "invalid object type: {given_group}/{given_version}, Kind={found}"
        )));
    }
    if config.pointer("/metadata/managedFields").is_some_and(Value::is_array) {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    if !duplicates.is_empty() {
        let why: Vec<String> =
            duplicates.iter().map(|path| format!("key {path:?} already set in map")).collect();
        let why = format!("error strict decoding YAML: {}", why.join(", "));
        match call.field_validation() {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => call.warn(why),
            FieldValidation::Strict => return Err(Failure::bad_request(why)),
        }
    }
    Ok(config)
}

/// Makes an object of a configuration alone.
async fn create(call: &Call<'_>, config: &Value, dry_run: bool) -> Outcome<Written> {
    let resource = &*call.target.resource;
    if !resource.allows("create") {
        return Err(Failure::not_found(resource, &call.target.name));
    }
    check_may_create(call)?;
    let nothing = (&json!({}), &Entries::default());
    let Some((object, account)) = applied(call, Facet::Main, nothing, config, false).await? else {
        return Err(Failure::bad_request("the configuration is empty"));
    };
    if !meta::uid(&object).is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {}, and no existing object was found",
            meta::uid(&object)
        );
        return Err(Failure::conflict(&resource.group, &resource.plural, &call.target.name, &why));
    }
    create::insert(call, object, Some(account), dry_run).await
}

/// Whoever applies what does not exist needs the right to create it.
fn check_may_create(call: &Call<'_>) -> Outcome<()> {
    let target = &call.target;
    let attributes = Attributes {
        verb: "create".to_owned(),
        group: target.resource.group.to_string(),
        resource: target.resource.plural.to_string(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        ..Attributes::default()
    };
    if call.server.authorizer.allows(&call.user, &attributes) {
        Ok(())
    } else {
        Err(refusal(&call.user, &attributes))
    }
}

/// The object as the configuration makes it. `None` when nothing changes.
pub async fn propose(
    call: &Call<'_>,
    facet: Facet,
    present: &Present<'_>,
    config: &Value,
    quiet: bool,
) -> Outcome<Option<Proposal>> {
    let applied = applied(call, facet, (&present.object, &present.entries), config, quiet).await?;
    if applied.is_none() {
        (call.target.resource.rules.warnings)(&present.object).into_iter().for_each(|text| call.warn(text));
    }
    Ok(applied.map(|(mut object, account)| {
        // Made again when another writer was faster, unless it is for one version only.
        if config.pointer("/metadata/resourceVersion").is_none()
            && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("resourceVersion");
        }
        Proposal { object, ownership: Ownership::Applied(account) }
    }))
}

/// The object and its entries as the configuration makes them, in the form of their type. `None` when nothing changes,
/// unless others want to know of that too.
async fn applied(
    call: &Call<'_>,
    facet: Facet,
    (live, entries): (&Value, &Entries<'_>),
    config: &Value,
    quiet: bool,
) -> Outcome<Option<(Value, Account)>> {
    let resource = &*call.target.resource;
    let force = call.query.get("force").is_some() && call.query.flag("force");
    let applied = with_writer(call, facet, |writer| {
        let form =
            |why: String| form_failure(config, &resource.group, &resource.version, &resource.kind, &why);
        let parsed = Config::new(writer, config).map_err(form)?;
        if quiet && parsed.is_in_effect(writer, entries, live) && !annotation_differs(writer, live, config) {
            return Ok(None);
        }
        let applied = managed_fields::apply(writer, entries, live, parsed, force);
        let Applied { object, entries } = applied.map_err(|found| conflict_failure(&found))?;
        let mut object = object.unwrap_or_else(|| live.clone());
        if writer.manager == KUBECTL {
            sync_last_applied(&mut object, config);
        }
        Ok(Some((object, entries)))
    })
    .await?;
    let Some((mut object, account)) = applied? else { return Ok(None) };
    check_identity(call, &mut object)?;
    conform(resource, &mut object)?;
    default(resource, &mut object);
    Ok(Some((object, account)))
}

/// Whether the annotation that kubectl's older way of applying reads is there and out of date.
fn annotation_differs(writer: &Writer<'_>, live: &Value, config: &Value) -> bool {
    let there = meta::metadata(live).and_then(|m| m.get("annotations")?.get(LAST_APPLIED)).is_some();
    if writer.manager != KUBECTL || !there {
        return false;
    }
    let mut next = live.clone();
    sync_last_applied(&mut next, config);
    next != *live
}

/// Applying cannot make another object of this one.
fn check_identity(call: &Call<'_>, object: &mut Value) -> Outcome<()> {
    let (name, wanted) = (meta::name(object), call.target.name.as_str());
    if name.is_empty() {
        return Err(Failure::bad_request(format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        )));
    }
    // The namespace comes first.
    create::check_namespace(call, object)?;
    let name = meta::name(object);
    if name != wanted {
        return Err(Failure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({wanted})"
        )));
    }
    Ok(())
}

fn conform(resource: &Resource, object: &mut Value) -> Outcome<()> {
    let conformed = match (&resource.custom, resource.type_id) {
        (Some(custom), _) => custom::conform(custom, object),
        (None, Some(type_id)) => decode::conform(builtin::types(), type_id, object),
        (None, None) => return Ok(()),
    };
    let version = &resource.api_version;
    conformed.map(|_| ()).map_err(|why| {
        Failure::internal(format!("failed to convert new object to proper version: {why} (to {version})"))
    })
}

/// The real server answers configurations of the wrong form as internal errors.
fn form_failure(config: &Value, group: &str, version: &str, kind: &str, why: &str) -> Failure {
    let (namespace, name) = (meta::namespace(config), meta::name(config));
    Failure::internal(format!(
        "failed to create typed patch object ({namespace}/{name}; {group}/{version}, Kind={kind}): {why}"
    ))
}

fn conflict_failure(conflicts: &[Conflict]) -> Failure {
    let message = match conflicts {
        [one] => format!("Apply failed with 1 conflict: conflict with {}: {}", one.manager, one.field),
        many => {
            let mut managers: Vec<&str> = many.iter().map(|c| c.manager.as_str()).collect();
            managers.sort_unstable();
            managers.dedup();
            let mut lines = Vec::new();
            for manager in managers {
                lines.push(format!("conflicts with {manager}:"));
                lines.extend(many.iter().filter(|c| c.manager == manager).map(|c| format!("- {}", c.field)));
            }
            format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
        }
    };
    let mut failure = Failure::new(StatusCode::CONFLICT, "Conflict", message);
    let causes: Vec<Value> = conflicts
        .iter()
        .map(|c| {
            let message = format!("conflict with {}", c.manager);
            json!({"reason": "FieldManagerConflict", "message": message, "field": c.field})
        })
        .collect();
    failure.detail("causes", Value::Array(causes));
    failure
}
