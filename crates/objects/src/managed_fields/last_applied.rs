//! The annotation in which `kubectl apply` kept its configuration before the server did it.

use serde_json::Value;

use super::Writer;
use super::check::check;
use super::compare::compare;
use super::owned::owned_fields;
use super::set::FieldSet;
use crate::meta;

/// The manager that keeps the annotation.
pub const KUBECTL: &str = "kubectl";
/// The annotation.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// All annotations together may be this large.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// Fields the annotation shows to be kubectl's: applied in its old way and not changed since.
pub(super) fn allowed_conflicts(writer: &Writer<'_>, live: &Value) -> Option<FieldSet<'static>> {
    let text = annotation(live)?;
    let applied: Value = serde_json::from_str(text).ok()?;
    if applied.get("apiVersion")?.as_str()? != writer.api_version || check(writer.schema, &applied).is_err() {
        return None;
    }
    let mut fields = owned_fields(writer.schema, &applied);
    let since = compare(writer.schema, &applied, live);
    fields.subtract(&since.written);
    fields.subtract(&since.removed);
    Some(fields.into_owned())
}

fn annotation(object: &Value) -> Option<&str> {
    let text = meta::metadata(object)?.get("annotations")?.get(LAST_APPLIED)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

/// Keeps the annotation in step with what kubectl applies, for clients that still read it.
pub fn sync_last_applied(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut plain = config.clone();
    let annotations = plain.get_mut("metadata").and_then(|m| m.get_mut("annotations"));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    let text = format!("{plain}\n");
    let Some(annotations) =
        object.get_mut("metadata").and_then(|m| m.get_mut("annotations")).and_then(Value::as_object_mut)
    else {
        return;
    };
    let others: usize = annotations
        .iter()
        .filter(|(name, _)| *name != LAST_APPLIED)
        .map(|(name, value)| name.len() + value.as_str().map_or(0, str::len))
        .sum();
    if others + LAST_APPLIED.len() + text.len() > MAX_ANNOTATIONS {
        annotations.remove(LAST_APPLIED);
    } else {
        annotations.insert(LAST_APPLIED.to_owned(), text.into());
    }
}
