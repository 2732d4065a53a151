//! Space on the disk: `sizeLimit` of emptyDir volumes and limits of `ephemeral-storage`, as kubelets enforce them.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use shoal_objects::Quantity;
use tokio::sync::mpsc;

use super::Watch;
use crate::pod::plan::containers;
use crate::pod::worker::Event;
use crate::volumes;

/// How often a pod's files are counted.
const PERIOD: Duration = Duration::from_secs(2);
const RESOURCE: &str = "ephemeral-storage";

/// What is counted, and what is said when it is too much.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    places: Vec<PathBuf>,
    limit: u64,
    message: String,
}

fn bytes(text: &str) -> Option<u64> {
    u64::try_from(Quantity::parse(text).ok()?.value()).ok().filter(|bytes| *bytes > 0)
}

/// The rules for a pod whose files are in `dir`.
fn rules(pod: &Pod, dir: &Path) -> Vec<Rule> {
    let mut rules = Vec::new();
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let mut own = Vec::new();
    for volume in volumes {
        let Some(empty) = &volume.empty_dir else { continue };
        let place = volumes::empty_dir(&dir.join("volumes"), &volume.name);
        own.push(place.clone());
        let Some(limit) = &empty.size_limit else { continue };
        if let Some(bytes) = bytes(&limit.0) {
            let message =
                format!("Usage of EmptyDir volume {:?} exceeds the limit {:?}. ", volume.name, limit.0);
            rules.push(Rule { places: vec![place], limit: bytes, message });
        }
    }
    let (init, main) = containers(pod);
    let mut total = Some(0_u64);
    for container in init.iter().chain(main) {
        let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
        let text = limits.and_then(|limits| limits.get(RESOURCE)).map(|quantity| quantity.0.clone());
        let limit = text.as_deref().and_then(bytes);
        let place = dir.join("containers").join(&container.name);
        own.push(place.clone());
        if let (Some(text), Some(limit)) = (text, limit) {
            let name = &container.name;
            let message = format!("Container {name} exceeded its local ephemeral storage limit {text:?}. ");
            rules.push(Rule { places: vec![place], limit, message });
        }
        if main.iter().any(|one| one.name == container.name) {
            total = total.and_then(|total| Some(total.saturating_add(limit?)));
        }
    }
    // Only if every container has a limit, the pod has one.
    if let Some(limit) = total.filter(|total| *total > 0) {
        let shown = Quantity::new(
            i64::try_from(limit).unwrap_or(i64::MAX),
            shoal_objects::quantity::Format::BinarySi,
        );
        let message =
            format!("Pod ephemeral local storage usage exceeds the total limit of containers {shown}. ");
        rules.push(Rule { places: own, limit, message });
    }
    rules
}

/// Watches a pod that has limits; tells once when it has too much.
pub fn watch(pod: &Pod, dir: &Path, events: &mpsc::UnboundedSender<Event>) -> Option<Watch> {
    let rules = rules(pod, dir);
    if rules.is_empty() {
        return None;
    }
    let events = events.clone();
    let task = tokio::spawn(async move {
        loop {
            tokio::time::sleep(PERIOD).await;
            let looking = rules.clone();
            let found = tokio::task::spawn_blocking(move || exceeded(&looking)).await;
            if let Ok(Some(message)) = found {
                let _ = events.send(Event::Full { message });
                return;
            }
        }
    });
    Some(Watch(task.abort_handle()))
}

fn exceeded(rules: &[Rule]) -> Option<String> {
    let too_much = |rule: &&Rule| rule.places.iter().map(|place| used(place)).sum::<u64>() > rule.limit;
    rules.iter().find(too_much).map(|rule| rule.message.clone())
}

/// Space that files below a place take. Links are not followed, and other file systems not entered.
fn used(place: &Path) -> u64 {
    let Ok(top) = std::fs::symlink_metadata(place) else { return 0 };
    let (mut total, mut folders) = (0_u64, vec![place.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(about) = entry.metadata() else { continue };
            total = total.saturating_add(about.blocks().saturating_mul(512));
            if about.is_dir() && about.dev() == top.dev() {
                folders.push(entry.path());
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(spec: Value) -> Vec<(u64, String)> {
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        rules(&pod, Path::new("/d")).into_iter().map(|rule| (rule.limit, rule.message)).collect()
    }

    #[test]
    fn limits_are_told_in_the_kubelets_words() {
        let limited = json!({"limits": {RESOURCE: "1Mi"}});
        let volumes =
            json!([{"name": "cache", "emptyDir": {"sizeLimit": "2Mi"}}, {"name": "free", "emptyDir": {}}]);
        let found = of(json!({"volumes": volumes, "containers": [{"name": "a", "resources": limited}]}));
        let messages: Vec<&str> = found.iter().map(|rule| rule.1.as_str()).collect();
        assert_eq!(
            messages,
            [
                "Usage of EmptyDir volume \"cache\" exceeds the limit \"2Mi\". ",
                "Container a exceeded its local ephemeral storage limit \"1Mi\". ",
                "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ",
            ]
        );
        assert_eq!(found[0].0, 2 << 20);
        let half = of(json!({"containers": [{"name": "a", "resources": limited}, {"name": "b"}]}));
        assert_eq!(half.len(), 1, "the pod as a whole has no limit");
        assert!(of(json!({"containers": [{"name": "a"}]})).is_empty());
    }

    #[test]
    fn files_are_counted_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("below")).unwrap();
        std::fs::write(dir.path().join("below/file"), vec![1; 100_000]).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("link")).unwrap();
        let found = used(dir.path());
        assert!((100_000..1_000_000).contains(&found), "{found}");
        assert_eq!(used(Path::new("/no/such/place")), 0);
    }
}
