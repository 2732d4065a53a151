//! The scale subresource of workloads.

use serde_json::{Value, json};
use shoal_objects::selector::LabelSelector;
use shoal_objects::{Errors, Path, meta};

use crate::builtin;
use crate::decode;
use crate::handlers::create::Written;
use crate::handlers::ownership::Proposal;
use crate::handlers::update::{Facet, modify};
use crate::handlers::{Call, apply, conform_known, patch as patches};
use crate::negotiate::PatchKind;
use crate::registry::custom::{ScalePaths, at_path, set_at_path};
use crate::response::Reply;
use crate::status::{Failure, Outcome};

/// Answers with the scale.
pub async fn get(call: &Call<'_>) -> Outcome<Reply> {
    let object = call.served(&*call.stored().await?).await?;
    call.answer(200, &scale_of(call, &object))
}

/// Replaces the scale.
pub async fn update(call: &Call<'_>) -> Outcome<Reply> {
    let dry_run = call.dry_run("UpdateOptions")?;
    let wanted = call.body_object("autoscaling/v1", "Scale")?;
    let given = meta::name(&wanted);
    if !given.is_empty() && given != call.target.name {
        return Err(Failure::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({})",
            call.target.name
        )));
    }
    set(call, dry_run, |_| Ok(wanted.clone())).await
}

/// Patches the scale.
pub async fn patch(call: &Call<'_>) -> Outcome<Reply> {
    let kind = patches::check_options(call)?;
    if kind == PatchKind::Apply {
        let replicas = match custom_paths(call) {
            Some(paths) => paths.spec.clone(),
            None => vec!["spec".to_owned(), "replicas".to_owned()],
        };
        let written = apply::scale(call, &replicas).await?;
        return answer(call, written).await;
    }
    let patch = patches::read(call, kind)?;
    let dry_run = call.dry_run("PatchOptions")?;
    let scale = builtin::type_of("autoscaling", "v1", "Scale");
    set(call, dry_run, |object| {
        let mut wanted = patches::apply(scale, &patch, &scale_of(call, object))?;
        if let Some(type_id) = scale {
            decode::conform(builtin::types(), type_id, &mut wanted).map_err(Failure::bad_request)?;
        }
        patches::forget_version(&patch, &mut wanted);
        Ok(wanted)
    })
    .await
}

async fn set(
    call: &Call<'_>,
    dry_run: bool,
    mut wanted: impl FnMut(&Value) -> Outcome<Value> + Send,
) -> Outcome<Reply> {
    let written = modify(call, Facet::Main, dry_run, |present| {
        let object = &present.object;
        let scale = wanted(object)?;
        let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
        if replicas < 0 && custom_paths(call).is_none() {
            let mut errors = Errors::new();
            let path = Path::new("spec");
            errors.invalid(&path.child("replicas"), &json!(replicas), "must be greater than or equal to 0");
            return Err(Failure::invalid("autoscaling", "Scale", &call.target.name, &errors));
        }
        let mut next = object.clone();
        set_replicas(call, &mut next, &scale);
        // The version the client saw guards the whole object.
        next["metadata"]["resourceVersion"] = meta::resource_version(&scale).into();
        Ok(Some(Proposal::written(next)))
    })
    .await?;
    answer(call, written).await
}

/// Gives an object the replicas of a scale.
pub fn set_replicas(call: &Call<'_>, object: &mut Value, scale: &Value) {
    let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    match custom_paths(call) {
        Some(paths) => set_at_path(object, &paths.spec, replicas.into()),
        None => {
            object["spec"]["replicas"] = replicas.into();
            conform_known(&call.target.resource, object);
        }
    }
}

async fn answer(call: &Call<'_>, written: Written) -> Outcome<Reply> {
    let object = match written {
        Written::Stored(object) => call.served(&object).await?,
        Written::Shown(value) => value,
    };
    call.answer(200, &scale_of(call, &object))
}

/// Where a custom kind keeps its replicas.
fn custom_paths<'a>(call: &'a Call<'_>) -> Option<&'a ScalePaths> {
    call.target.resource.custom.as_ref()?.scale.as_ref()
}

/// The scale of an object.
pub fn scale_of(call: &Call<'_>, object: &Value) -> Value {
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    let mut spec = json!({});
    // Zero is left out, as the real server does.
    let (wanted, present, text) = match custom_paths(call) {
        Some(paths) => {
            let selector = paths.selector.as_ref().and_then(|path| at_path(object, path));
            let selector = selector.and_then(Value::as_str).unwrap_or_default().to_owned();
            (at_path(object, &paths.spec), at_path(object, &paths.status), selector)
        }
        None => (object.pointer("/spec/replicas"), object.pointer("/status/replicas"), selector_text(object)),
    };
    match wanted.and_then(Value::as_i64) {
        Some(0) | None => {}
        Some(n) => spec["replicas"] = n.into(),
    }
    let mut status = json!({"replicas": present.and_then(Value::as_i64).unwrap_or(0)});
    if !text.is_empty() {
        status["selector"] = text.into();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// The selector of a workload, as on the command line.
fn selector_text(object: &Value) -> String {
    match object.pointer("/spec/selector") {
        Some(plain) if plain.get("matchLabels").is_none() && plain.get("matchExpressions").is_none() => {
            plain.as_object().map(|labels| LabelSelector::from_labels(labels).to_string()).unwrap_or_default()
        }
        Some(selector) => {
            LabelSelector::from_object(Some(selector)).map(|s| s.to_string()).unwrap_or_default()
        }
        None => String::new(),
    }
}
