//! Priority and fairness of requests.

use serde_json::Value;

use super::Column;
use super::cells::{AGE, NAME, NONE, number, text};
use crate::kinds::access::{at, str_at};
use shoal_objects::conditions;

/// Columns of flow schemas.
pub static FLOW_SCHEMA: &[Column] = &[
    NAME,
    Column::text("PriorityLevel", "Where matching requests are served.", |o, _| {
        text(o, &["spec", "priorityLevelConfiguration", "name"])
    }),
    Column::text("MatchingPrecedence", "Lower is tried first.", |o, _| {
        number(o, &["spec", "matchingPrecedence"]).into()
    }),
    Column::text("DistinguisherMethod", "What makes one flow of requests.", |o, _| {
        at(o, &["spec", "distinguisherMethod"]).map_or(NONE.into(), |method| str_at(method, "type").into())
    }),
    AGE,
    Column::text("MissingPL", "Whether the priority level does not exist.", |o, _| {
        conditions::condition_status(o, "Dangling").unwrap_or("?").into()
    }),
];

/// Columns of priority levels.
pub static PRIORITY_LEVEL: &[Column] = &[
    NAME,
    Column::text("Type", "Whether requests are limited.", |o, _| text(o, &["spec", "type"])),
    Column::text("NominalConcurrencyShares", "Its share of what is served at once.", |o, _| {
        limit(o, &["spec", "limited"], "nominalConcurrencyShares")
    }),
    Column::text("Queues", "How many queues there are.", |o, _| limit(o, QUEUING, "queues")),
    Column::text("HandSize", "How many queues a flow may use.", |o, _| limit(o, QUEUING, "handSize")),
    Column::text("QueueLengthLimit", "How many requests a queue holds.", |o, _| {
        limit(o, QUEUING, "queueLengthLimit")
    }),
    AGE,
];

const QUEUING: &[&str] = &["spec", "limited", "limitResponse", "queuing"];

fn limit(level: &Value, parent: &[&str], name: &str) -> Value {
    at(level, parent).map_or(NONE.into(), |limits| number(limits, &[name]).into())
}
