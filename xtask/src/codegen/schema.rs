//! Joins OpenAPI definitions, protobuf messages and the hand-written lists into one description of every type.

use anyhow::{Context, bail};
use serde_json::{Map, Value};

use super::messages::{Message, MessageField, Messages, key, squeeze};
use super::omission::{Omission, Omissions};

/// A type of the table.
pub struct Type {
    pub name: String,
    pub description: String,
    pub atomic: bool,
    pub gvk: Option<(String, String, String)>,
    pub fields: Vec<Field>,
}

/// A field of a type.
pub struct Field {
    pub name: String,
    pub description: String,
    /// As written in the table.
    pub shape: String,
    pub required: bool,
    pub omission: Omission,
    pub list_type: Option<String>,
    pub list_keys: Vec<String>,
    pub atomic: bool,
    pub patch_strategy: Vec<String>,
    pub merge_key: Option<String>,
    pub tag: u32,
    /// Tags of the messages around it, outermost first.
    pub embedded: Vec<u32>,
}

/// Definitions that are not structs, and how the table writes them.
const SCALARS: &[(&str, &str)] = &[
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON", "any"),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
        "JSONSchemaProps|[]JSONSchemaProps",
    ),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
        "JSONSchemaProps|bool",
    ),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
        "JSONSchemaProps|[]string",
    ),
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", "quantity"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "any"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", "microtime"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Patch", "any"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "time"),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", "any"),
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "intorstring"),
];

/// Types of 1.36 that the crate does not have yet, and the messages of an earlier version they were promoted from
/// with their tags unchanged.
const PROMOTED: &[(&str, &str)] = &[
    ("io.k8s.api.admissionregistration.v1.", "io.k8s.api.admissionregistration.v1beta1."),
    ("io.k8s.api.resource.v1beta2.DeviceTaint", "io.k8s.api.resource.v1alpha3.DeviceTaint"),
];

fn message_of<'a>(type_name: &str, messages: &'a Messages) -> Option<&'a Message> {
    messages.get(&key(type_name)).or_else(|| {
        PROMOTED.iter().find_map(|(new, old)| {
            let rest = type_name.strip_prefix(new)?;
            messages.get(&key(&format!("{old}{rest}")))
        })
    })
}

/// A kind of its own: its `apiVersion` and `kind` stand in the envelope, not in the message.
fn is_top_level(definition: &Value) -> bool {
    definition.get("x-kubernetes-group-version-kind").is_some()
}

/// All types that are structs. What does not match between the sources is told in `remarks`.
pub fn join(
    definitions: &Map<String, Value>,
    messages: &Messages,
    omissions: &Omissions,
    remarks: &mut Vec<String>,
) -> anyhow::Result<Vec<Type>> {
    let mut types = Vec::new();
    for (name, definition) in definitions {
        if SCALARS.iter().any(|(scalar, _)| scalar == name) {
            continue;
        }
        let fields = fields(name, definition, messages, omissions, remarks).with_context(|| name.clone())?;
        let text = |v: &Value, key: &str| v[key].as_str().unwrap_or_default().to_owned();
        let gvk = definition["x-kubernetes-group-version-kind"][0].as_object().is_some().then(|| {
            let gvk = &definition["x-kubernetes-group-version-kind"][0];
            (text(gvk, "group"), text(gvk, "version"), text(gvk, "kind"))
        });
        let atomic = definition["x-kubernetes-map-type"] == "atomic";
        types.push(Type {
            name: name.clone(),
            description: text(definition, "description"),
            atomic,
            gvk,
            fields,
        });
    }
    types.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(types)
}

fn fields(
    type_name: &str,
    definition: &Value,
    messages: &Messages,
    omissions: &Omissions,
    remarks: &mut Vec<String>,
) -> anyhow::Result<Vec<Field>> {
    let empty = Map::new();
    let properties = definition["properties"].as_object().unwrap_or(&empty);
    let required: Vec<&str> = strings(&definition["required"]);
    let message = message_of(type_name, messages);
    if message.is_none() {
        remarks.push(format!("{type_name}: no protobuf message"));
    }

    let mut fields = Vec::new();
    for (name, property) in properties {
        let shape = shape(property, type_name).with_context(|| name.clone())?;
        let required = required.contains(&name.as_str());
        let type_meta = is_top_level(definition) && (name == "kind" || name == "apiVersion");
        let (tag, embedded) = match message {
            Some(message) if !type_meta => {
                let found = find_tag(message, name, properties, messages);
                if found.is_none() {
                    remarks.push(format!("{type_name}.{name}: no protobuf tag"));
                }
                found.unwrap_or_default()
            }
            _ => Default::default(),
        };
        fields.push(Field {
            name: name.clone(),
            description: property["description"].as_str().unwrap_or_default().to_owned(),
            omission: omissions
                .get(type_name, name)
                .unwrap_or_else(|| usual_omission(name, &shape, required)),
            shape,
            required,
            list_type: property["x-kubernetes-list-type"].as_str().map(str::to_owned),
            list_keys: strings(&property["x-kubernetes-list-map-keys"])
                .iter()
                .map(|s| s.to_string())
                .collect(),
            atomic: property["x-kubernetes-map-type"] == "atomic",
            patch_strategy: property["x-kubernetes-patch-strategy"]
                .as_str()
                .map(|s| s.split(',').map(str::to_owned).collect())
                .unwrap_or_default(),
            merge_key: property["x-kubernetes-patch-merge-key"].as_str().map(str::to_owned),
            tag,
            embedded,
        });
    }
    for field in message.into_iter().flat_map(|m| &m.fields) {
        if !properties.keys().any(|p| squeeze(p) == field.name)
            && embedded_message(field, properties, messages).is_none()
        {
            remarks.push(format!(
                "{type_name}: protobuf field {} = {} is not in the schema",
                field.name, field.tag
            ));
        }
    }
    Ok(fields)
}

/// The tag of a JSON field: in the message itself, or in a message that JSON inlines.
fn find_tag(
    message: &Message,
    name: &str,
    properties: &Map<String, Value>,
    messages: &Messages,
) -> Option<(u32, Vec<u32>)> {
    if let Some(field) = message.fields.iter().find(|f| f.name == squeeze(name)) {
        return match list_wrapper(field, &properties[name], messages) {
            Some(tag) => Some((tag, vec![field.tag])),
            None => Some((field.tag, Vec::new())),
        };
    }
    message.fields.iter().find_map(|field| {
        let inner = embedded_message(field, properties, messages)?;
        let (tag, mut path) = find_tag(inner, name, properties, messages)?;
        path.insert(0, field.tag);
        Some((tag, path))
    })
}

/// Go types like `Verbs` are lists in JSON and a message around a list in protobuf.
fn list_wrapper(field: &MessageField, property: &Value, messages: &Messages) -> Option<u32> {
    let is_list = strings(&property["type"]).contains(&"array");
    if !is_list || !field.kind.starts_with("message, optional") {
        return None;
    }
    messages.get(field.message.as_ref()?)?.fields.iter().find(|f| f.name == "items").map(|f| f.tag)
}

/// The message of a protobuf field whose own fields all stand in the parent in JSON.
fn embedded_message<'a>(
    field: &MessageField,
    properties: &Map<String, Value>,
    messages: &'a Messages,
) -> Option<&'a Message> {
    let inner = messages.get(field.message.as_ref()?)?;
    let inlined = |f: &MessageField| {
        properties.keys().any(|p| squeeze(p) == f.name) || embedded_message(f, properties, messages).is_some()
    };
    (!inner.fields.is_empty() && inner.fields.iter().all(inlined)).then_some(inner)
}

fn usual_omission(name: &str, shape: &str, required: bool) -> Omission {
    let collection = shape.starts_with("[]") || shape.starts_with("{}") || shape == "bytes";
    let nil_when_absent = collection || matches!(shape, "time" | "microtime" | "any");
    let plain_struct = matches!(name, "metadata" | "spec" | "status") && shape.contains(char::is_uppercase);
    match required {
        true if nil_when_absent => Omission::Null,
        true => Omission::Zero,
        false if collection || shape == "string" => Omission::Omit,
        false if plain_struct => Omission::Zero,
        false => Omission::Pointer,
    }
}

fn shape(property: &Value, type_name: &str) -> anyhow::Result<String> {
    if let Some(reference) = property["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or_default();
        if let Some((_, shape)) = SCALARS.iter().find(|(scalar, _)| *scalar == name) {
            return Ok((*shape).to_owned());
        }
        // Types of the same package are named without it.
        let package = type_name.rsplit_once('.').map_or("", |(package, _)| package);
        let local = name.strip_prefix(package).and_then(|n| n.strip_prefix('.')).filter(|n| !n.contains('.'));
        return Ok(local.unwrap_or(name).to_owned());
    }
    let types = strings(&property["type"]);
    let format = property["format"].as_str();
    Ok(match (types.first().copied(), format) {
        (Some("string"), Some("byte")) => "bytes".to_owned(),
        (Some("string"), None) => "string".to_owned(),
        (Some("boolean"), None) => "bool".to_owned(),
        (Some("integer"), Some("int32")) => "int32".to_owned(),
        (Some("integer"), Some("int64")) => "int64".to_owned(),
        (Some("number"), Some("double")) => "double".to_owned(),
        (Some("array"), None) => format!("[]{}", shape(&property["items"], type_name)?),
        (Some("object"), None) if property.get("additionalProperties").is_some() => {
            format!("{{}}{}", shape(&property["additionalProperties"], type_name)?)
        }
        other => bail!("unknown shape {other:?}"),
    })
}

fn strings(value: &Value) -> Vec<&str> {
    match value {
        Value::String(one) => vec![one],
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}
