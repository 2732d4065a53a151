//! Questions about who somebody is and what they may do.

use serde_json::{Map, Value, json};
use shoal_objects::{Errors, Path};

use crate::access::UserInfo;
use crate::authorize::{Attributes, rules_review};
use crate::handlers::Call;
use crate::response::{Reply, reply};
use crate::status::{Failure, Outcome};

/// Answers a review; nothing is stored.
pub async fn create(call: &Call<'_>) -> Outcome<Reply> {
    call.dry_run("CreateOptions")?;
    let resource = &call.target.resource;
    let mut review = call.body_object(&resource.api_version, &resource.kind)?;
    let status = match &*resource.plural {
        "selfsubjectreviews" => json!({"userInfo": user_json(&call.user)}),
        "tokenreviews" => token_review(call, &review)?,
        "selfsubjectrulesreviews" => {
            let namespace = review.pointer("/spec/namespace").and_then(Value::as_str).unwrap_or_default();
            rules_review(&call.server.authorizer.rules_of(&call.user, namespace))
        }
        "selfsubjectaccessreviews" => access_review(call, &review, &call.user, "")?,
        "localsubjectaccessreviews" => {
            access_review(call, &review, &user_of(&review["spec"]), &call.target.namespace)?
        }
        _ => access_review(call, &review, &user_of(&review["spec"]), "")?,
    };
    if &*resource.plural == "selfsubjectreviews" {
        review["metadata"]["creationTimestamp"] = call.server.clock.now().to_string().into();
    }
    if review["metadata"].as_object().is_some_and(Map::is_empty)
        && let Some(members) = review.as_object_mut()
    {
        members.remove("metadata");
    }
    review["status"] = status;
    reply(call, 201, &review)
}

fn user_json(user: &UserInfo) -> Value {
    serde_json::to_value(user).unwrap_or_default()
}

fn user_of(spec: &Value) -> UserInfo {
    let groups = spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
    UserInfo {
        username: spec["user"].as_str().unwrap_or_default().to_owned(),
        uid: spec["uid"].as_str().unwrap_or_default().to_owned(),
        groups: groups.map(str::to_owned).collect(),
        extra: Default::default(),
    }
}

fn token_review(call: &Call<'_>, review: &Value) -> Outcome<Value> {
    let token = review.pointer("/spec/token").and_then(Value::as_str).unwrap_or_default();
    if token.is_empty() {
        return Err(Failure::bad_request("token is required for TokenReview in authentication"));
    }
    let audiences: Vec<String> = review
        .pointer("/spec/audiences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let found = call.server.authenticator.user_of_token(token, &audiences, call.server.clock.now());
    Ok(match found {
        Ok((user, audiences)) => {
            json!({"authenticated": true, "user": user_json(&user), "audiences": audiences})
        }
        Err(error) => json!({"user": {}, "error": error.to_string()}),
    })
}

fn access_review(call: &Call<'_>, review: &Value, user: &UserInfo, namespace: &str) -> Outcome<Value> {
    let spec = &review["spec"];
    let mut errors = Errors::new();
    let path = Path::new("spec");
    let (resource, other) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
    if resource.is_some() == other.is_some() {
        let text = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.invalid(&path.child("resourceAttributes"), resource.unwrap_or(&Value::Null), text);
    }
    let text = |v: Option<&Value>, field: &str| {
        v.and_then(|v| v.get(field)).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    if !namespace.is_empty() && text(resource, "namespace") != namespace {
        let attributes = path.child("resourceAttributes");
        errors.invalid_str(
            &attributes.child("namespace"),
            &text(resource, "namespace"),
            "must match metadata.namespace",
        );
    }
    if !errors.is_empty() {
        return Err(Failure::invalid("authorization.k8s.io", "", "", &errors));
    }
    let attributes = Attributes {
        verb: text(resource.or(other), "verb"),
        group: text(resource, "group"),
        resource: text(resource, "resource"),
        subresource: text(resource, "subresource"),
        namespace: text(resource, "namespace"),
        name: text(resource, "name"),
        path: text(other, "path"),
    };
    Ok(json!({"allowed": call.server.authorizer.allows(user, &attributes)}))
}
