//! Which objects a pod names, and getting them.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{Api, Client};

use crate::env::Sources;
use crate::pod::plan::containers;

/// Names of the ConfigMaps and Secrets that a pod's variables and volumes are made of.
pub fn named_objects(pod: &Pod) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut maps, mut secrets) = (BTreeSet::new(), BTreeSet::new());
    let (init, main) = containers(pod);
    for container in init.iter().chain(main) {
        for from in container.env_from.iter().flatten() {
            maps.extend(from.config_map_ref.as_ref().map(|from| from.name.clone()));
            secrets.extend(from.secret_ref.as_ref().map(|from| from.name.clone()));
        }
        for from in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
            maps.extend(from.config_map_key_ref.as_ref().map(|from| from.name.clone()));
            secrets.extend(from.secret_key_ref.as_ref().map(|from| from.name.clone()));
        }
    }
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        maps.extend(volume.config_map.as_ref().map(|from| from.name.clone()));
        secrets.extend(volume.secret.as_ref().and_then(|from| from.secret_name.clone()));
        let projected = volume.projected.as_ref().and_then(|projected| projected.sources.as_ref());
        for source in projected.into_iter().flatten() {
            maps.extend(source.config_map.as_ref().map(|from| from.name.clone()));
            secrets.extend(source.secret.as_ref().map(|from| from.name.clone()));
        }
    }
    (maps, secrets)
}

/// Gets what a pod names; what does not exist is left out.
pub async fn fetch(client: &Client, pod: &Pod, sources: &mut Sources) -> Result<(), String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let (maps, secrets) = named_objects(pod);
    let of_maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    for name in maps {
        if let Some(found) = of_maps.get_opt(&name).await.map_err(|e| super::told(&e))? {
            sources.config_maps.insert(name, found);
        }
    }
    let of_secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    for name in secrets {
        if let Some(found) = of_secrets.get_opt(&name).await.map_err(|e| super::told(&e))? {
            sources.secrets.insert(name, found);
        }
    }
    Ok(())
}
