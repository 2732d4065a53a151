//! Secrets that hold a token of an account go with it.

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use shoal_runtime::cache::Encoded;
use shoal_runtime::controller::Listers;
use shoal_runtime::{Action, Context, Controller, ObjectKey, Result};

const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// The controller.
pub fn controller() -> Controller {
    Controller::of::<Secret>("serviceaccount-token-controller")
        .field_manager("kube-controller-manager")
        .watches_metadata::<ServiceAccount>(secrets_beside)
        .reconcile(reconcile)
}

/// The Secrets of the namespace of an account that is on its way out: which of them are its own, they say themselves.
fn secrets_beside(account: &Encoded, listers: &Listers) -> Vec<ObjectKey> {
    let here = listers.of::<ServiceAccount>().meta(account.key());
    if here.is_some_and(|here| here.uid() == account.uid()) {
        return Vec::new();
    }
    listers.of::<Secret>().metas_in(account.namespace()).iter().map(|secret| secret.key().clone()).collect()
}

/// Name and, where it is known, uid of the account whose token a Secret holds.
fn account_of(secret: &Secret) -> Option<(&str, Option<&str>)> {
    let annotations = secret.metadata.annotations.as_ref()?;
    let told = |key: &str| annotations.get(key).map(String::as_str).filter(|text| !text.is_empty());
    let holds = secret.type_.as_deref() == Some(TYPE);
    told(ACCOUNT).filter(|_| holds).map(|name| (name, told(ACCOUNT_UID)))
}

async fn reconcile(context: Context<Secret>) -> Result<Action> {
    let Some(secret) = context.object().filter(|secret| secret.metadata.deletion_timestamp.is_none()) else {
        return Ok(Action::done());
    };
    let Some((name, uid)) = account_of(&secret) else { return Ok(Action::done()) };
    let key = ObjectKey::new(&context.key().namespace, name);
    let is_it = |found: &str| uid.is_none_or(|uid| uid == found);
    let known = context.lister::<ServiceAccount>().meta(&key);
    if known.is_some_and(|known| is_it(&known.uid().to_string())) {
        return Ok(Action::done());
    }
    // The cache may be behind: only the server knows that an account is not there.
    let live = context.writer().get::<ServiceAccount>(&key).await?;
    if live.is_none_or(|live| !is_it(live.metadata.uid.as_deref().unwrap_or_default())) {
        context.writer().delete(&*secret).await?;
    }
    Ok(Action::done())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_secrets_with_a_token_belong_to_an_account() {
        let secret = |kind: &str, notes| -> Secret {
            serde_json::from_value(json!({"type": kind, "metadata": {"annotations": notes}})).unwrap()
        };
        let notes = json!({ACCOUNT: "robot", ACCOUNT_UID: "u"});
        assert_eq!(account_of(&secret(TYPE, notes.clone())), Some(("robot", Some("u"))));
        assert_eq!(account_of(&secret(TYPE, json!({ACCOUNT: "robot"}))), Some(("robot", None)));
        assert_eq!(account_of(&secret("Opaque", notes)), None);
        assert_eq!(account_of(&secret(TYPE, json!({}))), None);
    }
}
