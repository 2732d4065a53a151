//! Who writes, in the words of `metadata.managedFields`.

use http::header::USER_AGENT;
use serde_json::Value;
use shoal_objects::managed_fields::{self, Account, Entries, Reach, Schema, Writer};

use crate::builtin;
use crate::handlers::update::Facet;
use crate::handlers::{Call, conform_known, from_storage, to_storage};
use crate::registry::Resource;

/// Names of managers are cut here.
const MAX_NAME: usize = 128;

/// An object as a request wants it.
pub struct Proposal {
    /// The object.
    pub object: Value,
    /// Who owns what changed.
    pub ownership: Ownership,
}

/// Who owns what a request changes.
pub enum Ownership {
    /// The caller.
    Written,
    /// Nobody: entries stay as they are.
    Kept,
    /// As an apply has found.
    Applied(Account),
}

impl Proposal {
    /// An object that belongs to the caller where it is changed.
    pub fn written(object: Value) -> Proposal {
        Proposal { object, ownership: Ownership::Written }
    }
}

/// The manager a request speaks for: as it says, else the client's name up to the slash.
pub fn manager(call: &Call<'_>) -> String {
    if let Some(name) = call.query.get("fieldManager").filter(|name| !name.is_empty()) {
        return name.to_owned();
    }
    let agent =
        call.headers.get(USER_AGENT).map(|v| String::from_utf8_lossy(v.as_bytes())).unwrap_or_default();
    let mut name = String::new();
    for c in agent.split('/').next().unwrap_or_default().chars().filter(|c| !c.is_control()) {
        if name.len() + c.len_utf8() > MAX_NAME {
            break;
        }
        name.push(c);
    }
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// The types of a resource's objects.
pub fn schema(resource: &Resource) -> Schema<'_> {
    match &resource.custom {
        Some(custom) => {
            let (types, root) = custom.types();
            Schema { types, root: Some(root) }
        }
        None => Schema { types: builtin::types(), root: resource.type_id },
    }
}

/// Calls with the writer that a request is.
pub fn with_writer<T>(call: &Call<'_>, facet: Facet, act: impl FnOnce(&Writer<'_>) -> T) -> T {
    let resource = &*call.target.resource;
    let registry = call.server.registry();
    let convert = |value: &Value, version: &str| {
        if version == &*resource.api_version {
            return Some((value.clone(), schema(resource)));
        }
        let other = registry.iter().find(|r| r.table == resource.table && &*r.api_version == version)?;
        let mut converted = from_storage(other, to_storage(resource, value.clone()));
        conform_known(other, &mut converted);
        Some((converted, schema(other)))
    };
    let reach = match facet {
        Facet::Main if resource.traits.status => Reach::Body,
        Facet::Status => Reach::Status { metadata: resource.traits.open_status },
        _ => Reach::Whole,
    };
    let manager = manager(call);
    act(&Writer {
        manager: &manager,
        api_version: &resource.api_version,
        subresource: call.target.subresource.split('/').next().unwrap_or_default(),
        reach,
        now: call.server.clock.now(),
        schema: schema(resource),
        convert: &convert,
    })
}

/// The entries after a write that made `new` of `old`; both are without entries. `sent` are those of the request.
pub fn account(
    call: &Call<'_>,
    facet: Facet,
    present: &Entries<'_>,
    sent: Option<&Value>,
    (old, new): (&Value, &Value),
) -> Account {
    with_writer(call, facet, |writer| managed_fields::update(writer, present, sent, old, new))
}

/// An object with its entries, for answers that are not made from what is stored.
pub fn with_entries(mut object: Value, account: &Account) -> Value {
    if let Ok(entries) = serde_json::from_str(&account.json)
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("managedFields".to_owned(), entries);
    }
    object
}
