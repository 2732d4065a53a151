//! Devices and claims to them.

use serde_json::Value;
use shoal_objects::meta;

use super::Column;
use super::cells::{AGE, NAME, count, text};
use crate::kinds::access::at;

/// Columns of resource claims.
pub static CLAIM: &[Column] =
    &[NAME, Column::text("State", "Whether devices were found and are in use.", |o, _| state(o).into()), AGE];

/// Columns of resource slices.
pub static SLICE: &[Column] = &[
    NAME,
    Column::text("Node", "The node that has the devices.", |o, _| text(o, &["spec", "nodeName"])),
    Column::text("Driver", "The driver of the devices.", |o, _| text(o, &["spec", "driver"])),
    Column::text("Pool", "The pool the devices belong to.", |o, _| text(o, &["spec", "pool", "name"])),
    AGE,
];

fn state(claim: &Value) -> String {
    let deleted = meta::deletion_timestamp(claim).is_some();
    let allocated = at(claim, &["status", "allocation"]).is_some();
    let reserved = allocated && count(claim, &["status", "reservedFor"]) > 0;
    let states = [
        (deleted, "deleted"),
        (!deleted && !allocated, "pending"),
        (allocated, "allocated"),
        (reserved, "reserved"),
    ];
    states.iter().filter(|(holds, _)| *holds).map(|(_, state)| *state).collect::<Vec<_>>().join(",")
}
