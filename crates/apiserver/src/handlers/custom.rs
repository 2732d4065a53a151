//! What is different about objects of custom kinds: their schema is data.

use serde_json::{Value, json};
use shoal_objects::invalid::Reason;
use shoal_objects::structural::{self, Schema};
use shoal_objects::{Errors, Path, meta, names};

use crate::builtin;
use crate::cel::rules::validate_rules;
use crate::decode;
use crate::handlers::{Call, parse_body};
use crate::registry::Resource;
use crate::registry::custom::{CustomKind, at_path};
use crate::status::{Failure, Outcome};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The body as an object of a custom kind: parsed, pruned, unknown fields dealt with.
pub fn body(call: &Call<'_>, custom: &CustomKind) -> Outcome<Value> {
    let resource = &*call.target.resource;
    let (mut value, mut complaints) = parse_body(call, &resource.kind)?;
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let Some(kind) = text(&value, "kind").filter(|k| !k.is_empty()) else {
        return Err(Failure::bad_request(format!("Object 'Kind' is missing in '{value}'")));
    };
    let given = text(&value, "apiVersion").unwrap_or_default();
    if given != *resource.api_version {
        return Err(Failure::bad_request(format!(
            "the API version in the data ({given}) does not match the expected API version ({})",
            resource.api_version
        )));
    }
    if kind != *resource.kind {
        let mut errors = Errors::new();
        errors.invalid_str(&Path::new("kind"), &kind, &format!("must be {}", resource.kind));
        return Err(Failure::invalid(&resource.group, &kind, meta::name(&value), &errors));
    }
    let unknown = conform(custom, &mut value).map_err(|why| {
        let (kind, version) = (&resource.kind, &resource.version);
        Failure::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
    })?;
    complaints.extend(unknown.iter().map(|path| format!("unknown field {path:?}")));
    call.settle_complaints(complaints, &resource.version, &resource.kind)?;
    Ok(value)
}

/// Removes what neither metadata nor schema know; gives the paths of what went.
pub fn conform(custom: &CustomKind, object: &mut Value) -> Result<Vec<String>, String> {
    let mut unknown = Vec::new();
    let types = builtin::types();
    match object.get_mut("metadata") {
        Some(Value::Null) => object["metadata"] = json!({}),
        Some(metadata) => {
            if let Some(id) = types.find(OBJECT_META) {
                let paths = decode::conform(types, id, metadata)?;
                unknown.extend(paths.into_iter().map(|path| format!("metadata.{path}")));
            }
        }
        None => {}
    }
    structural::prune_noting(&custom.schema, object, &mut unknown);
    unknown.sort();
    Ok(unknown)
}

/// Fills in the defaults of the schema.
pub fn default(schema: &Schema, object: &mut Value) {
    structural::default(schema, object);
    structural::drop_nulls(schema, object);
}

/// A stored object in the version of a resource: defaults and fields that came or went with the definition since.
pub fn from_storage(resource: &Resource, custom: &CustomKind, object: &mut Value) {
    object["apiVersion"] = Value::from(&*resource.api_version);
    structural::prune(&custom.schema, object);
    default(&custom.schema, object);
}

/// What is wrong with an object, and with the change if there is an older one.
pub fn validate(resource: &Resource, custom: &CustomKind, object: &Value, old: Option<&Value>) -> Errors {
    let mut errors = Errors::new();
    match old {
        None => {
            let path = Path::new("metadata");
            let namespaced = resource.namespaced;
            meta::validate_custom_metadata(object, &path, namespaced, names::dns1123_subdomain, &mut errors);
        }
        // The real server checks the metadata once for all kinds and once more with each kind, and reports both.
        Some(old) => {
            meta::validate_custom_metadata_update(object, old, &mut errors);
            meta::validate_custom_metadata_update(object, old, &mut errors);
        }
    }
    structural::validate(&custom.schema, object, old, &mut errors);
    scale(custom, object, &mut errors);
    structural::validate_embedded(&custom.schema, object, &mut errors);
    structural::validate_list_types(&custom.schema, object, &mut errors);
    rules(custom, object, old, &mut errors);
    errors
}

/// Rules are not asked about values that are not what they expect.
fn rules(custom: &CustomKind, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    const BLOCKING: [Reason; 5] =
        [Reason::NotSupported, Reason::Required, Reason::TooLong, Reason::TooMany, Reason::TypeInvalid];
    if custom.rules.is_empty() {
        return;
    }
    if errors.0.iter().any(|error| BLOCKING.contains(&error.reason)) {
        let message = "Invalid value: null: some validation rules were not checked because the object was invalid; \
                       correct the existing errors to complete validation";
        errors.push_at("<nil>".to_owned(), Reason::Invalid, message);
        return;
    }
    validate_rules(&custom.rules, object, old, errors);
}

/// Replicas that the scale subresource shows.
fn scale(custom: &CustomKind, object: &Value, errors: &mut Errors) {
    let Some(paths) = &custom.scale else { return };
    let Some(replicas) = at_path(object, &paths.spec).and_then(Value::as_i64) else { return };
    let place = Path::new(&paths.written);
    if replicas < 0 {
        errors.invalid(&place, &json!(replicas), "should be a non-negative integer");
    } else if replicas > i64::from(i32::MAX) {
        let why = format!("should be less than or equal to {}", i32::MAX);
        errors.invalid(&place, &json!(replicas), &why);
    }
}

/// New objects are refused while their definition is on its way out.
pub fn check_open(call: &Call<'_>, name: &str) -> Outcome<()> {
    let resource = &*call.target.resource;
    if resource.custom.is_none() {
        return Ok(());
    }
    let registry = call.server.registry();
    match registry.find(&resource.group, &resource.version, &resource.plural) {
        None => Err(Failure::no_such_resource()),
        Some(current) if current.custom.as_ref().is_some_and(|custom| custom.terminating) => {
            let why = "create not allowed while custom resource definition is terminating";
            Err(Failure::forbidden(resource, name, why))
        }
        Some(_) => Ok(()),
    }
}
