//! Bindings of roles. Roles themselves have no columns of their own.

use serde_json::Value;

use super::Column;
use super::cells::{AGE, NAME};
use crate::kinds::access::{field, list_at, str_at};

/// Columns of role bindings, in a namespace or for the cluster.
pub static BINDING: &[Column] = &[
    NAME,
    Column::text("Role", "The role that is given.", |o, _| {
        let role = field(o, "roleRef").unwrap_or(&Value::Null);
        format!("{}/{}", str_at(role, "kind"), str_at(role, "name")).into()
    }),
    AGE,
    Column::text("Users", "Users it is given to.", |o, _| subjects(o, "User").into()).wide(),
    Column::text("Groups", "Groups it is given to.", |o, _| subjects(o, "Group").into()).wide(),
    Column::text("ServiceAccounts", "Service accounts it is given to.", |o, _| {
        subjects(o, "ServiceAccount").into()
    })
    .wide(),
];

fn subjects(binding: &Value, kind: &str) -> String {
    let subjects = list_at(binding, "subjects").iter().filter(|subject| str_at(subject, "kind") == kind);
    let shown = subjects.map(|subject| match (kind, str_at(subject, "name")) {
        ("ServiceAccount", name) => format!("{}/{name}", str_at(subject, "namespace")),
        (_, name) => name.to_owned(),
    });
    shown.collect::<Vec<_>>().join(", ")
}
