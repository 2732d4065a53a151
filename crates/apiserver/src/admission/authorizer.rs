//! The variable `authorizer` of admission expressions: what the caller of this request may do.

use std::sync::Arc;

use crate::access::UserInfo;
use crate::authorize;
use crate::cel::authorizer::{Authorize, Decision, Question};
use crate::handlers::Call;

/// Answers questions about the caller of this request.
pub fn authorizer(call: &Call<'_>) -> Authorize {
    let (server, caller) = (call.server.clone(), call.user.clone());
    Arc::new(move |question: &Question| {
        let account = question.service_account.as_ref().map(|(namespace, name)| account(namespace, name));
        let user = account.as_ref().unwrap_or(&caller);
        let allowed = server.authorizer.allows(user, &attributes(question));
        Decision { allowed, ..Decision::default() }
    })
}

fn account(namespace: &str, name: &str) -> UserInfo {
    let group = format!("system:serviceaccounts:{namespace}");
    UserInfo::authenticated(
        &format!("system:serviceaccount:{namespace}:{name}"),
        &["system:serviceaccounts", &group],
    )
}

fn attributes(question: &Question) -> authorize::Attributes {
    let Question { path, group, resource, subresource, namespace, name, verb, .. } = question.clone();
    let path = path.unwrap_or_default();
    authorize::Attributes { verb, group, resource, subresource, namespace, name, path }
}
