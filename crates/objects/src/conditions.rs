//! Conditions in the status of an object.

use serde_json::Value;

use crate::{Map, Timestamp};

/// A condition as a controller states it; when it came about is for [`set_condition`] to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition<'a> {
    /// The condition's type, `Ready`.
    pub kind: &'a str,
    /// `True`, `False` or `Unknown`.
    pub status: &'a str,
    /// One word for machines.
    pub reason: &'a str,
    /// A sentence for people.
    pub message: &'a str,
    /// The generation this was found for.
    pub observed_generation: Option<i64>,
}

/// The condition of that type.
pub fn condition<'a>(obj: &'a Value, kind: &str) -> Option<&'a Value> {
    list(obj).iter().find(|condition| is_of(condition, kind))
}

/// The status of the condition of that type: `True`, `False` or `Unknown`.
pub fn condition_status<'a>(obj: &'a Value, kind: &str) -> Option<&'a str> {
    condition(obj, kind)?.get("status")?.as_str()
}

/// Whether the condition of that type is `True`.
pub fn is_condition_true(obj: &Value, kind: &str) -> bool {
    condition_status(obj, kind) == Some("True")
}

/// States a condition in `status.conditions`, and tells whether anything changed. `lastTransitionTime` moves only when
/// the condition is new or its status changes; other fields of a condition that is there stay.
pub fn set_condition(obj: &mut Value, new: &Condition<'_>, now: Timestamp) -> bool {
    let mut stated = Map::new();
    for (field, value) in
        [("type", new.kind), ("status", new.status), ("reason", new.reason), ("message", new.message)]
    {
        stated.insert(field.to_owned(), value.into());
    }
    if let Some(generation) = new.observed_generation {
        stated.insert("observedGeneration".to_owned(), generation.into());
    }
    let before = condition(obj, new.kind).and_then(Value::as_object).cloned().unwrap_or_default();
    let since = before.get("lastTransitionTime").filter(|time| !time.is_null());
    if since.is_none() || before.get("status").and_then(Value::as_str) != Some(new.status) {
        stated.insert("lastTransitionTime".to_owned(), now.to_string().into());
    }
    let mut after = before.clone();
    after.extend(stated);
    if after == before {
        return false;
    }
    let mut conditions = list(obj).to_vec();
    match conditions.iter_mut().find(|condition| is_of(condition, new.kind)) {
        Some(condition) => *condition = Value::Object(after),
        None => conditions.push(Value::Object(after)),
    }
    set_list(obj, conditions);
    true
}

/// Takes a condition away, and tells whether it was there.
pub fn remove_condition(obj: &mut Value, kind: &str) -> bool {
    if condition(obj, kind).is_none() {
        return false;
    }
    let mut conditions = list(obj).to_vec();
    conditions.retain(|condition| !is_of(condition, kind));
    set_list(obj, conditions);
    true
}

fn is_of(condition: &Value, kind: &str) -> bool {
    condition.get("type").and_then(Value::as_str) == Some(kind)
}

fn list(obj: &Value) -> &[Value] {
    let conditions = obj.get("status").and_then(|status| status.get("conditions"));
    conditions.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn set_list(obj: &mut Value, conditions: Vec<Value>) {
    if !obj.is_object() {
        *obj = Value::Object(Map::new());
    }
    let status = &mut obj["status"];
    if !status.is_object() {
        *status = Value::Object(Map::new());
    }
    status["conditions"] = Value::Array(conditions);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const READY: Condition<'_> = Condition {
        kind: "Ready",
        status: "True",
        reason: "Up",
        message: "is up",
        observed_generation: Some(2),
    };

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let (then, later) = (Timestamp(0), Timestamp(60_000_000));
        let time =
            |obj: &Value| condition(obj, "Ready").unwrap()["lastTransitionTime"].as_str().unwrap().to_owned();
        let mut obj = json!({"status": {"conditions": [{"type": "Other", "status": "False"}]}});
        assert!(set_condition(&mut obj, &READY, then));
        assert!(is_condition_true(&obj, "Ready") && !is_condition_true(&obj, "Other"));
        assert!(!set_condition(&mut obj, &READY, later));
        assert!(set_condition(&mut obj, &Condition { reason: "StillUp", ..READY }, later));
        assert_eq!(time(&obj), "1970-01-01T00:00:00Z");
        assert!(set_condition(&mut obj, &Condition { status: "False", ..READY }, later));
        assert_eq!(time(&obj), "1970-01-01T00:01:00Z");
        assert_eq!(obj["status"]["conditions"].as_array().unwrap().len(), 2);
        assert!(remove_condition(&mut obj, "Ready") && !remove_condition(&mut obj, "Ready"));
    }

    #[test]
    fn a_status_is_made_where_there_is_none() {
        for mut obj in [json!({}), json!(null), json!({"status": 3}), json!({"status": {"conditions": "x"}})]
        {
            assert!(set_condition(&mut obj, &READY, Timestamp(0)));
            assert_eq!(condition_status(&obj, "Ready"), Some("True"));
        }
    }
}
