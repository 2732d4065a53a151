//! An operator without a kind of its own: labels of a Namespace that begin with `mirror.example.com/` are also on each
//! ConfigMap in it.

#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::ResourceExt;
use kube::core::ObjectMeta;
use shoal_runtime::{Action, Context, Controller, Manager, ObjectKey, Result, logging};

const PREFIX: &str = "mirror.example.com/";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut manager = Manager::builder("label-mirror").leader_election().build().await?;
    logging::init(&manager.config().logging, vec![])?;
    manager.add(controller());
    Ok(manager.run().await?)
}

fn controller() -> Controller {
    Controller::of::<ConfigMap>("label-mirror")
        .watches::<Namespace>(|namespace, listers| {
            let maps = listers.of::<ConfigMap>().metas_in(&namespace.name_any());
            maps.iter().map(|map| map.key().clone()).collect()
        })
        .reconcile(reconcile)
}

async fn reconcile(context: Context<ConfigMap>) -> Result<Action> {
    let Some(map) = context.object() else { return Ok(Action::done()) };
    let namespace = context.lister::<Namespace>().get(&ObjectKey::cluster(&context.key().namespace));
    let Some(namespace) = namespace else { return Ok(Action::done()) };
    context.writer().apply(&desired(&map, &namespace), Some(&map)).await?;
    Ok(Action::done())
}

/// Only what this operator wants: fields of others stay as they are, and labels that it no longer wants are removed.
fn desired(map: &ConfigMap, namespace: &Namespace) -> ConfigMap {
    let labels = namespace.labels().iter().filter(|(name, _)| name.starts_with(PREFIX));
    let metadata = ObjectMeta {
        name: Some(map.name_any()),
        namespace: map.namespace(),
        labels: Some(labels.map(|(name, value)| (name.clone(), value.clone())).collect()),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}
