//! DELETE of one object: at once, after a grace period, or when its finalizers are gone.

use serde_json::{Value, json};
use shoal_objects::{Errors, meta};
use shoal_store::{EventKind, Object, Precondition, WriteError};
use std::sync::Arc;

use crate::admission;
use crate::definitions;
use crate::encode;
use crate::handlers::Call;
use crate::handlers::update::remove;
use crate::kinds::options;
use crate::negotiate::{BodyFormat, body_format};
use crate::response::Reply;
use crate::status::{Failure, Outcome};
use crate::{builtin, decode, protobuf};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
const TRIES: usize = 100;

/// What became of the object.
pub enum Deleted {
    /// It is gone; this is how it was last.
    Gone(Value),
    /// It is marked, and goes later.
    Pending(Value),
}

/// Answers a delete request.
pub async fn delete(call: &Call<'_>) -> Outcome<Reply> {
    let options = read_options(call)?;
    let resource = &call.target.resource;
    admission::delete(call)?;
    if &*resource.plural == "jobs"
        && options.get("propagationPolicy").is_none()
        && options.get("orphanDependents").is_none()
    {
        call.warn(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove \
             them or set propagationPolicy=Orphan to suppress this warning",
        );
    }
    let stored = call.stored().await?;
    match delete_stored(call, stored, &options).await? {
        Deleted::Gone(object) if !resource.traits.delete_returns_object => {
            let mut details =
                json!({"name": meta::name(&object), "kind": &*resource.plural, "uid": meta::uid(&object)});
            if !resource.group.is_empty() {
                details["group"] = Value::from(&*resource.group);
            }
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
            });
            crate::response::reply(call, 200, &status)
        }
        Deleted::Gone(object) => call.answer(200, &object),
        Deleted::Pending(object) => {
            let code = if options.get("orphanDependents") == Some(&Value::Bool(false)) { 202 } else { 200 };
            call.answer(code, &object)
        }
    }
}

/// DeleteOptions from the body and the query.
pub fn read_options(call: &Call<'_>) -> Outcome<Value> {
    let mut options = if call.body.is_empty() { json!({}) } else { body_options(call)? };
    let query = &call.query;
    if let Some(seconds) = query.number("gracePeriodSeconds")? {
        options["gracePeriodSeconds"] = seconds.into();
    }
    if let Some(policy) = query.get("propagationPolicy") {
        options["propagationPolicy"] = policy.into();
    }
    if query.get("orphanDependents").is_some() {
        options["orphanDependents"] = query.flag("orphanDependents").into();
    }
    let dry_run: Vec<&str> = query.all("dryRun").filter(|v| !v.is_empty()).collect();
    if !dry_run.is_empty() {
        options["dryRun"] = dry_run.into();
    }
    check_options(&options)?;
    Ok(options)
}

/// Refuses options that make no sense.
pub fn check_options(options: &Value) -> Outcome<()> {
    let mut errors = Errors::new();
    options::validate_delete(options, &mut errors);
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Failure::invalid("meta.k8s.io", "DeleteOptions", "", &errors))
    }
}

fn body_options(call: &Call<'_>) -> Outcome<Value> {
    let mut value = match body_format(call.headers)? {
        BodyFormat::Json => decode::parse_json(&call.body).map(|(v, _)| v).map_err(Failure::bad_request)?,
        BodyFormat::Yaml => decode::parse_yaml(&call.body).map(|(v, _)| v).map_err(Failure::bad_request)?,
        BodyFormat::Protobuf => {
            protobuf::decode_request(&call.body).map_err(|e| Failure::bad_request(e.to_string()))?
        }
    };
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or("DeleteOptions");
    if kind != "DeleteOptions" {
        let version = value["apiVersion"].as_str().unwrap_or_default();
        let text = format!("no kind {kind:?} is registered for version {version:?} in the scheme of options");
        return Err(Failure::bad_request(text));
    }
    if let Some(type_id) = builtin::type_of("", "v1", "DeleteOptions") {
        decode::conform(builtin::types(), type_id, &mut value).map_err(Failure::bad_request)?;
    }
    if !value.is_object() {
        return Err(Failure::bad_request("the body is not a DeleteOptions object"));
    }
    Ok(value)
}

/// Deletes a stored object as the options want it. Another writer in between means another try.
pub async fn delete_stored(call: &Call<'_>, mut stored: Arc<Object>, options: &Value) -> Outcome<Deleted> {
    let resource = &*call.target.resource;
    let dry_run = options.get("dryRun").and_then(Value::as_array).is_some_and(|d| !d.is_empty());
    let conditional = options.pointer("/preconditions/resourceVersion").is_some();
    for _ in 0..TRIES {
        let current = call.served(&stored).await?;
        check_preconditions(call, &current, options)?;
        admission::validate_delete(call, &current, dry_run).await?;
        let step = if &*resource.plural == "namespaces" && resource.group.is_empty() {
            plan_namespace(call, &current, options)
        } else if &*resource.table == definitions::TABLE && meta::deletion_timestamp(&current).is_none() {
            Step::Mark(definitions::mark_for_deletion(call.server, &current), false)
        } else {
            plan(call, &current, options)
        };
        let result = match step {
            Step::Nothing => return Ok(Deleted::Pending(current)),
            Step::Remove if dry_run => return Ok(Deleted::Gone(current)),
            Step::Remove => gone(call, &stored, &current).await,
            Step::Mark(marked, _) if dry_run => return Ok(Deleted::Pending(marked)),
            Step::Mark(marked, then_remove) => match write(call, &stored, &current, &marked).await? {
                Ok(object) if then_remove => finish(call, object).await?,
                Ok(object) => {
                    call.server.written(resource, &object).await;
                    Ok(Deleted::Pending(call.served(&object).await?))
                }
                Err(error) => Err(error),
            },
        };
        match result {
            Ok(deleted) => return Ok(deleted),
            Err(WriteError::Changed(_) | WriteError::Exists(_)) if conditional => {
                return Err(Failure::modified(resource, meta::name(&current)));
            }
            Err(WriteError::Changed(newer) | WriteError::Exists(newer)) => stored = newer,
            Err(WriteError::Missing) => return Err(Failure::not_found(resource, meta::name(&current))),
            Err(WriteError::Unavailable(why)) => return Err(Failure::unavailable(&why)),
        }
    }
    Err(Failure::modified(resource, &call.target.name))
}

/// Removes what has just been marked. Whoever stops the pod sees the mark at once and may write its last state, or remove it, first:
/// then it is gone as it was asked for.
async fn finish(call: &Call<'_>, marked: Arc<Object>) -> Outcome<Result<Deleted, WriteError>> {
    let current = call.served(&marked).await?;
    let mut result = gone(call, &marked, &current).await;
    for _ in 0..TRIES {
        match result {
            Err(WriteError::Missing) => return Ok(Ok(Deleted::Gone(current))),
            Err(WriteError::Changed(newer)) => {
                let last = call.served(&newer).await?;
                if meta::uid(&last) != meta::uid(&current) {
                    return Ok(Ok(Deleted::Gone(current)));
                }
                if meta::finalizers(&last).next().is_some() {
                    return Ok(Ok(Deleted::Pending(last)));
                }
                result = gone(call, &newer, &last).await;
            }
            done => return Ok(done),
        }
    }
    Ok(result)
}

async fn gone(call: &Call<'_>, stored: &Object, current: &Value) -> Result<Deleted, WriteError> {
    let object = remove(call, stored).await?;
    let resource = &*call.target.resource;
    call.server.release(resource, current);
    let mut last = current.clone();
    last["metadata"]["resourceVersion"] = object.revision.to_string().into();
    Ok(Deleted::Gone(last))
}

async fn write(
    call: &Call<'_>,
    stored: &Arc<Object>,
    current: &Value,
    marked: &Value,
) -> Outcome<Result<Arc<Object>, WriteError>> {
    if marked == current {
        return Ok(Ok(stored.clone()));
    }
    let resource = &*call.target.resource;
    let draft = encode::draft(resource, &call.to_storage(marked.clone()).await?);
    let seal = |revision, _| draft.seal(EventKind::Updated, revision);
    let precondition = Precondition::Revision(stored.revision);
    Ok(call.server.store.put(&resource.table, &stored.key, precondition, seal).await)
}

fn check_preconditions(call: &Call<'_>, current: &Value, options: &Value) -> Outcome<()> {
    let resource = &call.target.resource;
    let wanted = |field: &str| options["preconditions"][field].as_str();
    let (uid, version) = (meta::uid(current), meta::resource_version(current));
    let why = match (wanted("uid"), wanted("resourceVersion")) {
        (Some(w), _) if w != uid => format!(
            "the UID in the precondition ({w}) does not match the UID in record ({uid}). The object might have been \
             deleted and then recreated"
        ),
        (_, Some(w)) if w != version => format!(
            "the ResourceVersion in the precondition ({w}) does not match the ResourceVersion in record ({version}). The \
             object might have been modified"
        ),
        _ => return Ok(()),
    };
    Err(Failure::conflict(&resource.group, &resource.kind, meta::name(current), &why))
}

/// What a deletion does next.
enum Step {
    /// It is under way already.
    Nothing,
    /// The object goes now.
    Remove,
    /// The object is marked; it goes right after if so said.
    Mark(Value, bool),
}

fn plan(call: &Call<'_>, current: &Value, options: &Value) -> Step {
    let resource = &*call.target.resource;
    let mut next = current.clone();
    let asked = options::grace_period(options);
    let mut graceful = false;
    let mut grace = 0;
    // Only pods are given time to stop.
    if &*resource.plural == "pods" && resource.group.is_empty() {
        let running = meta::deletion_grace_period_seconds(current);
        grace = match (meta::deletion_timestamp(current), running, asked) {
            (None, _, _) => pod_grace(current, asked),
            (Some(_), None, _) => 0,
            // Only a shorter period than the one that runs may be asked for.
            (Some(_), Some(running), Some(asked)) if asked < running => asked,
            _ => return Step::Nothing,
        };
        graceful = true;
        if meta::deletion_timestamp(current).is_none() {
            bump_generation(&mut next);
        }
        let at = call.server.clock.now().plus_seconds(grace);
        next["metadata"]["deletionTimestamp"] = at.to_string().into();
        next["metadata"]["deletionGracePeriodSeconds"] = grace.into();
    }
    set_dependents_finalizers(call, &mut next, options);
    let held = meta::finalizers(&next).next().is_some();
    if graceful {
        return Step::Mark(next, !held && grace == 0);
    }
    if !held {
        return Step::Remove;
    }
    if meta::deletion_timestamp(current).is_none() {
        next["metadata"]["deletionTimestamp"] = call.server.clock.now().to_string().into();
        bump_generation(&mut next);
    }
    next["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    Step::Mark(next, false)
}

/// Namespaces are marked first, emptied by their controller, and go when no finalizer of the spec is left.
fn plan_namespace(call: &Call<'_>, current: &Value, options: &Value) -> Step {
    if meta::deletion_timestamp(current).is_none() {
        let mut next = current.clone();
        next["metadata"]["deletionTimestamp"] = call.server.clock.now().to_string().into();
        next["status"]["phase"] = "Terminating".into();
        set_dependents_finalizers(call, &mut next, options);
        return Step::Mark(next, false);
    }
    match current.pointer("/spec/finalizers").and_then(Value::as_array) {
        Some(finalizers) if !finalizers.is_empty() => Step::Nothing,
        _ => plan(call, current, options),
    }
}

/// Pods that never ran or have ended need no time to stop.
fn pod_grace(pod: &Value, asked: Option<i64>) -> i64 {
    let own = pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30);
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    if node.is_empty() || matches!(phase, "Succeeded" | "Failed") {
        return 0;
    }
    match asked.unwrap_or(own) {
        negative if negative < 0 => 1,
        seconds => seconds,
    }
}

fn bump_generation(object: &mut Value) {
    let generation = meta::generation(object);
    if generation > 0 {
        object["metadata"]["generation"] = (generation + 1).into();
    }
}

/// The finalizers that make the garbage collector orphan or delete dependents first.
fn set_dependents_finalizers(call: &Call<'_>, object: &mut Value, options: &Value) {
    let policy = options.get("propagationPolicy").and_then(Value::as_str);
    let orphan_option = options.get("orphanDependents").and_then(Value::as_bool);
    let had = |finalizer: &str| meta::finalizers(object).any(|f| f == finalizer);
    let (had_orphan, had_foreground) = (had(ORPHAN), had(FOREGROUND));
    let orphan = match (orphan_option, policy) {
        (Some(choice), _) => choice,
        (_, Some(policy)) => policy == "Orphan",
        _ => had_orphan || (!had_foreground && call.target.resource.traits.orphan_dependents),
    };
    let foreground = match (orphan_option, policy) {
        (Some(_), _) => false,
        (_, Some(policy)) => policy == "Foreground",
        _ => had_foreground,
    };
    if (orphan, foreground) == (had_orphan, had_foreground) {
        return;
    }
    let mut finalizers: Vec<String> =
        meta::finalizers(object).filter(|f| *f != ORPHAN && *f != FOREGROUND).map(str::to_owned).collect();
    finalizers.extend(orphan.then(|| ORPHAN.to_owned()));
    finalizers.extend(foreground.then(|| FOREGROUND.to_owned()));
    if finalizers.is_empty() {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("finalizers");
        }
    } else {
        object["metadata"]["finalizers"] = finalizers.into();
    }
}
