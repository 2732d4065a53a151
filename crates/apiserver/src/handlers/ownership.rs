//! Who writes, in the words of `metadata.managedFields`.

use std::cell::RefCell;

use http::header::USER_AGENT;
use serde_json::Value;
use shoal_objects::managed_fields::{self, Account, Entries, Reach, Schema, Writer};

use crate::builtin;
use crate::conversion;
use crate::handlers::update::Facet;
use crate::handlers::{Call, conform_known, from_storage, to_storage};
use crate::registry::Resource;
use crate::status::{Failure, Outcome};

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

/// How often conversions may lead to further ones.
const ROUNDS: usize = 16;

/// An object and the version it is wanted in.
type Wanted = (Value, String);

/// Calls with the writer that a request is. Where a webhook converts objects, `act` is called until all conversions
/// it asks for are known; what it gave before is dropped.
pub async fn with_writer<T>(
    call: &Call<'_>,
    facet: Facet,
    mut act: impl FnMut(&Writer<'_>) -> T,
) -> Outcome<T> {
    let resource = &*call.target.resource;
    let registry = call.server.registry();
    let webhook = conversion::webhook(resource);
    let mut known: Vec<(Wanted, Value)> = Vec::new();
    let reach = match facet {
        Facet::Main if resource.traits.status => Reach::Body,
        Facet::Status => Reach::Status { metadata: resource.traits.open_status },
        _ => Reach::Whole,
    };
    let manager = manager(call);
    for _ in 0..ROUNDS {
        let (result, mut wanted) = {
            let wanted = RefCell::new(Vec::<Wanted>::new());
            let in_version = |version: &str| {
                registry.iter().find(|r| r.table == resource.table && &*r.api_version == version)
            };
            let convert = |value: &Value, version: &str| {
                let given = value.get("apiVersion").and_then(Value::as_str);
                if given.is_none_or(|given| given == version) && version == &*resource.api_version {
                    return Some((value.clone(), schema(resource)));
                }
                let to = in_version(version)?;
                let mut converted = match (webhook, given) {
                    (Some(_), Some(given)) if given != version => {
                        let found = known.iter().find(|((v, to), _)| to == version && v == value);
                        let Some((_, converted)) = found else {
                            wanted.borrow_mut().push((value.clone(), version.to_owned()));
                            return None;
                        };
                        from_storage(to, converted.clone())
                    }
                    (Some(_), _) => value.clone(),
                    (None, _) => {
                        let from = given.and_then(in_version).map_or(resource, |from| from);
                        from_storage(to, to_storage(from, value.clone()))
                    }
                };
                conform_known(to, &mut converted);
                Some((converted, schema(to)))
            };
            let result = act(&Writer {
                manager: &manager,
                api_version: &resource.api_version,
                subresource: call.target.subresource.split('/').next().unwrap_or_default(),
                reach,
                now: call.server.clock.now(),
                schema: schema(resource),
                convert: &convert,
            });
            (result, wanted.into_inner())
        };
        let Some(webhook) = webhook.filter(|_| !wanted.is_empty()) else { return Ok(result) };
        drop(result);
        while let Some((_, version)) = wanted.first().cloned() {
            let (now, later): (Vec<Wanted>, Vec<Wanted>) = wanted.into_iter().partition(|w| w.1 == version);
            wanted = later;
            let values = now.iter().map(|(value, _)| value.clone()).collect();
            let converted = webhook.convert(call.server, &version, values).await?;
            known.extend(now.into_iter().zip(converted));
        }
    }
    Err(Failure::internal("fields are managed in too many versions"))
}

/// The entries after a write that made `new` of `old`; both are without entries. `sent` are those of the request.
pub async fn account(
    call: &Call<'_>,
    facet: Facet,
    present: &Entries<'_>,
    sent: Option<&Value>,
    (old, new): (&Value, &Value),
) -> Outcome<Account> {
    with_writer(call, facet, |writer| managed_fields::update(writer, present, sent, old, new)).await
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
