//! Files with settings, in a ConfigMap that never changes: its name is that of its content, so that a template that is put back
//! finds the files that it had.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, PodTemplateSpec};

use super::{hash, metadata, name_of};
use crate::Application;

/// Name of the ConfigMap; `None` where there are no files.
pub fn config_map_name(app: &Application) -> Option<String> {
    let data = data(app);
    if data.is_empty() {
        return None;
    }
    let text = serde_json::to_vec(&data).unwrap_or_default();
    Some(format!("{}-files-{:016x}", name_of(app), hash(&text)))
}

/// The ConfigMap with the files.
pub fn config_map(app: &Application) -> Option<ConfigMap> {
    let name = config_map_name(app)?;
    Some(ConfigMap {
        metadata: metadata(app, &name),
        data: Some(data(app)),
        immutable: Some(true),
        ..ConfigMap::default()
    })
}

/// The ConfigMaps that a template has as volumes.
pub fn config_maps_of(template: &PodTemplateSpec) -> impl Iterator<Item = &str> {
    let volumes = template.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| volume.config_map.as_ref().map(|map| map.name.as_str()))
}

fn data(app: &Application) -> BTreeMap<String, String> {
    app.spec.config_files.iter().map(|file| (key(&file.path), file.content.clone())).collect()
}

/// The key of a file: its name, and a hash of where it lies, because two may have the same name.
pub(super) fn key(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or_default();
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '_' };
    let name: String = name.chars().take(64).map(safe).collect();
    format!("{:08x}-{name}", hash(path.as_bytes()) & 0xffff_ffff)
}
