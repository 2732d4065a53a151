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

/// What a volume wants of an object.
struct Wanted<'a> {
    name: &'a str,
    items: Option<&'a [KeyToPath]>,
    default_mode: Option<i32>,
    optional: Option<bool>,
}

impl Wanted<'_> {
    /// The files, if there is such an object. `kind` is what it is called, `of` what its keys are.
    fn from(&self, data: Option<BTreeMap<String, Vec<u8>>>, kind: &str, of: &str) -> Result<Payload, String> {
        let optional = self.optional == Some(true);
        match data {
            Some(data) => chosen(&data, self.items, self.default_mode, optional, of),
            None if optional => Ok(Payload::new()),
            None => Err(format!("{kind} {:?} not found", self.name)),
        }
    }
}

fn of_config_map(wanted: &Wanted<'_>, sources: &Sources) -> Result<Payload, String> {
    let data = sources.config_maps.get(wanted.name).map(|map| {
        let texts = map.data.iter().flatten();
        let texts = texts.map(|(key, value)| (key.clone(), value.clone().into_bytes()));
        let bytes = map.binary_data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone()));
        texts.chain(bytes).collect()
    });
    wanted.from(data, "configmap", "config")
}

fn of_secret(wanted: &Wanted<'_>, sources: &Sources) -> Result<Payload, String> {
    let data = sources.secrets.get(wanted.name).map(|secret| {
        secret.data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone())).collect()
    });
    wanted.from(data, "secret", "secret")
}

pub fn config_map(source: &ConfigMapVolumeSource, sources: &Sources) -> Result<Payload, String> {
    let (items, default_mode) = (source.items.as_deref(), source.default_mode);
    let wanted = Wanted { name: &source.name, items, default_mode, optional: source.optional };
    checked(of_config_map(&wanted, sources)?)
}

pub fn secret(source: &SecretVolumeSource, sources: &Sources) -> Result<Payload, String> {
    let name = source.secret_name.as_deref().unwrap_or_default();
    let (items, default_mode) = (source.items.as_deref(), source.default_mode);
    checked(of_secret(&Wanted { name, items, default_mode, optional: source.optional }, sources)?)
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
            let (items, optional) = (map.items.as_deref(), map.optional);
            let wanted = Wanted { name: &map.name, items, default_mode, optional };
            payload.extend(of_config_map(&wanted, sources)?);
        }
        if let Some(secret) = &part.secret {
            let (items, optional) = (secret.items.as_deref(), secret.optional);
            let wanted = Wanted { name: &secret.name, items, default_mode, optional };
            payload.extend(of_secret(&wanted, sources)?);
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
