//! Amounts of resources: what pods ask for and what nodes have.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use shoal_objects::Quantity;

/// What a container without requests is counted as when nodes are compared: 0.1 CPU and 200 MiB.
const USUAL_CPU: i64 = 100;
const USUAL_MEMORY: i64 = 200 << 20;

/// Amounts by resource: CPU in thousandths, everything else in whole units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Thousandths of a processor.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes.
    pub storage: i64,
    /// Devices and the like, by name.
    pub others: BTreeMap<Box<str>, i64>,
}

impl Resources {
    /// Reads a list of resources. `pods` is not among them: it is counted.
    pub fn of(list: Option<&BTreeMap<String, ApiQuantity>>) -> Resources {
        let mut resources = Resources::default();
        for (name, amount) in list.into_iter().flatten() {
            let Ok(amount) = Quantity::parse(&amount.0) else { continue };
            match name.as_str() {
                "cpu" => resources.cpu = amount.milli_value(),
                "memory" => resources.memory = amount.value(),
                "ephemeral-storage" => resources.storage = amount.value(),
                "pods" => {}
                other => {
                    resources.others.insert(other.into(), amount.value());
                }
            }
        }
        resources
    }

    /// Both together.
    pub fn add(&mut self, more: &Resources) {
        self.each(more, i64::saturating_add);
    }

    /// This without the other.
    pub fn subtract(&mut self, less: &Resources) {
        self.each(less, i64::saturating_sub);
        self.others.retain(|_, amount| *amount != 0);
    }

    /// Of each resource the larger amount.
    pub fn raise(&mut self, to: &Resources) {
        self.each(to, i64::max);
    }

    fn each(&mut self, other: &Resources, combine: impl Fn(i64, i64) -> i64) {
        self.cpu = combine(self.cpu, other.cpu);
        self.memory = combine(self.memory, other.memory);
        self.storage = combine(self.storage, other.storage);
        for (name, amount) in &other.others {
            match self.others.get_mut(name) {
                Some(own) => *own = combine(*own, *amount),
                None => {
                    self.others.insert(name.clone(), combine(0, *amount));
                }
            }
        }
    }
}

/// What a pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// What it needs to fit.
    pub fit: Resources,
    /// CPU as nodes are compared by: containers that ask for nothing count, too.
    pub usual_cpu: i64,
    /// Memory as nodes are compared by.
    pub usual_memory: i64,
}

/// The most that a pod needs at any time: its containers together, or one of the init containers beside the sidecars
/// that were started before it, and the overhead of its runtime.
pub fn requests(spec: &PodSpec) -> Requests {
    let of = |usual: bool| {
        let mut total = sum(spec.containers.iter(), usual);
        let mut sidecars = Resources::default();
        let mut initial = Resources::default();
        for container in spec.init_containers.as_deref().unwrap_or_default() {
            let mut own = of_container(container, usual);
            if container.restart_policy.as_deref() == Some("Always") {
                total.add(&own);
                sidecars.add(&own);
                initial.raise(&sidecars);
            } else {
                own.add(&sidecars);
                initial.raise(&own);
            }
        }
        total.raise(&initial);
        // What the pod asks for as a whole stands above what its containers do.
        if let Some(whole) = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()) {
            let whole = Resources::of(Some(whole));
            if whole.cpu > 0 {
                total.cpu = whole.cpu;
            }
            if whole.memory > 0 {
                total.memory = whole.memory;
            }
        }
        total.add(&Resources::of(spec.overhead.as_ref()));
        total
    };
    let usual = of(true);
    Requests { fit: of(false), usual_cpu: usual.cpu, usual_memory: usual.memory }
}

fn sum<'a>(containers: impl Iterator<Item = &'a Container>, usual: bool) -> Resources {
    let mut total = Resources::default();
    for container in containers {
        total.add(&of_container(container, usual));
    }
    total
}

fn of_container(container: &Container, usual: bool) -> Resources {
    let list = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let mut own = Resources::of(list);
    let says = |name: &str| list.is_some_and(|list| list.contains_key(name));
    if usual && !says("cpu") {
        own.cpu = USUAL_CPU;
    }
    if usual && !says("memory") {
        own.memory = USUAL_MEMORY;
    }
    own
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn asked(spec: Value) -> Requests {
        requests(&serde_json::from_value(spec).unwrap())
    }

    fn container(cpu: &str, sidecar: bool) -> Value {
        let mut container = json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "0"}}});
        if sidecar {
            container["restartPolicy"] = json!("Always");
        }
        container
    }

    #[test]
    fn a_pod_needs_the_most_of_any_time() {
        for (containers, inits, expected, why) in [
            (vec!["1", "500m"], vec![], 1500, "containers run together"),
            (vec!["1"], vec![("3", false), ("2", false)], 3000, "init containers run one by one"),
            (vec!["1"], vec![("2", true)], 3000, "a sidecar stays"),
            (vec!["1"], vec![("2", true), ("3", false)], 5000, "an init container beside a sidecar"),
            (vec!["1"], vec![("3", false), ("2", true)], 3000, "a sidecar that starts later"),
        ] {
            let containers: Vec<Value> = containers.iter().map(|cpu| container(cpu, false)).collect();
            let inits: Vec<Value> = inits.iter().map(|(cpu, sidecar)| container(cpu, *sidecar)).collect();
            let asked = asked(json!({"containers": containers, "initContainers": inits}));
            assert_eq!(asked.fit.cpu, expected, "{why}");
        }
    }

    #[test]
    fn overhead_is_added_and_the_whole_stands_above_its_parts() {
        let spec = json!({"containers": [container("1", false)], "overhead": {"cpu": "250m"}});
        assert_eq!(asked(spec).fit.cpu, 1250);
        let spec = json!({"containers": [container("1", false)], "resources": {"requests": {"cpu": "4"}}});
        assert_eq!(asked(spec).fit.cpu, 4000);
    }

    #[test]
    fn devices_are_counted_by_name_and_silence_is_counted_as_usual() {
        let spec = json!({"containers": [
            {"name": "a", "resources": {"requests": {"example.com/gpu": "2"}}}, {"name": "b"}]});
        let asked = asked(spec);
        assert_eq!(asked.fit.others["example.com/gpu"], 2);
        assert_eq!((asked.fit.cpu, asked.usual_cpu, asked.usual_memory), (0, 200, 400 << 20));
    }

    #[test]
    fn what_is_added_and_subtracted_again_leaves_nothing() {
        let list = BTreeMap::from([("x".to_owned(), ApiQuantity("3".to_owned()))]);
        let some = Resources::of(Some(&list));
        let mut all = Resources::default();
        all.add(&some);
        all.subtract(&some);
        assert_eq!(all, Resources::default());
    }
}
