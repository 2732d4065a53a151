//! Figures as objects, lists, tables and documents. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use shoal_objects::quantity::{Format, Quantity, canonicalize};
use shoal_objects::{Timestamp, selector::FieldSelector};

use super::request::{Form, Rows};
use super::series::Figure;
use super::{GROUP, VERSION};
use crate::usage::Usage;

/// The figures of a node or a pod, with what is told about the object itself.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Namespace, empty for nodes.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Labels of the node or pod.
    pub labels: BTreeMap<String, String>,
    /// What was measured: one figure of a node, one for each container of a pod.
    pub figures: Vec<(String, Figure)>,
}

fn is_of_pod(measured: &Measured) -> bool {
    !measured.namespace.is_empty()
}

fn amounts(usage: Usage) -> Value {
    let nanos = format!("{}n", usage.cpu);
    let cpu = canonicalize(&nanos).unwrap_or(nanos);
    let memory = Quantity::new(i64::try_from(usage.memory).unwrap_or(i64::MAX), Format::BinarySi);
    json!({"cpu": cpu, "memory": memory.to_string()})
}

/// As Go writes durations, in milliseconds.
fn window_text(window: Duration) -> String {
    let millis = window.as_millis();
    let (minutes, millis) = (millis / 60_000, millis % 60_000);
    let seconds = match millis % 1000 {
        0 => format!("{}s", millis / 1000),
        rest => format!("{}.{}s", millis / 1000, format!("{rest:03}").trim_end_matches('0')),
    };
    match (minutes / 60, minutes % 60) {
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}m{seconds}"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
    }
}

impl Measured {
    /// Whether it is meant.
    pub fn is_selected(&self, fields: &FieldSelector) -> bool {
        fields.matches(|field| match field {
            "metadata.name" => &self.name,
            "metadata.namespace" => &self.namespace,
            _ => "",
        })
    }

    /// The oldest figure speaks for all.
    fn oldest(&self) -> Option<&Figure> {
        self.figures.iter().map(|(_, figure)| figure).min_by_key(|figure| figure.at)
    }

    fn metadata(&self, now: Timestamp) -> Value {
        let mut metadata = json!({"name": self.name, "creationTimestamp": now.to_string()});
        if is_of_pod(self) {
            metadata["namespace"] = self.namespace.as_str().into();
        }
        if !self.labels.is_empty() {
            metadata["labels"] = json!(self.labels);
        }
        metadata
    }

    fn window(&self) -> Duration {
        self.oldest().map_or(Duration::ZERO, |figure| figure.window)
    }

    fn object(&self, now: Timestamp) -> Value {
        let at = self.oldest().map_or(now, |figure| figure.at).to_string();
        let mut object =
            json!({"metadata": self.metadata(now), "timestamp": at, "window": window_text(self.window())});
        if is_of_pod(self) {
            let one =
                |(name, figure): &(String, Figure)| json!({"name": name, "usage": amounts(figure.usage)});
            object["containers"] = self.figures.iter().map(one).collect();
        } else {
            object["usage"] = amounts(self.total());
        }
        object
    }

    fn total(&self) -> Usage {
        self.figures.iter().map(|(_, figure)| figure.usage).sum()
    }

    fn row(&self, rows: Rows, now: Timestamp, kind: &str) -> Value {
        let usage = amounts(self.total());
        let mut row =
            json!({"cells": [self.name, usage["cpu"], usage["memory"], window_text(self.window())]});
        match rows {
            Rows::None => {}
            Rows::Metadata => row["object"] = typed(json!({"metadata": self.metadata(now)}), PARTIAL),
            Rows::Object => row["object"] = typed(self.object(now), (&group_version(), kind)),
        }
        row
    }
}

const PARTIAL: (&str, &str) = ("meta.k8s.io/v1", "PartialObjectMetadata");

fn group_version() -> String {
    format!("{GROUP}/{VERSION}")
}

fn typed(mut object: Value, (version, kind): (&str, &str)) -> Value {
    object["apiVersion"] = version.into();
    object["kind"] = kind.into();
    object
}

/// One object, of the kind `NodeMetrics` or `PodMetrics`.
pub fn one(measured: &Measured, kind: &str, form: Form, now: Timestamp) -> Value {
    match form {
        Form::Plain => typed(measured.object(now), (&group_version(), kind)),
        Form::Metadata => typed(json!({"metadata": measured.metadata(now)}), PARTIAL),
        Form::Table(rows) => table(&[measured.row(rows, now, kind)]),
    }
}

/// A list of that kind.
pub fn list(all: &[Measured], kind: &str, form: Form, now: Timestamp) -> Value {
    let list = |version: &str, kind: &str, items: Vec<Value>| json!({"kind": format!("{kind}List"), "apiVersion": version, "metadata": {}, "items": items});
    match form {
        Form::Plain => list(&group_version(), kind, all.iter().map(|one| one.object(now)).collect()),
        Form::Metadata => {
            let one = |one: &Measured| typed(json!({"metadata": one.metadata(now)}), PARTIAL);
            list(PARTIAL.0, PARTIAL.1, all.iter().map(one).collect())
        }
        Form::Table(rows) => table(&all.iter().map(|one| one.row(rows, now, kind)).collect::<Vec<_>>()),
    }
}

fn table(rows: &[Value]) -> Value {
    let column = |name: &str, format: &str, about: &str| json!({"name": name, "type": "string", "format": format, "description": about, "priority": 0});
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {},
        "columnDefinitions": [
            column("Name", "name", "Name of the resource"),
            column("cpu", "quantity", "CPU that is used"),
            column("memory", "quantity", "Memory that is used"),
            column("Window", "duration", "Over which time CPU was measured"),
        ],
        "rows": rows,
    })
}

/// The resources of the group version.
pub fn discovery() -> Value {
    let resource = |name: &str, kind: &str, namespaced: bool| json!({"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get", "list"]});
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version(),
        "resources": [resource("nodes", "NodeMetrics", false), resource("pods", "PodMetrics", true)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(nanos: u64, memory: u64, second: i64) -> Figure {
        Figure {
            usage: Usage { cpu: nanos, memory },
            at: Timestamp(second * 1_000_000),
            window: Duration::from_millis(15_040),
        }
    }

    fn pod() -> Measured {
        Measured {
            namespace: "n".to_owned(),
            name: "p".to_owned(),
            labels: BTreeMap::from([("app".to_owned(), "web".to_owned())]),
            figures: vec![
                ("a".to_owned(), figure(203_524_892, 1 << 20, 9)),
                ("b".to_owned(), figure(250_000_000, 1500, 5)),
            ],
        }
    }

    #[test]
    fn objects_are_those_of_the_real_metrics_api() {
        let now = Timestamp(10_000_000);
        let shown = list(&[pod()], "PodMetrics", Form::Plain, now);
        let expected = json!({
            "kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": [{
                "metadata": {"name": "p", "namespace": "n", "creationTimestamp": "1970-01-01T00:00:10Z",
                    "labels": {"app": "web"}},
                "timestamp": "1970-01-01T00:00:05Z", "window": "15.04s",
                "containers": [
                    {"name": "a", "usage": {"cpu": "203524892n", "memory": "1Mi"}},
                    {"name": "b", "usage": {"cpu": "250m", "memory": "1500"}},
                ],
            }],
        });
        assert_eq!(shown, expected);
        let node = Measured { namespace: String::new(), name: "m".to_owned(), ..pod() };
        let shown = one(&node, "NodeMetrics", Form::Plain, now);
        assert_eq!(shown["usage"]["cpu"], "453524892n");
        assert_eq!(shown["kind"], "NodeMetrics");
    }

    #[test]
    fn people_see_rows() {
        let now = Timestamp(10_000_000);
        let shown = list(&[pod()], "PodMetrics", Form::Table(Rows::Metadata), now);
        assert_eq!(shown["rows"][0]["cells"], json!(["p", "453524892n", "1050076", "15.04s"]));
        assert_eq!(shown["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(shown["columnDefinitions"][3]["name"], "Window");
    }

    #[test]
    fn windows_are_written_as_go_writes_them() {
        let shown = |millis| window_text(Duration::from_millis(millis));
        assert_eq!(
            [shown(1000), shown(15_004), shown(60_000), shown(3_661_500)],
            ["1s", "15.004s", "1m0s", "1h1m1.5s"]
        );
    }

    #[test]
    fn fields_select() {
        let meant = |text: &str| pod().is_selected(&FieldSelector::parse(text).unwrap());
        assert!(meant("metadata.name=p,metadata.namespace!=other") && !meant("metadata.name=q"));
    }
}
