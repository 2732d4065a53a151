//! Autoscalers and the scale of what they act on.

use serde_json::Value;
use shoal_objects::Timestamp;

use super::Column;
use super::cells::{AGE, NAME, NONE, UNSET, few, number, quantity};
use crate::kinds::access::{at, field, list_at, str_at};
use crate::kinds::hpa;

/// Columns of horizontal pod autoscalers.
pub static AUTOSCALER: &[Column] = &[
    NAME,
    Column::text("Reference", "What is scaled.", |o, _| {
        let target = at(o, &["spec", "scaleTargetRef"]).unwrap_or(&Value::Null);
        format!("{}/{}", str_at(target, "kind"), str_at(target, "name")).into()
    }),
    Column::text("Targets", "Measured and wanted value of each metric.", targets),
    Column::text("MinPods", "The lower bound.", |o, _| {
        at(o, &["spec", "minReplicas"]).map_or(UNSET.into(), |min| quantity(Some(min)).into())
    }),
    Column::text("MaxPods", "The upper bound.", |o, _| number(o, &["spec", "maxReplicas"]).into()),
    Column::text("Replicas", "How many pods there are.", |o, _| {
        number(o, &["status", "currentReplicas"]).into()
    }),
    AGE,
];

/// Columns of the scale subresource.
pub static SCALE: &[Column] = &[
    Column { format: "", ..NAME },
    Column::number("Desired", "How many pods are wanted.", |o, _| number(o, &["spec", "replicas"]).into()),
    Column::number("Available", "How many pods there are.", |o, _| number(o, &["status", "replicas"]).into()),
    AGE,
];

fn targets(autoscaler: &Value, _: Timestamp) -> Value {
    let mut converted;
    let mut autoscaler = autoscaler;
    if str_at(autoscaler, "apiVersion") == "autoscaling/v1" {
        // Version 1 keeps all metrics but the processor's in annotations.
        converted = autoscaler.clone();
        hpa::v1_to_v2(&mut converted);
        autoscaler = &converted;
    }
    let specs = field(autoscaler, "spec").map_or(&[][..], |spec| list_at(spec, "metrics"));
    let current = field(autoscaler, "status").map_or(&[][..], |status| list_at(status, "currentMetrics"));
    if specs.is_empty() {
        return NONE.into();
    }
    let shown: Vec<String> =
        specs.iter().enumerate().map(|(index, spec)| metric(spec, current.get(index))).collect();
    few(&shown, 2, ", ").into()
}

fn metric(spec: &Value, current: Option<&Value>) -> String {
    let source = match str_at(spec, "type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let spec = field(spec, source).unwrap_or(&Value::Null);
    let target = field(spec, "target").unwrap_or(&Value::Null);
    let measured = current.and_then(|metric| at(metric, &[source, "current"]));
    // Zero stands for what a present measurement leaves out; what must be present to count is asked for below.
    let shown = |name: &str| measured.map_or("<unknown>".to_owned(), |m| quantity(field(m, name)));
    let known = |name: &str| measured.and_then(|m| field(m, name));
    let average = field(target, "averageValue");
    match source {
        "pods" => format!("{}/{}", shown("averageValue"), quantity(average)),
        "external" | "object" => match average {
            Some(average) => {
                let measured = known("averageValue").map_or("<unknown>".to_owned(), |v| quantity(Some(v)));
                format!("{measured}/{} (avg)", quantity(Some(average)))
            }
            None => format!("{}/{}", shown("value"), quantity(field(target, "value"))),
        },
        _ => {
            let name = str_at(spec, "name");
            if let Some(average) = average {
                return format!("{name}: {}/{}", shown("averageValue"), quantity(Some(average)));
            }
            let percent = |value: Option<&Value>, otherwise: &str| {
                value.map_or(otherwise.to_owned(), |v| format!("{}%", quantity(Some(v))))
            };
            let measured = percent(known("averageUtilization"), "<unknown>");
            format!("{name}: {measured}/{}", percent(field(target, "averageUtilization"), "<auto>"))
        }
    }
}
