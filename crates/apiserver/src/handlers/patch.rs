//! PATCH of one object.

use serde_json::Value;
use shoal_objects::patch::{JsonPatchError, StrategicError, json_patch, merge_patch, strategic_merge};
use shoal_objects::schema::TypeId;
use shoal_objects::{Errors, Path, meta};

use crate::builtin;
use crate::decode;
use crate::handlers::ownership::Proposal;
use crate::handlers::update::{Facet, modify};
use crate::handlers::{Call, FieldValidation, apply as server_side, create, custom, default};
use crate::kinds::options;
use crate::negotiate::{PatchKind, patch_kind};
use crate::registry::Resource;
use crate::response::Reply;
use crate::status::{Failure, Outcome};

/// A patch that has been read but not applied.
pub struct Patch {
    kind: PatchKind,
    body: Value,
}

/// Answers a patch request.
pub async fn patch(call: &Call<'_>, facet: Facet) -> Outcome<Reply> {
    let kind = check_options(call)?;
    if kind == PatchKind::Apply {
        return server_side::apply(call, facet).await;
    }
    let patch = read(call, kind)?;
    let dry_run = call.dry_run("PatchOptions")?;
    let resource = call.target.resource.clone();
    let written = modify(call, facet, dry_run, |present| {
        // Patches are made for what the client has seen.
        let current = present.seen(&resource)?;
        let mut proposed = apply(resource.type_id, &patch, &current)?;
        check_identity(&proposed, &current, &call.target.name)?;
        conform(call, &resource, &patch, &mut proposed)?;
        default(&resource, &mut proposed);
        forget_version(&patch, &mut proposed);
        Ok(Some(Proposal::written(proposed)))
    });
    create::answer(call, 200, &written.await?).await
}

/// The kind of patch, once the options that go with it are checked.
pub fn check_options(call: &Call<'_>) -> Outcome<PatchKind> {
    let kind = patch_kind(call.headers)?;
    let mut errors = Errors::new();
    let dry_run: Vec<&str> = call.query.all("dryRun").filter(|v| !v.is_empty()).collect();
    let manager = call.query.get("fieldManager").unwrap_or_default();
    let validation = call.query.get("fieldValidation").unwrap_or_default();
    let force = call.query.get("force").map(|_| call.query.flag("force"));
    options::validate_patch(&dry_run, manager, validation, force, kind == PatchKind::Apply, &mut errors);
    if !errors.is_empty() {
        return Err(Failure::invalid("meta.k8s.io", "PatchOptions", "", &errors));
    }
    Ok(kind)
}

/// Reads a patch that is no apply.
pub fn read(call: &Call<'_>, kind: PatchKind) -> Outcome<Patch> {
    let (body, _) = decode::parse_json(&call.body)
        .map_err(|why| Failure::bad_request(format!("error decoding patch: {why}")))?;
    Ok(Patch { kind, body })
}

/// A patch that names no version is for any: it is made again when another writer was faster.
pub fn forget_version(patch: &Patch, proposed: &mut Value) {
    let named = match (patch.kind, &patch.body) {
        (PatchKind::Json, Value::Array(operations)) => operations.iter().any(|operation| {
            let path = operation["path"].as_str().unwrap_or_default();
            let whole = matches!(path, "" | "/metadata" | "/metadata/resourceVersion");
            operation["op"] != "test" && whole
        }),
        (_, body) => body.pointer("/metadata/resourceVersion").is_some(),
    };
    if let Some(metadata) = proposed.get_mut("metadata").and_then(Value::as_object_mut).filter(|_| !named) {
        metadata.remove("resourceVersion");
    }
}

/// The object as the patch makes it.
pub fn apply(type_id: Option<TypeId>, patch: &Patch, current: &Value) -> Outcome<Value> {
    let mut proposed = current.clone();
    match patch.kind {
        PatchKind::Merge | PatchKind::Apply => {
            merge_patch(&mut proposed, &patch.body).map_err(Failure::bad_request)?;
        }
        PatchKind::Json => json_patch(&mut proposed, &patch.body).map_err(|error| match error {
            JsonPatchError::Malformed(why) => Failure::bad_request(format!("error decoding patch: {why}")),
            JsonPatchError::TooManyOperations(_) => {
                let text = error.to_string();
                Failure::new(http::StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", text)
            }
            JsonPatchError::Failed(_) | JsonPatchError::TestFailed(_) => Failure::new(
                http::StatusCode::UNPROCESSABLE_ENTITY,
                "Invalid",
                "the server rejected our request due to an error in our request",
            )
            .with_details(),
        })?,
        PatchKind::Strategic => {
            let Some(type_id) = type_id else {
                return Err(Failure::unsupported_media_type(
                    "the body of the request was in an unknown format - accepted media types include: \
                     application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                ));
            };
            strategic_merge(builtin::types(), type_id, &mut proposed, &patch.body)
                .map_err(strategic_failure)?;
        }
    }
    Ok(proposed)
}

fn strategic_failure(error: StrategicError) -> Failure {
    match error {
        StrategicError::BadRequest(why) => Failure::bad_request(why),
        StrategicError::Unprocessable(why) => {
            Failure::new(http::StatusCode::UNPROCESSABLE_ENTITY, "Invalid", why)
        }
        StrategicError::Internal(why) => Failure::internal(why),
    }
}

/// A patch cannot make another object of this one.
fn check_identity(proposed: &Value, current: &Value, name: &str) -> Outcome<()> {
    for field in ["kind", "apiVersion"] {
        if proposed.get(field) != current.get(field) {
            return Err(Failure::bad_request(format!(
                "the {field} in the patch ({}) does not match the object's ({})",
                proposed[field], current[field]
            )));
        }
    }
    if meta::name(proposed) != name {
        return Err(Failure::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({name})",
            meta::name(proposed)
        )));
    }
    if meta::namespace(proposed) != meta::namespace(current) {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Gives the patched object the shape of its type.
fn conform(call: &Call<'_>, resource: &Resource, patch: &Patch, proposed: &mut Value) -> Outcome<()> {
    let invalid = |detail: String| {
        let mut errors = Errors::new();
        errors.invalid_str(&Path::new("patch"), &patch.body.to_string(), &detail);
        Failure::invalid("", "", "", &errors)
    };
    let unknown = match (&resource.custom, resource.type_id) {
        (Some(custom), _) => custom::conform(custom, proposed),
        (None, Some(type_id)) => decode::conform(builtin::types(), type_id, proposed),
        (None, None) => return Ok(()),
    };
    let unknown = unknown.map_err(invalid)?;
    if unknown.is_empty() {
        return Ok(());
    }
    let complaints: Vec<String> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
    match call.field_validation() {
        FieldValidation::Ignore => Ok(()),
        FieldValidation::Warn => {
            complaints.into_iter().for_each(|c| call.warn(c));
            Ok(())
        }
        FieldValidation::Strict => Err(invalid(format!("strict decoding error: {}", complaints.join(", ")))),
    }
}
