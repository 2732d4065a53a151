//! What pods of simulated nodes are said to use. Pure.

use k8s_openapi::api::core::v1::{Container, Pod};
use shoal_objects::Quantity;

use super::options::{CPU_USAGE, MEMORY_USAGE, Options, annotation};
use crate::usage::Usage;

/// What each container of a pod uses: CPU in billionths of a core, memory in bytes.
pub fn usage(pod: &Pod, options: &Options) -> Vec<(String, Usage)> {
    let spec = pod.spec.as_ref();
    let main = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let sidecars = init.iter().filter(|init| init.restart_policy.as_deref() == Some("Always"));
    let containers: Vec<&Container> = main.iter().chain(sidecars).collect();
    let count = i64::try_from(containers.len()).unwrap_or(1).max(1);
    // What the pod says of itself is shared by its containers.
    let own = |name: &str| Some(milli(annotation(pod, name)?)? / count);
    let (cpu, memory) = (own(CPU_USAGE), own(MEMORY_USAGE));
    let of_container = |container: &&Container| {
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let requested = |name: &str| milli(&requests?.get(name)?.0);
        let share = |name: &str| (requested(name).unwrap_or(0) as f64 * options.usage) as i64;
        let positive = |milli: i64| u64::try_from(milli).unwrap_or(0);
        let usage = Usage {
            cpu: positive(cpu.unwrap_or_else(|| share("cpu"))).saturating_mul(1_000_000),
            memory: positive(memory.unwrap_or_else(|| share("memory"))) / 1000,
        };
        (container.name.clone(), usage)
    };
    containers.iter().map(of_container).collect()
}

fn milli(text: &str) -> Option<i64> {
    Quantity::parse(text).ok().map(|quantity| quantity.milli_value())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(annotations: Value) -> Pod {
        let requests = json!({"requests": {"cpu": "200m", "memory": "64Mi"}});
        let containers = json!([{"name": "a", "resources": requests}, {"name": "b"}]);
        let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": containers}});
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_pod_uses_a_share_of_its_request_or_what_it_says() {
        let options = Options { usage: 0.5, ..Options::default() };
        let used = |annotations| usage(&pod(annotations), &options);
        let of = |cpu: u64, memory: u64| Usage { cpu: cpu * 1_000_000, memory };
        let named = |a, b| vec![("a".to_owned(), a), ("b".to_owned(), b)];
        assert_eq!(used(json!({})), named(of(100, 32 << 20), of(0, 0)));
        let own = json!({CPU_USAGE: "3", MEMORY_USAGE: "2Mi"});
        assert_eq!(used(own), named(of(1500, 1 << 20), of(1500, 1 << 20)));
        assert_eq!(used(json!({CPU_USAGE: "much"})), named(of(100, 32 << 20), of(0, 0)));
        assert_eq!(used(json!({CPU_USAGE: "-3"}))[0].1, of(0, 32 << 20));
    }
}
