//! The files of volumes that are made of objects. Pure.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, DownwardAPIVolumeFile, KeyToPath, Pod, ProjectedVolumeSource,
    SecretVolumeSource,
};

use crate::env::{Sources, pod_field, resource_field};

/// Contents and mode by path.
pub type Payload = BTreeMap<String, (Vec<u8>, u32)>;

const DEFAULT_MODE: i32 = 0o644;

fn mode(mode: Option<i32>) -> u32 {
    u32::try_from(mode.unwrap_or(DEFAULT_MODE)).unwrap_or(0o644) & 0o777
}

/// Which keys become which files: those that are listed, else all.
fn chosen(
    data: &BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
    default_mode: Option<i32>,
    optional: bool,
    of: &str,
) -> Result<Payload, String> {
    let mut payload = Payload::new();
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        for (key, value) in data {
            payload.insert(key.clone(), (value.clone(), mode(default_mode)));
        }
        return Ok(payload);
    };
    for item in items {
        match data.get(&item.key) {
            Some(value) => {
                payload.insert(item.path.clone(), (value.clone(), mode(item.mode.or(default_mode))));
            }
            None if optional => {}
            None => return Err(format!("references non-existent {of} key: {}", item.key)),
        }
    }
    Ok(payload)
}

fn of_config_map(
    name: &str,
    items: Option<&[KeyToPath]>,
    default_mode: Option<i32>,
    optional: bool,
    sources: &Sources,
) -> Result<Payload, String> {
    let Some(map) = sources.config_maps.get(name) else {
        return if optional { Ok(Payload::new()) } else { Err(format!("configmap {name:?} not found")) };
    };
    let mut data: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    data.extend(map.data.iter().flatten().map(|(key, value)| (key.clone(), value.clone().into_bytes())));
    data.extend(map.binary_data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone())));
    chosen(&data, items, default_mode, optional, "config")
}

fn of_secret(
    name: &str,
    items: Option<&[KeyToPath]>,
    default_mode: Option<i32>,
    optional: bool,
    sources: &Sources,
) -> Result<Payload, String> {
    let Some(secret) = sources.secrets.get(name) else {
        return if optional { Ok(Payload::new()) } else { Err(format!("secret {name:?} not found")) };
    };
    let data: BTreeMap<String, Vec<u8>> =
        secret.data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone())).collect();
    chosen(&data, items, default_mode, optional, "secret")
}

pub fn config_map(source: &ConfigMapVolumeSource, sources: &Sources) -> Result<Payload, String> {
    let optional = source.optional == Some(true);
    let payload =
        of_config_map(&source.name, source.items.as_deref(), source.default_mode, optional, sources)?;
    checked(payload)
}

pub fn secret(source: &SecretVolumeSource, sources: &Sources) -> Result<Payload, String> {
    let name = source.secret_name.as_deref().unwrap_or_default();
    let optional = source.optional == Some(true);
    checked(of_secret(name, source.items.as_deref(), source.default_mode, optional, sources)?)
}

pub fn downward_api(
    items: &[DownwardAPIVolumeFile],
    default_mode: Option<i32>,
    pod: &Pod,
    sources: &Sources,
) -> Result<Payload, String> {
    let mut payload = Payload::new();
    for item in items {
        let text = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => pod_field(pod, field, sources)?,
            (None, Some(field)) => resource_field(pod, &Container::default(), field, sources)?,
            (None, None) => continue,
        };
        payload.insert(item.path.clone(), (text.into_bytes(), mode(item.mode.or(default_mode))));
    }
    checked(payload)
}

/// `tokens` by path.
pub fn projected(
    source: &ProjectedVolumeSource,
    tokens: &BTreeMap<String, String>,
    pod: &Pod,
    sources: &Sources,
) -> Result<Payload, String> {
    let default_mode = source.default_mode;
    let mut payload = Payload::new();
    for part in source.sources.iter().flatten() {
        if let Some(map) = &part.config_map {
            let optional = map.optional == Some(true);
            payload.extend(of_config_map(&map.name, map.items.as_deref(), default_mode, optional, sources)?);
        }
        if let Some(secret) = &part.secret {
            let optional = secret.optional == Some(true);
            payload.extend(of_secret(
                &secret.name,
                secret.items.as_deref(),
                default_mode,
                optional,
                sources,
            )?);
        }
        if let Some(downward) = &part.downward_api {
            let items = downward.items.as_deref().unwrap_or_default();
            payload.extend(downward_api(items, default_mode, pod, sources)?);
        }
        if let Some(token) = &part.service_account_token
            && let Some(text) = tokens.get(&token.path)
        {
            payload.insert(token.path.clone(), (text.clone().into_bytes(), mode(default_mode)));
        }
    }
    checked(payload)
}

/// Paths stay inside of the volume.
fn checked(payload: Payload) -> Result<Payload, String> {
    let stays = |path: &str| {
        let path = Path::new(path);
        path.components().all(|part| matches!(part, Component::Normal(_)))
            && path.components().next().is_some()
    };
    match payload.keys().find(|path| !stays(path) || path.starts_with("..")) {
        Some(path) => Err(format!("invalid path {path:?}")),
        None => Ok(payload),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn sources() -> Sources {
        let map: ConfigMap =
            serde_json::from_value(json!({"data": {"a": "1", "b": "2"}, "binaryData": {"c": "AAE="}}))
                .unwrap();
        let mut sources = Sources::default();
        sources.config_maps.insert("m".to_owned(), map);
        sources
    }

    fn of(source: serde_json::Value) -> Result<Payload, String> {
        config_map(&serde_json::from_value(source).unwrap(), &sources())
    }

    #[test]
    fn keys_become_files() {
        let all = of(json!({"name": "m"})).unwrap();
        assert_eq!(all.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(all["c"], (vec![0, 1], 0o644));
        let some = of(json!({"name": "m", "items": [{"key": "a", "path": "d/x", "mode": 0o600}]})).unwrap();
        assert_eq!(some.into_iter().collect::<Vec<_>>(), [("d/x".to_owned(), (b"1".to_vec(), 0o600))]);
    }

    #[test]
    fn what_is_missing_or_leads_out_is_an_error() {
        assert_eq!(of(json!({"name": "x"})).unwrap_err(), "configmap \"x\" not found");
        assert!(of(json!({"name": "x", "optional": true})).unwrap().is_empty());
        let items = |key: &str, path: &str| json!({"name": "m", "items": [{"key": key, "path": path}]});
        assert_eq!(of(items("z", "z")).unwrap_err(), "references non-existent config key: z");
        for path in ["../x", "/x", "", "a/../../x", "..data"] {
            assert!(of(items("a", path)).is_err(), "{path}");
        }
    }
}
