//! The ServiceAccount.

use k8s_openapi::api::core::v1::ServiceAccount;

use super::metadata;
use crate::Application;

/// The account that the specification names, for the case that it is missing.
pub fn service_account(app: &Application) -> Option<ServiceAccount> {
    let name = app.spec.security.as_ref()?.service_account.as_deref()?;
    Some(ServiceAccount { metadata: metadata(app, name), ..ServiceAccount::default() })
}
