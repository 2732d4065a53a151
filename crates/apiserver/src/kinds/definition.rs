//! CustomResourceDefinition (apiextensions.k8s.io/v1).

use serde_json::json;
use shoal_objects::structural::{self, Schema};
use shoal_objects::{Errors, Path, Value, json_path::JsonPath, names};

use super::access::{bool_at, child_mut, field, list_at, part, set, set_default, set_default_str, str_at};
use super::checks::{immutable, text};
use super::{NameRule, Rules, approval};
use crate::cel::rules::CompiledRules;
use crate::registry::custom::has_condition;

/// Rules for CustomResourceDefinition.
pub const RULES: Rules = Rules {
    default,
    prepare_create,
    prepare_update,
    validate: validate_new,
    validate_update,
    validate_status,
    name: NameRule::Free,
    ..Rules::NONE
};

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] =
    ["int32", "int64", "float", "double", "byte", "date", "date-time", "password"];
const AT_ROOT: [&str; 22] = [
    "description",
    "type",
    "format",
    "title",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "required",
    "items",
    "properties",
    "externalDocs",
    "example",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

fn default(definition: &mut Value) {
    let Some(spec) = child_mut(definition, "spec") else { return };
    if let Some(names) = child_mut(spec, "names") {
        let kind = str_at(names, "kind").to_owned();
        set_default_str(names, "singular", &kind.to_lowercase());
        if str_at(names, "listKind").is_empty() && !kind.is_empty() {
            set(names, "listKind", format!("{kind}List"));
        }
    }
    if let Some(conversion) = child_mut(spec, "conversion") {
        set_default_str(conversion, "strategy", "None");
        let service = conversion.pointer_mut("/webhook/clientConfig/service");
        if let Some(service) = service.filter(|s| s.is_object()) {
            set_default(service, "port", 443);
        }
    }
}

fn prepare_create(definition: &mut Value) {
    set(definition, "status", json!({}));
    note_storage_version(definition);
}

fn prepare_update(definition: &mut Value, _old: &Value) {
    note_storage_version(definition);
}

/// The storage version is remembered for as long as objects may be stored in it.
fn note_storage_version(definition: &mut Value) {
    let versions = list_at(part(definition, "spec"), "versions");
    let storage = versions.iter().find(|v| bool_at(v, "storage")).map(|v| str_at(v, "name").to_owned());
    let Some(storage) = storage else { return };
    let Some(status) = child_mut(definition, "status") else { return };
    let mut stored: Vec<Value> = list_at(status, "storedVersions").to_vec();
    if !stored.iter().any(|v| *v == storage) {
        stored.push(storage.into());
        set(status, "storedVersions", stored);
    }
}

fn validate_new(definition: &Value, errors: &mut Errors) {
    let spec = part(definition, "spec");
    let path = Path::new("spec");
    group(str_at(spec, "group"), &path, errors);
    match str_at(spec, "scope") {
        "" => errors.required(&path.child("scope"), ""),
        "Cluster" | "Namespaced" => {}
        other => errors.not_supported(&path.child("scope"), other, &["Cluster", "Namespaced"]),
    }
    versions(spec, &path, errors);
    validate_names(part(spec, "names"), true, &path.child("names"), errors);
    conversion(spec, &path.child("conversion"), errors);
    if bool_at(spec, "preserveUnknownFields") {
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                   spec.versions[*].schema instead";
        errors.invalid(&path.child("preserveUnknownFields"), &json!(true), why);
    }
    status(definition, errors);
}

/// The name follows from the spec. Checked on creation only: neither can change.
pub fn name_errors(definition: &Value, name: &str) -> Vec<String> {
    let spec = part(definition, "spec");
    let mut found = names::dns1123_subdomain(name);
    if name != format!("{}.{}", str_at(part(spec, "names"), "plural"), str_at(spec, "group")) {
        found.push("must be spec.names.plural+\".\"+spec.group".to_owned());
    }
    found
}

fn group(group: &str, path: &Path<'_>, errors: &mut Errors) {
    let place = path.child("group");
    let wrong = names::dns1123_subdomain(group);
    if group.is_empty() {
        errors.required(&place, "");
    } else if !wrong.is_empty() {
        errors.invalid_str(&place, group, &wrong.join(","));
    } else if !group.contains('.') {
        errors.invalid_str(&place, group, "should be a domain with at least one dot");
    }
}

/// A part that all versions have alike is checked once, where the older form of the kind has it.
enum Shared<'a> {
    Once(&'a Value),
    Each,
}

fn shared<'a>(versions: &'a [Value], name: &str) -> Shared<'a> {
    let Some(first) = versions.first() else { return Shared::Each };
    let same = versions.iter().all(|v| field(v, name) == field(first, name));
    if same { Shared::Once(part(first, name)) } else { Shared::Each }
}

fn versions(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let versions = list_at(spec, "versions");
    let all = path.child("versions");
    let schema_path = path.child("validation");
    let once = shared(versions, "schema");
    for (index, version) in versions.iter().enumerate() {
        let at = all.index(index);
        let name = str_at(version, "name");
        let wrong = names::dns1035_label(name);
        if !wrong.is_empty() {
            errors.invalid_str(&at.child("name"), name, &wrong.join(","));
            if index == 0 {
                errors.invalid_str(&path.child("version"), name, &wrong.join(","));
            }
        }
        let status = version.pointer("/subresources/status").is_some_and(|s| !s.is_null());
        let each = at.child("schema");
        let place = if matches!(once, Shared::Once(_)) { &schema_path } else { &each };
        match version.pointer("/schema/openAPIV3Schema") {
            None => errors.required(&each.child("openAPIV3Schema"), ""),
            Some(_) if index > 0 && matches!(once, Shared::Once(_)) => {}
            Some(schema) => self::schema(schema, status, &place.child("openAPIV3Schema"), errors),
        }
    }
    parts(versions, "subresources", path, errors, subresources);
    parts(versions, "additionalPrinterColumns", path, errors, columns);
    parts(versions, "selectableFields", path, errors, selectable_fields);
    let unique: std::collections::BTreeSet<&str> = versions.iter().map(|v| str_at(v, "name")).collect();
    let shown = Value::from(versions.to_vec());
    if unique.len() != versions.len() {
        errors.invalid(&all, &shown, "must contain unique version names");
    }
    if versions.iter().filter(|v| bool_at(v, "storage")).count() != 1 {
        errors.invalid(&all, &shown, "must have exactly one version marked as storage version");
    }
}

/// Checks a part of every version, or once if it is the same in all.
fn parts(
    versions: &[Value],
    name: &str,
    path: &Path<'_>,
    errors: &mut Errors,
    check: fn(&Value, &Path<'_>, &mut Errors),
) {
    match shared(versions, name) {
        Shared::Once(part) => check(part, &path.child(name), errors),
        Shared::Each => {
            for (index, version) in versions.iter().enumerate() {
                check(part(version, name), &path.child("versions").index(index).child(name), errors);
            }
        }
    }
}

fn schema(schema: &Value, status: bool, path: &Path<'_>, errors: &mut Errors) {
    // With a status subresource the schema of the status is used alone: nothing at the root may concern it.
    let refused = |name: &String| !AT_ROOT.contains(&name.as_str());
    if status && schema.as_object().is_some_and(|members| members.keys().any(refused)) {
        let why = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            AT_ROOT.join(" ")
        );
        errors.invalid(path, schema, &why);
    }
    let before = errors.0.len();
    structural::check(schema, path, errors);
    if errors.0.len() == before {
        structural::check_defaults(&Schema::parse(schema), path, errors);
    }
    if errors.0.len() == before
        && let Err(found) = CompiledRules::compile(schema, path)
    {
        errors.0.extend(found.0);
    }
}

fn subresources(given: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(scale) = field(given, "scale") else { return };
    for (name, roots, why) in [
        ("specReplicasPath", &[".spec."][..], "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."], "should be a json path under .status"),
        ("labelSelectorPath", &[".spec.", ".status."], "should be a json path under either .spec or .status"),
    ] {
        let given = str_at(scale, name);
        let dotted = format!("scale.{name}");
        let place = path.child(&dotted);
        if given.is_empty() {
            if name != "labelSelectorPath" {
                errors.required(&place, "");
            }
        } else if !given.starts_with('.') {
            errors.invalid_str(&place, given, "must be a simple json path starting with .");
        } else if !roots.iter().any(|root| given.starts_with(root)) {
            errors.invalid_str(&place, given, why);
        }
    }
}

fn columns(given: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (index, column) in given.as_array().into_iter().flatten().enumerate() {
        let at = path.index(index);
        if str_at(column, "name").is_empty() {
            errors.required(&at.child("name"), "");
        }
        match str_at(column, "type") {
            "" => errors.required(&at.child("type"), &format!("must be one of {}", COLUMN_TYPES.join(","))),
            kind if !COLUMN_TYPES.contains(&kind) => {
                let why = format!("must be one of {}", COLUMN_TYPES.join(","));
                errors.invalid_str(&at.child("type"), kind, &why);
            }
            _ => {}
        }
        let format = str_at(column, "format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let why = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.invalid_str(&at.child("format"), format, &why);
        }
        let path = str_at(column, "jsonPath");
        if path.is_empty() {
            errors.required(&at.child("jsonPath"), "");
        } else if let Err(why) = JsonPath::parse(path) {
            errors.invalid_str(&at.child("jsonPath"), path, &why);
        } else if !path.starts_with('.') {
            errors.invalid_str(&at.child("jsonPath"), path, "must be a simple json path starting with .");
        }
    }
}

fn selectable_fields(given: &Value, path: &Path<'_>, errors: &mut Errors) {
    const MOST: usize = 8;
    let fields = given.as_array().map_or(&[][..], Vec::as_slice);
    if fields.len() > MOST {
        errors.too_many(path, fields.len(), MOST);
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, selectable) in fields.iter().enumerate() {
        let at = path.index(index);
        let json_path = str_at(selectable, "jsonPath");
        let place = at.child("jsonPath");
        if json_path.is_empty() {
            errors.required(&place, "");
            continue;
        }
        let simple = JsonPath::parse(json_path).ok().is_some_and(|p| p.fields().is_some());
        if !json_path.starts_with('.') || !simple {
            errors.invalid_str(&place, json_path, "is an invalid path: must be a simple json path");
        } else if json_path == ".metadata" || json_path.starts_with(".metadata.") {
            errors.invalid_str(&place, json_path, "must not point to fields in metadata");
        }
        if seen.contains(&json_path) {
            errors.duplicate(&place, &json!(json_path));
        }
        seen.push(json_path);
    }
}

fn validate_names(given: &Value, required: bool, path: &Path<'_>, errors: &mut Errors) {
    if required {
        for name in ["plural", "singular", "kind", "listKind"] {
            if str_at(given, name).is_empty() {
                errors.required(&path.child(name), "");
            }
        }
    }
    for name in ["plural", "singular", "kind", "listKind"] {
        let value = str_at(given, name);
        if value.is_empty() {
            continue;
        }
        let mixed = name.ends_with("ind");
        let wrong = names::dns1035_label(&if mixed { value.to_lowercase() } else { value.to_owned() });
        if !wrong.is_empty() {
            let prefix = if mixed { "may have mixed case, but should otherwise match: " } else { "" };
            errors.invalid_str(&path.child(name), value, &format!("{prefix}{}", wrong.join(",")));
        }
    }
    for list in ["shortNames", "categories"] {
        for (index, value) in list_at(given, list).iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            text(errors, &path.child(list).index(index), value, names::dns1035_label(value));
        }
    }
    let kind = str_at(given, "kind");
    if !kind.is_empty() && kind == str_at(given, "listKind") {
        errors.invalid_str(&path.child("listKind"), kind, "kind and listKind may not be the same");
    }
}

fn conversion(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let given = part(spec, "conversion");
    let webhook = field(given, "webhook");
    match str_at(given, "strategy") {
        "None" => {
            if webhook.is_some() {
                let why = "should not be set when strategy is not set to Webhook";
                errors.forbidden(&path.child("webhook"), why);
            }
        }
        "Webhook" => {
            let place = path.child("webhook");
            let Some(webhook) = webhook else {
                errors.required(&place.child("clientConfig"), "required when strategy is set to Webhook");
                return;
            };
            let config = part(webhook, "clientConfig");
            if field(config, "url").is_some() == field(config, "service").is_some() {
                errors.required(&place.child("clientConfig"), "exactly one of url or service is required");
            }
            let reviews = list_at(webhook, "conversionReviewVersions");
            if reviews.is_empty() {
                errors.required(&place.child("conversionReviewVersions"), "");
            } else if !reviews.iter().any(|v| v == "v1" || v == "v1beta1") {
                let why = "must include at least one of v1, v1beta1";
                errors.invalid(&place.child("conversionReviewVersions"), &json!(reviews), why);
            }
        }
        other => errors.not_supported(&path.child("strategy"), other, &["None", "Webhook"]),
    }
}

fn status(definition: &Value, errors: &mut Errors) {
    let status = part(definition, "status");
    let path = Path::new("status");
    validate_names(part(status, "acceptedNames"), false, &path.child("acceptedNames"), errors);
    let stored = list_at(status, "storedVersions");
    let place = path.child("storedVersions");
    if stored.is_empty() {
        errors.invalid(&place, &Value::Null, "must have at least one stored version");
        return;
    }
    let versions = list_at(part(definition, "spec"), "versions");
    for version in versions.iter().filter(|v| bool_at(v, "storage")) {
        let name = str_at(version, "name");
        if !stored.iter().any(|s| s == name) {
            errors.invalid(&place, &json!(stored), &format!("must have the storage version {name}"));
        }
    }
    for (index, name) in stored.iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        if !versions.iter().any(|v| str_at(v, "name") == name) {
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            errors.invalid_str(&place.index(index), name, &why);
        }
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (new_spec, old_spec) = (part(new, "spec"), part(old, "spec"));
    let path = Path::new("spec");
    let names = path.child("names");
    let (new_names, old_names) = (part(new_spec, "names"), part(old_spec, "names"));
    if has_condition(old, "Established") {
        immutable(new_spec, old_spec, "scope", &path, errors);
        immutable(new_names, old_names, "kind", &names, errors);
    }
    immutable(new_spec, old_spec, "group", &path, errors);
    approval::validate_update(new, old, errors);
    immutable(new_names, old_names, "plural", &names, errors);
}

fn validate_status(new: &Value, _old: &Value, errors: &mut Errors) {
    status(new, errors);
}
