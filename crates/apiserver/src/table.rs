//! Objects as rows of a table, for people.

use serde_json::{Value, json};
use shoal_objects::{Timestamp, meta};

use crate::handlers::view::partial;
use crate::registry::Resource;

/// A `Table` of these objects. Watches send the columns with the first event only.
pub fn table(
    _resource: &Resource,
    objects: &[Value],
    metadata: Value,
    version: &str,
    columns: bool,
    now: Timestamp,
) -> Value {
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let cells = json!([meta::name(object), age(object, now)]);
            json!({"cells": cells, "object": partial(object, version)})
        })
        .collect();
    let definitions = if columns {
        json!([
            {"name": "Name", "type": "string", "format": "name", "description": "Name of the object.", "priority": 0},
            {"name": "Age", "type": "string", "format": "", "description": "Time since its creation.", "priority": 0},
        ])
    } else {
        Value::Null
    };
    let api_version = format!("meta.k8s.io/{version}");
    json!({
        "kind": "Table", "apiVersion": api_version, "metadata": metadata, "columnDefinitions": definitions, "rows": rows,
    })
}

/// Time since creation in the short form of kubectl.
fn age(object: &Value, now: Timestamp) -> String {
    let Some(created) = meta::creation_timestamp(object).and_then(|t| t.parse::<jiff::Timestamp>().ok()) else {
        return "<unknown>".to_owned();
    };
    short_duration(now.seconds() - created.as_second())
}

/// `45s`, `5m`, `3h25m`, `2d4h`, `400d`, `3y12d`: as exact as a glance needs.
pub fn short_duration(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let pair = |a: i64, unit: &str, b: i64, small: &str| {
        if b == 0 { format!("{a}{unit}") } else { format!("{a}{unit}{b}{small}") }
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => pair(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_as_exact_as_a_glance_needs() {
        let cases = [
            (-5, "0s"), (119, "119s"), (120, "2m"), (125, "2m5s"), (599, "9m59s"), (600, "10m"), (10_799, "179m"),
            (10_800, "3h"), (12_300, "3h25m"), (28_800, "8h"), (172_799, "47h"), (187_200, "2d4h"), (691_200, "8d"),
            (63_072_000, "2y"), (64_108_800, "2y12d"), (252_288_000, "8y"),
        ];
        for (seconds, text) in cases {
            assert_eq!(short_duration(seconds), text, "{seconds}");
        }
    }
}
