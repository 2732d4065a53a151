//! Volumes of a pod: where each of them is on this machine.

mod fetch;
mod payload;
mod publish;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    Container, HostPathVolumeSource, PersistentVolume, PersistentVolumeClaim, Pod, ProjectedVolumeSource,
    ServiceAccount, Volume,
};
use kube::api::PostParams;
use kube::{Api, Client};
use shoal_objects::Timestamp;

pub use fetch::{fetch, named_objects};
pub use publish::publish;

use crate::env::Sources;
use crate::process::private_dir;
use crate::sandbox::Mount;

/// A token is renewed when this part of its life is over.
const RENEW_AFTER_PERCENT: i64 = 80;
const DEFAULT_TOKEN_SECONDS: i64 = 3607;

/// Where the volumes are, by name.
pub type Places = BTreeMap<String, PathBuf>;

/// Tokens of a pod by volume and path, each with the time from which on it is renewed.
pub type Tokens = BTreeMap<String, (String, Timestamp)>;

/// What a pod's volumes are made of.
pub struct Prepared {
    /// Where they are.
    pub places: Places,
    /// Whether some of them change when objects change.
    pub follows_objects: bool,
}

/// Makes the volumes, or brings them up to date.
pub async fn prepare(
    client: &Client,
    pod: &Pod,
    sources: &Sources,
    dir: &Path,
    (tokens, now): (&mut Tokens, Timestamp),
) -> Result<Prepared, String> {
    let mut prepared = Prepared { places: Places::new(), follows_objects: false };
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    for volume in volumes {
        let failed = |why: String| format!("MountVolume.SetUp failed for volume {:?} : {why}", volume.name);
        let texts = match &volume.projected {
            Some(source) => {
                requested(client, pod, &volume.name, source, tokens, now).await.map_err(failed)?
            }
            None => BTreeMap::new(),
        };
        let place = place(client, pod, volume, sources, dir, &texts).await.map_err(failed)?;
        let of_objects = volume.config_map.is_some() || volume.secret.is_some();
        prepared.follows_objects |= of_objects || volume.downward_api.is_some() || volume.projected.is_some();
        prepared.places.insert(volume.name.clone(), place);
    }
    Ok(prepared)
}

fn own_place(dir: &Path, kind: &str, volume: &str) -> PathBuf {
    dir.join(format!("kubernetes.io~{kind}")).join(volume)
}

/// Where an emptyDir is among a pod's volumes in `dir`.
pub fn empty_dir(dir: &Path, volume: &str) -> PathBuf {
    own_place(dir, "empty-dir", volume)
}

async fn place(
    client: &Client,
    pod: &Pod,
    volume: &Volume,
    sources: &Sources,
    dir: &Path,
    tokens: &BTreeMap<String, String>,
) -> Result<PathBuf, String> {
    let own = |kind: &str| private_dir(&own_place(dir, kind, &volume.name)).map_err(|e| e.to_string());
    if volume.empty_dir.is_some() {
        let place = own("empty-dir")?;
        open_to_all(&place)?;
        return Ok(place);
    }
    if let Some(host) = &volume.host_path {
        return host_path(host);
    }
    let claim = volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone());
    let claim = claim.or_else(|| {
        volume.ephemeral.as_ref()?;
        Some(format!("{}-{}", pod.metadata.name.as_deref().unwrap_or_default(), volume.name))
    });
    if let Some(claim) = claim {
        return claimed(client, pod, &claim).await;
    }
    let (kind, payload) = if let Some(source) = &volume.config_map {
        ("configmap", payload::config_map(source, sources)?)
    } else if let Some(source) = &volume.secret {
        ("secret", payload::secret(source, sources)?)
    } else if let Some(source) = &volume.downward_api {
        let items = source.items.as_deref().unwrap_or_default();
        ("downward-api", payload::downward_api(items, source.default_mode, pod, sources)?)
    } else if let Some(source) = &volume.projected {
        ("projected", payload::projected(source, tokens, pod, sources)?)
    } else {
        return Err("this node has no volumes of this kind; it has emptyDir, hostPath, configMap, secret, downwardAPI, projected and claims on hostPath or local volumes".to_owned());
    };
    let place = own(kind)?;
    publish(&place, &payload).map_err(|e| e.to_string())?;
    Ok(place)
}

/// The tokens of a volume by path: those that are held, or new ones.
async fn requested(
    client: &Client,
    pod: &Pod,
    volume: &str,
    source: &ProjectedVolumeSource,
    tokens: &mut Tokens,
    now: Timestamp,
) -> Result<BTreeMap<String, String>, String> {
    let mut texts = BTreeMap::new();
    for token in source.sources.iter().flatten().filter_map(|source| source.service_account_token.as_ref()) {
        let key = format!("{volume}/{}", token.path);
        if tokens.get(&key).is_none_or(|(_, renew_at)| *renew_at <= now) {
            let seconds = token.expiration_seconds.unwrap_or(DEFAULT_TOKEN_SECONDS);
            let text = request_token(client, pod, token.audience.as_deref(), seconds).await?;
            tokens.insert(key.clone(), (text, now.plus_seconds(seconds * RENEW_AFTER_PERCENT / 100)));
        }
        if let Some((text, _)) = tokens.get(&key) {
            texts.insert(token.path.clone(), text.clone());
        }
    }
    Ok(texts)
}

/// A directory of a pod may be used by whatever user its containers have.
fn open_to_all(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).map_err(|e| e.to_string())
}

fn host_path(source: &HostPathVolumeSource) -> Result<PathBuf, String> {
    let path = PathBuf::from(&source.path);
    let wrong = |what: &str| format!("hostPath type check failed: {} is not a {what}", source.path);
    match source.type_.as_deref().unwrap_or_default() {
        "DirectoryOrCreate" => std::fs::create_dir_all(&path).map_err(|e| e.to_string())?,
        "FileOrCreate" if !path.exists() => {
            std::fs::File::create(&path).map_err(|e| e.to_string())?;
        }
        "Directory" if !path.is_dir() => return Err(wrong("directory")),
        "File" if !path.is_file() => return Err(wrong("file")),
        "" if !path.exists() => {
            return Err(format!(
                "{} does not exist; let it be created with type: DirectoryOrCreate",
                source.path
            ));
        }
        _ => {}
    }
    Ok(path)
}

async fn claimed(client: &Client, pod: &Pod, claim: &str) -> Result<PathBuf, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let found = claims.get(claim).await.map_err(|e| told(&e))?;
    let volume = found.spec.and_then(|spec| spec.volume_name).filter(|name| !name.is_empty());
    let bound = found.status.and_then(|status| status.phase).as_deref() == Some("Bound");
    let Some(volume) = volume.filter(|_| bound) else {
        return Err(format!("persistentvolumeclaim {claim:?} is not bound to a volume"));
    };
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let spec = volumes.get(&volume).await.map_err(|e| told(&e))?.spec.unwrap_or_default();
    if let Some(host) = spec.host_path {
        // A volume for claims is made when it is first used.
        let type_ = host.type_.filter(|type_| !type_.is_empty()).or(Some("DirectoryOrCreate".to_owned()));
        return host_path(&HostPathVolumeSource { path: host.path, type_ });
    }
    match spec.local {
        Some(local) => host_path(&HostPathVolumeSource { path: local.path, type_: None }),
        None => Err(format!("volume {volume:?} is neither hostPath nor local")),
    }
}

async fn request_token(
    client: &Client,
    pod: &Pod,
    audience: Option<&str>,
    seconds: i64,
) -> Result<String, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let account =
        pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: audience.filter(|a| !a.is_empty()).map(|audience| vec![audience.to_owned()]),
            expiration_seconds: Some(seconds),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
            }),
        }),
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);

    let made: TokenRequest = accounts
        .create_subresource("token", account, &PostParams::default(), &request)
        .await
        .map_err(|e| format!("failed to fetch token: {}", told(&e)))?;
    made.status.and_then(|status| status.token).ok_or_else(|| "failed to fetch token".to_owned())
}

/// What the server said.
pub fn told(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// What a container sees of the volumes.
pub fn mounts(
    container: &Container,
    places: &Places,
    expand: &dyn Fn(&str) -> String,
) -> Result<Vec<Mount>, String> {
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let place = places.get(&mount.name).ok_or_else(|| format!("there is no volume {:?}", mount.name))?;
        let inside = match (&mount.sub_path, &mount.sub_path_expr) {
            (_, Some(path)) if !path.is_empty() => expand(path),
            (Some(path), _) => path.clone(),
            _ => String::new(),
        };
        if Path::new(&inside).components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
            return Err(format!("subPath {inside:?} leads out of the volume"));
        }
        let mut source = place.clone();
        if !inside.is_empty() {
            source = place.join(&inside);
            if !source.exists() {
                std::fs::create_dir_all(&source).map_err(|e| format!("subPath {inside:?}: {e}"))?;
            }
            // A link in the volume must not lead to other files of the host.
            let real =
                |path: &Path| std::fs::canonicalize(path).map_err(|e| format!("subPath {inside:?}: {e}"));
            source = real(&source)?;
            if !source.starts_with(real(place)?) {
                return Err(format!("subPath {inside:?} leads out of the volume"));
            }
        }
        mounts.push(Mount {
            source,
            target: PathBuf::from(&mount.mount_path),
            read_only: mount.read_only == Some(true),
        });
    }
    Ok(mounts)
}
