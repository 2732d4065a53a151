//! What a node's agent tells at `/metrics/resource`. Pure.

use std::collections::BTreeMap;

use shoal_objects::Timestamp;
use shoal_runtime::ObjectKey;

use crate::usage::Usage;

/// What something used, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// When.
    pub at: Timestamp,
    /// CPU time until then, and memory then.
    pub usage: Usage,
}

/// A container as its node tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// When it started, if that is told.
    pub since: Option<Timestamp>,
    /// What it used.
    pub point: Point,
}

/// Everything that a node has told at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrape {
    /// The node itself.
    pub node: Option<Point>,
    /// Containers by pod and name.
    pub pods: BTreeMap<ObjectKey, BTreeMap<String, Told>>,
}

/// What is known so far of something.
#[derive(Default)]
struct Parts {
    at: Option<Timestamp>,
    cpu: Option<u64>,
    memory: Option<u64>,
    since: Option<Timestamp>,
}

impl Parts {
    /// Without both figures there is nothing to say.
    fn told(&self, now: Timestamp) -> Option<Told> {
        let usage = Usage { cpu: self.cpu?, memory: self.memory? };
        Some(Told { since: self.since, point: Point { at: self.at.unwrap_or(now), usage } })
    }
}

/// Reads the text; lines that are not understood are left out.
pub fn parse(text: &str, now: Timestamp) -> Scrape {
    let mut node = Parts::default();
    let mut containers: BTreeMap<(ObjectKey, String), Parts> = BTreeMap::new();
    for line in text.lines() {
        let Some(line) = Line::parse(line) else { continue };
        let parts = match line.name {
            "node_cpu_usage_seconds_total" | "node_memory_working_set_bytes" => &mut node,
            "container_cpu_usage_seconds_total"
            | "container_memory_working_set_bytes"
            | "container_start_time_seconds" => {
                let label = |name: &str| line.labels.iter().find(|(key, _)| key == name);
                let (Some(namespace), Some(pod), Some(container)) =
                    (label("namespace"), label("pod"), label("container"))
                else {
                    continue;
                };
                containers.entry((ObjectKey::new(&namespace.1, &pod.1), container.1.clone())).or_default()
            }
            _ => continue,
        };
        match line.name.rsplit('_').next() {
            Some("total") => (parts.cpu, parts.at) = (Some((line.value * 1e9) as u64), line.at),
            Some("bytes") => parts.memory = Some(line.value as u64),
            _ => parts.since = Some(Timestamp((line.value * 1e6) as i64)),
        }
    }
    let mut scrape = Scrape { node: node.told(now).map(|told| told.point), pods: BTreeMap::new() };
    for ((pod, container), parts) in containers {
        if let Some(told) = parts.told(now) {
            scrape.pods.entry(pod).or_default().insert(container, told);
        }
    }
    scrape
}

/// `name{label="value",…} number milliseconds`; labels and the time may be missing.
struct Line<'a> {
    name: &'a str,
    labels: Vec<(String, String)>,
    value: f64,
    at: Option<Timestamp>,
}

impl Line<'_> {
    fn parse(line: &str) -> Option<Line<'_>> {
        let end = line.find(['{', ' ']).filter(|_| !line.starts_with('#'))?;
        let (name, rest) = line.split_at(end);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (Vec::new(), rest),
        };
        let mut words = rest.split_whitespace();
        let value: f64 = words.next()?.parse().ok()?;
        let at = words.next().and_then(|word| word.parse::<i64>().ok());
        let at = at.map(|millis| Timestamp(millis.saturating_mul(1000)));
        (value.is_finite() && value >= 0.0).then_some(Line { name, labels, value, at })
    }
}

/// The labels up to the closing brace, and what follows it.
fn labels(text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let (mut labels, mut rest) = (Vec::new(), text);
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (key, quoted) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = quoted.char_indices();
        loop {
            match characters.next()? {
                (at, '"') => {
                    rest = &quoted[at + 1..];
                    break;
                }
                (_, '\\') => value.push(match characters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        }
        labels.push((key.to_owned(), value));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp(9_000_000);

    #[test]
    fn figures_of_a_kubelet_are_read() {
        let text = r#"
# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="c",namespace="n",pod="p"} 4.5 7000
container_cpu_usage_seconds_total{container="odd",namespace="n",pod="p"} NaN 7000
container_memory_working_set_bytes{container="c",namespace="n",pod="p"} 1.048576e+06 7000
container_start_time_seconds{container="c",namespace="n",pod="p"} 1.5
container_memory_working_set_bytes{container="lonely",namespace="n",pod="p"} 5
node_cpu_usage_seconds_total 10
node_memory_working_set_bytes 2e3
pod_cpu_usage_seconds_total{namespace="n",pod="p"} 4.5 7000
"#;
        let scrape = parse(text, NOW);
        assert_eq!(scrape.node, Some(Point { at: NOW, usage: Usage { cpu: 10_000_000_000, memory: 2000 } }));
        let told = Told {
            since: Some(Timestamp(1_500_000)),
            point: Point { at: Timestamp(7_000_000), usage: Usage { cpu: 4_500_000_000, memory: 1 << 20 } },
        };
        let containers = BTreeMap::from([("c".to_owned(), told)]);
        assert_eq!(scrape.pods, BTreeMap::from([(ObjectKey::new("n", "p"), containers)]));
    }

    #[test]
    fn quotes_and_braces_in_labels_are_part_of_them() {
        let (found, rest) = labels(r#"a="x\"}\n",b="",} 7"#).unwrap();
        let expected = [("a", "x\"}\n"), ("b", "")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!((found.as_slice(), rest), (expected.as_slice(), " 7"));
        assert_eq!(labels(r#"a="x"#), None);
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in r#"((node_cpu_usage_seconds_total|container_start_time_seconds)?[{}="\\a ,0-9e.-]{0,40}\n)*"#) {
            parse(&text, NOW);
        }
    }
}
