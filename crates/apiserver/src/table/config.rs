//! Configuration, secrets and quotas.

use serde_json::Value;

use super::Column;
use super::cells::{AGE, NAME, count, quantity, text};
use crate::kinds::access::{at, entries_at, field};

/// Columns of config maps.
pub static CONFIG_MAP: &[Column] = &[
    NAME,
    Column::text("Data", "How many entries there are.", |o, _| {
        (count(o, &["data"]) + count(o, &["binaryData"])).into()
    }),
    AGE,
];

/// Columns of secrets.
pub static SECRET: &[Column] = &[
    NAME,
    Column::text("Type", "What the secret is for.", |o, _| text(o, &["type"])),
    Column::text("Data", "How many entries there are.", |o, _| count(o, &["data"]).into()),
    AGE,
];

/// Columns of resource quotas.
pub static RESOURCE_QUOTA: &[Column] = &[
    NAME,
    Column::text("Request", "Used and allowed of everything but limits.", |o, _| usage(o, false).into()),
    Column::text("Limit", "Used and allowed of limits.", |o, _| usage(o, true).into()),
    AGE,
];

/// `cpu: 1/2, pods: 3/10`
fn usage(quota: &Value, limits: bool) -> String {
    let status = field(quota, "status").unwrap_or(&Value::Null);
    let mut shown: Vec<(&str, String)> = entries_at(status, "hard")
        .filter(|(resource, _)| resource.starts_with("limits.") == limits)
        .map(|(resource, hard)| {
            let used = quantity(at(status, &["used", resource]));
            (resource.as_str(), format!("{resource}: {used}/{}", quantity(Some(hard))))
        })
        .collect();
    shown.sort_unstable();
    shown.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(", ")
}
