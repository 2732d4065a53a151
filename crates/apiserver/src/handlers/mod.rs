//! One file per verb, one per subresource with ways of its own.

pub mod apply;
pub mod binding;
pub mod collection;
pub mod create;
pub mod custom;
pub mod delete;
pub mod edited;
pub mod eviction;
pub mod get;
pub mod list;
pub mod node_proxy;
pub mod ownership;
pub mod patch;
pub mod pod_streams;
pub mod proxy;
pub mod repeated;
pub mod reviews;
pub mod scale;
pub mod token;
pub mod update;
pub mod view;
pub mod watch;

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::request::Parts;
use parking_lot::Mutex;
use serde_json::{Value, json};
use shoal_objects::Errors;
use shoal_objects::managed_fields::{self, Entries};
use shoal_store::Object;

use crate::access::UserInfo;
use crate::audit::Trail;
use crate::conversion;
use crate::decode;
use crate::encode;
use crate::kinds::{event, hpa, options};
use crate::negotiate::{Accepted, BodyFormat, body_format};
use crate::registry::{Conversion, Resource};
use crate::request::{Query, Target};
use crate::response::{Reply, reply};
use crate::server::Inner;
use crate::status::{Failure, Outcome};

/// One request to a resource.
pub struct Call<'a> {
    /// The server.
    pub server: &'a Arc<Inner>,
    /// What it is about.
    pub target: Target,
    /// In the words of authorization.
    pub verb: &'static str,
    /// Query parameters.
    pub query: Query,
    /// Request headers.
    pub headers: &'a HeaderMap,
    /// Its method and what its connection brings along; none if the server asks itself.
    pub parts: Option<&'a Parts>,
    /// The whole body.
    pub body: Bytes,
    /// What the client wants back.
    pub accepted: Accepted,
    /// Who is calling.
    pub user: UserInfo,
    /// Texts for `Warning` headers.
    pub warnings: &'a Mutex<Vec<String>>,
    /// What the audit log will say.
    pub trail: &'a Mutex<Trail>,
}

/// What is done about fields the type does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    /// Nothing.
    Ignore,
    /// A warning each.
    Warn,
    /// Refused.
    Strict,
}

/// Answers a request to a resource.
pub async fn handle(call: &Call<'_>) -> Outcome<Reply> {
    let resource = &*call.target.resource;
    if let Some(text) = resource.custom.as_ref().and_then(|custom| custom.deprecation.as_ref()) {
        call.warn(text);
    }
    if resource.group.is_empty() && &*resource.plural == "endpoints" {
        call.warn("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice");
    }
    if !call.target.subresource.is_empty() {
        return subresource(call).await;
    }
    if !resource.allows(call.verb) {
        return Err(Failure::method_not_allowed());
    }
    // Objects are made and collections deleted within a namespace.
    if resource.namespaced
        && call.target.namespace.is_empty()
        && matches!(call.verb, "create" | "deletecollection")
    {
        return Err(Failure::method_not_allowed());
    }
    match (&*resource.plural, call.verb) {
        ("bindings", "create") => binding::create(call).await,
        (plural, "create") if plural.ends_with("reviews") => reviews::create(call).await,
        (_, "get") => get::get(call).await,
        (_, "list") => list::list(call).await,
        (_, "watch") => watch::watch(call).await,
        (_, "create") => create::create(call).await,
        (_, "update") => update::update(call, update::Facet::Main).await,
        (_, "patch") => patch::patch(call, update::Facet::Main).await,
        (_, "delete") => delete::delete(call).await,
        (_, "deletecollection") => collection::delete(call).await,
        _ => Err(Failure::method_not_allowed()),
    }
}

async fn subresource(call: &Call<'_>) -> Outcome<Reply> {
    let name = call.target.subresource.split('/').next().unwrap_or_default();
    let Some(subresource) = call.target.resource.subresource(name) else {
        return Err(Failure::no_such_resource());
    };
    let streams = matches!(name, "log" | "exec" | "attach" | "portforward" | "proxy");
    if call.target.subresource.contains('/') && name != "proxy" {
        return Err(Failure::no_such_resource());
    }
    if !streams && !subresource.verbs.contains(&call.verb) {
        return Err(Failure::method_not_allowed());
    }
    match (name, call.verb) {
        ("scale", "get") => scale::get(call).await,
        ("scale", "update") => scale::update(call).await,
        ("scale", _) => scale::patch(call).await,
        ("binding", _) => binding::create(call).await,
        ("eviction", _) => eviction::create(call).await,
        ("token", _) => token::create(call).await,
        _ if streams => pod_streams::handle(call, name).await,
        (_, "get") => get::get(call).await,
        (_, "update") => update::update(call, update::Facet::named(name)).await,
        _ => patch::patch(call, update::Facet::named(name)).await,
    }
}

impl Call<'_> {
    /// The stored object named by the path.
    pub async fn stored(&self) -> Outcome<Arc<Object>> {
        let (resource, target) = (&self.target.resource, &self.target);
        let key = resource.key(&target.namespace, &target.name);
        let found = self.server.store.get(&resource.table, &key).await;
        found.ok_or_else(|| Failure::not_found(resource, &target.name))
    }

    /// A stored object in the version of this request.
    pub async fn served(&self, object: &Object) -> Outcome<Value> {
        shown(self.server, &self.target.resource, object).await
    }

    /// An object of this request in the version it is stored in.
    pub async fn to_storage(&self, object: Value) -> Outcome<Value> {
        conversion::to_storage(self.server, &self.target.resource, object).await
    }

    /// The same request about another object.
    pub fn about(&self, target: Target) -> Call<'_> {
        Call {
            server: self.server,
            target,
            verb: self.verb,
            query: self.query.clone(),
            headers: self.headers,
            parts: self.parts,
            body: Bytes::new(),
            accepted: self.accepted,
            user: self.user.clone(),
            warnings: self.warnings,
            trail: self.trail,
        }
    }

    /// Adds a `Warning` header to the answer.
    pub fn warn(&self, text: impl Into<String>) {
        self.warnings.lock().push(text.into());
    }

    /// Adds a note to the request's line in the audit log.
    pub fn annotate_audit(&self, key: &str, text: String) {
        self.trail.lock().note(key, text);
    }

    /// Whether the request only wants to know what would happen. Options that make no sense are refused.
    pub fn dry_run(&self, options_kind: &str) -> Outcome<bool> {
        let values: Vec<&str> = self.query.all("dryRun").filter(|v| !v.is_empty()).collect();
        let mut errors = Errors::new();
        let manager = self.query.get("fieldManager").unwrap_or_default();
        let validation = self.query.get("fieldValidation").unwrap_or_default();
        options::validate_write(&values, manager, validation, &mut errors);
        if !errors.is_empty() {
            return Err(Failure::invalid("meta.k8s.io", options_kind, "", &errors));
        }
        Ok(!values.is_empty())
    }

    /// What is done about unknown fields.
    pub fn field_validation(&self) -> FieldValidation {
        match self.query.get("fieldValidation") {
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            _ => FieldValidation::Warn,
        }
    }

    /// The body as an object of this kind: parsed, of the right shape, unknown fields dealt with.
    pub fn body_object(&self, api_version: &str, kind: &str) -> Outcome<Value> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let (mut value, mut complaints) = parse_body(self, kind)?;
        let unrecognized = |why: &str| {
            Failure::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): {why}"
            ))
        };
        let Some(members) = value.as_object_mut() else { return Err(unrecognized("not an object")) };
        // A body without type is taken for what the path asks for; a wrong one is refused.
        let given_version = members.entry("apiVersion").or_insert_with(|| api_version.into()).clone();
        let given_kind = members.entry("kind").or_insert_with(|| kind.into()).clone();
        let (given_version, given_kind) =
            (given_version.as_str().unwrap_or_default(), given_kind.as_str().unwrap_or_default());
        if given_version != api_version || given_kind != kind {
            let wrong = format!("{given_kind} in version {given_version:?} cannot be handled as a {kind}");
            return Err(Failure::bad_request(wrong));
        }
        if let Some(type_id) = crate::builtin::type_of(group, version, kind) {
            let unknown = decode::conform(crate::builtin::types(), type_id, &mut value).map_err(|why| {
                Failure::bad_request(format!(
                    "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
                ))
            })?;
            complaints.extend(unknown.iter().map(|path| format!("unknown field {path:?}")));
        }
        self.settle_complaints(complaints, version, kind)?;
        Ok(value)
    }

    /// The body as an object of the resource.
    pub fn body(&self) -> Outcome<Value> {
        let resource = &self.target.resource;
        match &resource.custom {
            Some(custom) => custom::body(self, custom),
            None => self.body_object(&resource.api_version, &resource.kind),
        }
    }

    /// Does about unknown and duplicate fields what the client asked for.
    pub fn settle_complaints(&self, complaints: Vec<String>, version: &str, kind: &str) -> Outcome<()> {
        match self.field_validation() {
            _ if complaints.is_empty() => {}
            FieldValidation::Ignore => {}
            FieldValidation::Warn => complaints.into_iter().for_each(|c| self.warn(c)),
            FieldValidation::Strict => {
                return Err(Failure::bad_request(format!(
                    "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {}",
                    complaints.join(", ")
                )));
            }
        }
        Ok(())
    }

    /// Answers with an object in the representation asked for.
    pub fn answer(&self, status: u16, object: &Value) -> Outcome<Reply> {
        reply(self, status, &view::object(self, object)?)
    }

    /// Answers with a stored object, without decoding it where possible.
    pub async fn answer_stored(&self, status: u16, object: &Object) -> Outcome<Reply> {
        if self.accepted.is_plain() && self.target.resource.shows_as_stored(object) {
            return Ok(Reply::full(status, encode::object(&object.value), "application/json"));
        }
        self.answer(status, &self.served(object).await?)
    }
}

/// The answer to a create that makes no object of its own.
pub fn status_created() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

/// A stored object in the version of a resource, by a webhook's word if need be.
pub async fn shown(server: &Inner, resource: &Resource, object: &Object) -> Outcome<Value> {
    let Some(webhook) = conversion::webhook(resource) else { return served(resource, object) };
    let converted = webhook.convert(server, &resource.api_version, vec![parsed(object)?]).await?;
    Ok(from_storage(resource, converted.into_iter().next().unwrap_or_default()))
}

/// Stored objects in the version of a resource, converted together.
pub async fn all_shown(server: &Inner, resource: &Resource, objects: &[Arc<Object>]) -> Outcome<Vec<Value>> {
    let Some(webhook) = conversion::webhook(resource) else {
        return objects.iter().map(|object| served(resource, object)).collect();
    };
    let values = objects.iter().map(|object| parsed(object)).collect::<Outcome<Vec<Value>>>()?;
    let converted = webhook.convert(server, &resource.api_version, values).await?;
    Ok(converted.into_iter().map(|value| from_storage(resource, value)).collect())
}

fn parsed(object: &Object) -> Outcome<Value> {
    serde_json::from_slice(encode::object_slice(&object.value)).map_err(|e| unreadable(object, &e))
}

/// A stored object in the version of a resource whose versions no webhook converts, as those of all built-in kinds.
pub fn served(resource: &Resource, object: &Object) -> Outcome<Value> {
    Ok(as_served(resource, object, parsed(object)?))
}

/// A stored object in the version of a resource whose versions no webhook converts, its `managedFields` apart.
pub fn served_apart<'o>(resource: &Resource, object: &'o Object) -> Outcome<(Value, Entries<'o>)> {
    let (value, entries) = managed_fields::read_object(encode::object_slice(&object.value))
        .map_err(|e| unreadable(object, &e))?;
    Ok((as_served(resource, object, value), entries))
}

fn unreadable(object: &Object, error: &serde_json::Error) -> Failure {
    Failure::internal(format!("reading {} from the store: {error}", object.key))
}

fn as_served(resource: &Resource, object: &Object, value: Value) -> Value {
    if resource.custom.as_ref().is_some_and(|custom| custom.is_verbatim(object.revision)) {
        return value;
    }
    from_storage(resource, value)
}

/// An object in the version it is stored in, as a resource shows it.
pub fn from_storage(resource: &Resource, mut value: Value) -> Value {
    match resource.conversion {
        Conversion::None => {}
        Conversion::AutoscalingV1 => hpa::v2_to_v1(&mut value),
        Conversion::EventsV1 => event::core_to_events(&mut value),
    }
    if let Some(custom) = &resource.custom {
        custom::from_storage(resource, custom, &mut value);
    }
    value
}

/// An object in the version it is stored in.
pub fn to_storage(resource: &Resource, mut value: Value) -> Value {
    match resource.conversion {
        Conversion::None => {}
        Conversion::AutoscalingV1 => hpa::v1_to_v2(&mut value),
        Conversion::EventsV1 => event::events_to_core(&mut value),
    }
    if let Some(custom) = &resource.custom {
        value["apiVersion"] = Value::from(&*custom.storage_version);
    }
    value
}

/// Fills what the client left out.
pub fn default(resource: &Resource, object: &mut Value) {
    match &resource.custom {
        Some(custom) => custom::default(&custom.schema, object),
        None => (resource.rules.default)(object),
    }
}

/// Adds what Go writes even when empty: zeros and nulls of required fields.
pub fn complete(resource: &Resource, object: &mut Value) {
    if let Some(type_id) = resource.type_id {
        decode::complete(crate::builtin::types(), type_id, object);
    }
}

/// Gives an object of the server's own making the shape that rules expect.
pub fn conform_known(resource: &Resource, object: &mut Value) {
    if let Some(type_id) = resource.type_id {
        // What was stored has conformed before; what it says about unknown fields does not matter here.
        let _ = decode::conform(crate::builtin::types(), type_id, object);
    }
}

/// Parses the body; gives the value and complaints about duplicate fields.
fn parse_body(call: &Call<'_>, kind: &str) -> Outcome<(Value, Vec<String>)> {
    let duplicates = |fields: Vec<String>| fields.iter().map(|f| format!("duplicate field {f:?}")).collect();
    let unrecognized = |why: String| {
        let shown = if call.body.is_empty() { "<empty>" } else { "" };
        Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: \
             {why} ({shown})"
        ))
    };
    match body_format(call.headers)? {
        BodyFormat::Json => {
            let (value, fields) = decode::parse_json(&call.body).map_err(unrecognized)?;
            Ok((value, duplicates(fields)))
        }
        BodyFormat::Yaml => {
            let (value, fields) = decode::parse_yaml(&call.body).map_err(unrecognized)?;
            Ok((value, duplicates(fields)))
        }
        BodyFormat::Protobuf => {
            let value = crate::protobuf::decode_request(&call.body)
                .map_err(|e| Failure::bad_request(format!("decoding the protobuf body: {e}")))?;
            Ok((value, Vec::new()))
        }
    }
}
