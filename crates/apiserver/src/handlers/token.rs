//! Tokens for ServiceAccounts (TokenRequest).

use serde_json::{Value, json};
use shoal_objects::{Errors, meta};

use crate::access::tokens::{Account, BoundObject, ObjectRef};
use crate::admission;
use crate::handlers::{Call, served};
use crate::index::Index;
use crate::kinds::token_request;
use crate::response::{Reply, reply};
use crate::status::{Failure, Outcome};

/// Issues a token for the account of the path.
pub async fn create(call: &Call<'_>) -> Outcome<Reply> {
    let dry_run = call.dry_run("CreateOptions")?;
    let mut request = call.body_object("authentication.k8s.io/v1", "TokenRequest")?;
    token_request::default(&mut request);
    admission::subresource(call, &mut request, dry_run).await?;
    let mut errors = Errors::new();
    token_request::validate(&request, &mut errors);
    if !errors.is_empty() {
        return Err(Failure::invalid("authentication.k8s.io", "TokenRequest", "", &errors));
    }
    let seconds = request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or_default();
    let account = call.served(&*call.stored().await?).await?;
    let audiences: Vec<String> = match request.pointer("/spec/audiences").and_then(Value::as_array) {
        Some(list) if !list.is_empty() => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => vec![crate::access::tokens::ISSUER.to_owned()],
    };
    let bound = match request.pointer("/spec/boundObjectRef") {
        Some(reference) if reference.is_object() => Some(find_bound(call, reference).await?),
        _ => None,
    };
    let now = call.server.clock.now();
    let expires = now.plus_seconds(seconds);
    let holder = Account {
        namespace: meta::namespace(&account).to_owned(),
        name: meta::name(&account).to_owned(),
        uid: meta::uid(&account).to_owned(),
        bound,
    };
    let id = call.server.entropy.uid();
    let token = call
        .server
        .tokens
        .issue(&holder, &audiences, seconds, &id, now)
        .map_err(|e| Failure::internal(format!("signing the token: {e}")))?;
    request["metadata"] = json!({
        "name": meta::name(&account), "namespace": meta::namespace(&account), "uid": meta::uid(&account),
        "creationTimestamp": now.to_string(),
    });
    let reference = request.pointer("/spec/boundObjectRef").cloned().unwrap_or(Value::Null);
    request["spec"] =
        json!({"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": reference});
    let token = if dry_run { String::new() } else { token };
    request["status"] = json!({"token": token, "expirationTimestamp": expires.to_string()});
    reply(call, 201, &request)
}

/// The token ends with the object it is bound to.
async fn find_bound(call: &Call<'_>, reference: &Value) -> Outcome<BoundObject> {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let (kind, name, uid) = (text("kind"), text("name"), text("uid"));
    let plural = match kind {
        "Pod" => "pods",
        "Secret" => "secrets",
        "Node" => "nodes",
        _ => return Err(Failure::bad_request(format!("cannot bind token to object of type {kind}"))),
    };
    let registry = call.server.registry();
    let Some(resource) = registry.find("", "v1", plural) else { return Err(Failure::no_such_resource()) };
    let key = resource.key(&call.target.namespace, name);
    let Some(object) = call.server.store.get(&resource.table, &key).await else {
        return Err(Failure::not_found(resource, name));
    };
    let object = served(resource, &object)?;
    if !uid.is_empty() && uid != meta::uid(&object) {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(Failure::conflict("", plural, name, &why));
    }
    let reference = ObjectRef { name: name.to_owned(), uid: meta::uid(&object).to_owned() };
    Ok(match kind {
        "Pod" => BoundObject::Pod(reference, node_of(call, &object).await),
        "Secret" => BoundObject::Secret(reference),
        _ => BoundObject::Node(reference),
    })
}

/// The node a pod is bound to, if it is known here.
async fn node_of(call: &Call<'_>, pod: &Value) -> Option<ObjectRef> {
    let name = pod.pointer("/spec/nodeName")?.as_str()?;
    let node = call.server.store.get("nodes", name).await?;
    Some(ObjectRef { name: name.to_owned(), uid: Index::new(&node.meta).uid().to_owned() })
}
