//! Volumes of a pod: defaults and validation.

use std::collections::BTreeMap;

use serde_json::json;
use shoal_objects::{Errors, Map, Path, Value, names};

use super::defaults::pull_policy;
use super::resources::quantity_sign;
use crate::kinds::access::{
    child_mut, existing_mut, field, int_at, is_set, list_at, list_mut, object_at, part, set_default,
    set_default_str, str_at,
};
use crate::kinds::{checks, claim};

/// Permission bits of files made from an object, 0644.
const DEFAULT_MODE: i64 = 0o644;
const MODE_RANGE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const ONE_TYPE: &str = "may not specify more than 1 volume type";

/// The volumes that are well-formed, by name: what mounts may refer to.
pub type Volumes<'a> = BTreeMap<&'a str, &'a Value>;

/// Fills the defaults of a volume; one without a source is an empty directory.
pub fn default_volume(volume: &mut Value) {
    if volume.as_object().is_some_and(|v| !v.iter().any(|(k, source)| k != "name" && !source.is_null())) {
        set_default(volume, "emptyDir", Map::new());
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = existing_mut(volume, source) {
            set_default(source, "defaultMode", DEFAULT_MODE);
        }
    }
    if let Some(downward) = existing_mut(volume, "downwardAPI") {
        default_downward_items(downward);
    }
    if let Some(projected) = existing_mut(volume, "projected") {
        for source in list_mut(projected, "sources") {
            default_projection(source);
        }
    }
    if let Some(host_path) = existing_mut(volume, "hostPath") {
        set_default(host_path, "type", "");
    }
    if let Some(image) = existing_mut(volume, "image") {
        let policy = pull_policy(str_at(image, "reference"));
        set_default_str(image, "pullPolicy", policy);
    }
    if let Some(template) =
        existing_mut(volume, "ephemeral").and_then(|e| existing_mut(e, "volumeClaimTemplate"))
    {
        child_mut(template, "metadata");
        if let Some(spec) = child_mut(template, "spec") {
            claim::default_spec(spec);
        }
    }
    default_network_volume(volume);
}

fn default_network_volume(volume: &mut Value) {
    if let Some(iscsi) = existing_mut(volume, "iscsi") {
        set_default_str(iscsi, "iscsiInterface", "default");
    }
    if let Some(rbd) = existing_mut(volume, "rbd") {
        set_default_str(rbd, "pool", "rbd");
        set_default_str(rbd, "user", "admin");
        set_default_str(rbd, "keyring", "/etc/ceph/keyring");
    }
    if let Some(scale_io) = existing_mut(volume, "scaleIO") {
        set_default_str(scale_io, "storageMode", "ThinProvisioned");
        set_default_str(scale_io, "fsType", "xfs");
    }
    if let Some(disk) = existing_mut(volume, "azureDisk") {
        set_default(disk, "cachingMode", "ReadWrite");
        set_default(disk, "kind", "Shared");
        set_default(disk, "fsType", "ext4");
        set_default(disk, "readOnly", false);
    }
}

fn default_downward_items(downward: &mut Value) {
    for item in list_mut(downward, "items") {
        if let Some(field) = existing_mut(item, "fieldRef") {
            set_default_str(field, "apiVersion", "v1");
        }
        if let Some(resource) = existing_mut(item, "resourceFieldRef") {
            set_default(resource, "divisor", "0");
        }
    }
}

fn default_projection(source: &mut Value) {
    if let Some(downward) = existing_mut(source, "downwardAPI") {
        default_downward_items(downward);
    }
    if let Some(token) = existing_mut(source, "serviceAccountToken") {
        set_default(token, "expirationSeconds", 3600);
    }
    if let Some(certificate) = existing_mut(source, "podCertificate") {
        set_default(certificate, "maxExpirationSeconds", 86_400);
    }
}

/// Checks all volumes. Only those without an error can be mounted.
pub fn validate_volumes<'a>(spec: &'a Value, path: &Path<'_>, errors: &mut Errors) -> Volumes<'a> {
    let mut known = Volumes::new();
    for (i, volume) in list_at(spec, "volumes").iter().enumerate() {
        let path = path.index(i);
        let name = str_at(volume, "name");
        let before = errors.0.len();
        validate_source(volume, &path, errors);
        checks::required_text(volume, "name", &path, errors, names::dns1123_label);
        if known.contains_key(name) {
            errors.duplicate(&path.child("name"), &json!(name));
        }
        if errors.0.len() == before {
            known.insert(name, volume);
        }
    }
    known
}

/// Checks one kind of volume source.
type SourceCheck = fn(&Value, &Path<'_>, &mut Errors);

/// The kinds of volume sources in the order Kubernetes looks at them.
const SOURCES: [(&str, SourceCheck); 30] = [
    ("emptyDir", empty_dir),
    ("hostPath", host_path),
    ("gitRepo", git_repo),
    ("gcePersistentDisk", |v, p, e| needs(v, &["pdName"], p, e)),
    ("awsElasticBlockStore", |v, p, e| needs(v, &["volumeID"], p, e)),
    ("secret", secret),
    ("nfs", nfs),
    ("iscsi", |v, p, e| needs(v, &["targetPortal", "iqn"], p, e)),
    ("glusterfs", |v, p, e| needs(v, &["endpoints", "path"], p, e)),
    ("flocker", |_, _, _| {}),
    ("persistentVolumeClaim", |v, p, e| needs(v, &["claimName"], p, e)),
    ("rbd", |v, p, e| monitors(v, Some("image"), p, e)),
    ("cinder", |v, p, e| needs(v, &["volumeID"], p, e)),
    ("cephfs", |v, p, e| monitors(v, None, p, e)),
    ("quobyte", |v, p, e| needs(v, &["registry", "volume"], p, e)),
    ("downwardAPI", downward_api),
    ("fc", |_, _, _| {}),
    ("flexVolume", |v, p, e| needs(v, &["driver"], p, e)),
    ("configMap", config_map),
    ("azureFile", |v, p, e| needs(v, &["secretName", "shareName"], p, e)),
    ("vsphereVolume", |v, p, e| needs(v, &["volumePath"], p, e)),
    ("photonPersistentDisk", |v, p, e| needs(v, &["pdID"], p, e)),
    ("portworxVolume", |v, p, e| needs(v, &["volumeID"], p, e)),
    ("azureDisk", |v, p, e| needs(v, &["diskName", "diskURI"], p, e)),
    ("storageos", |_, _, _| {}),
    ("projected", projected),
    ("scaleIO", |v, p, e| needs(v, &["gateway", "system", "volumeName"], p, e)),
    ("csi", csi),
    ("ephemeral", ephemeral),
    ("image", image),
];

fn validate_source(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut found = false;
    for (name, check) in SOURCES {
        if let Some(source) = field(volume, name) {
            if found {
                errors.forbidden(&path.child(name), ONE_TYPE);
            } else {
                found = true;
                check(source, &path.child(name), errors);
            }
        }
    }
    if !found {
        errors.required(path, "must specify a volume type");
    }
}

fn needs(source: &Value, fields: &[&str], path: &Path<'_>, errors: &mut Errors) {
    for name in fields {
        checks::required(source, name, path, errors);
    }
}

fn empty_dir(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    if field(source, "sizeLimit").is_some_and(|q| quantity_sign(q) < 0) {
        errors.forbidden(&path.child("sizeLimit"), "SizeLimit field must be a valid resource quantity");
    }
}

fn host_path(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    match str_at(source, "path") {
        "" => errors.required(&path.child("path"), ""),
        given => checks::no_backsteps(given, &path.child("path"), errors),
    }
    let types =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    checks::optional_one_of(source, "type", &types, path, errors);
}

fn git_repo(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    checks::required(source, "repository", path, errors);
    checks::local_descending_path(str_at(source, "directory"), &path.child("directory"), errors);
}

fn secret(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    checks::required(source, "secretName", path, errors);
    mode(source, "defaultMode", path, errors);
    keys_to_paths(source, path, errors);
}

fn config_map(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    checks::required(source, "name", path, errors);
    mode(source, "defaultMode", path, errors);
    keys_to_paths(source, path, errors);
}

fn nfs(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    needs(source, &["server", "path"], path, errors);
    let given = str_at(source, "path");
    if !given.starts_with('/') {
        errors.invalid_str(&path.child("path"), given, "must be an absolute path");
    }
}

fn monitors(source: &Value, also: Option<&str>, path: &Path<'_>, errors: &mut Errors) {
    if !is_set(source, "monitors") {
        errors.required(&path.child("monitors"), "");
    }
    if let Some(name) = also {
        checks::required(source, name, path, errors);
    }
}

fn csi(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    checks::required_text(source, "driver", path, errors, |d| names::dns1123_subdomain(&d.to_lowercase()));
    if let Some(secret) = field(source, "nodePublishSecretRef") {
        checks::required(secret, "name", &path.child("nodePublishSecretRef"), errors);
    }
}

fn image(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    checks::required(source, "reference", path, errors);
    checks::one_of(source, "pullPolicy", &super::containers::PULL_POLICIES, path, errors);
}

fn mode(v: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(mode) = int_at(v, name).filter(|mode| !(0..=0o777).contains(mode)) {
        errors.invalid(&path.child(name), &json!(mode), MODE_RANGE);
    }
}

fn keys_to_paths(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let items = path.child("items");
    for (i, item) in list_at(source, "items").iter().enumerate() {
        let path = items.index(i);
        checks::required(item, "key", &path, errors);
        item_path(item, &path, errors);
        mode(item, "mode", &path, errors);
    }
}

/// The path of a file inside a volume: relative, descending, not one of the names the kubelet uses itself.
fn item_path(item: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("path");
    match str_at(item, "path") {
        "" => errors.required(&path, ""),
        given => {
            checks::local_descending_path(given, &path, errors);
            if given.starts_with("..") && !given.starts_with("../") {
                errors.invalid_str(&path, given, "must not start with '..'");
            }
        }
    }
}

fn downward_api(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    mode(source, "defaultMode", path, errors);
    downward_items(source, path, errors);
}

fn downward_items(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let items = path.child("items");
    for (i, item) in list_at(source, "items").iter().enumerate() {
        let path = items.index(i);
        item_path(item, &path, errors);
        match (field(item, "fieldRef"), field(item, "resourceFieldRef")) {
            (Some(field_ref), resource) => {
                if resource.is_some() {
                    errors.invalid_str(
                        &path,
                        "resource",
                        "fieldRef and resourceFieldRef can not be specified simultaneously",
                    );
                }
                super::env::field_ref(
                    field_ref,
                    &super::env::VOLUME_FIELD_PATHS,
                    &path.child("fieldRef"),
                    errors,
                );
            }
            (None, Some(resource)) => {
                super::env::resource_field_ref(resource, true, &path.child("resourceFieldRef"), errors);
            }
            (None, None) => errors.required(&path, "one of fieldRef and resourceFieldRef is required"),
        }
        mode(item, "mode", &path, errors);
    }
}

fn projected(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    mode(source, "defaultMode", path, errors);
    let sources = path.child("sources");
    let mut paths: Vec<&str> = Vec::new();
    for (i, source) in list_at(source, "sources").iter().enumerate() {
        let source_path = sources.index(i);
        let mut found = false;
        for kind in [
            "secret",
            "downwardAPI",
            "configMap",
            "serviceAccountToken",
            "clusterTrustBundle",
            "podCertificate",
        ] {
            let Some(projection) = field(source, kind) else { continue };
            let kind_path = source_path.child(kind);
            if found {
                errors.forbidden(&kind_path, ONE_TYPE);
                continue;
            }
            found = true;
            projection_source(kind, projection, &kind_path, errors);
            let items = list_at(projection, "items").iter().map(|item| str_at(item, "path"));
            for file in items.chain([str_at(projection, "path")]).filter(|file| !file.is_empty()) {
                if paths.contains(&file) {
                    errors.invalid_str(path, str_at(projection, "name"), "conflicting duplicate paths");
                } else {
                    paths.push(file);
                }
            }
        }
    }
}

fn projection_source(kind: &str, projection: &Value, path: &Path<'_>, errors: &mut Errors) {
    match kind {
        "secret" | "configMap" => {
            checks::required(projection, "name", path, errors);
            keys_to_paths(projection, path, errors);
        }
        "downwardAPI" => downward_items(projection, path, errors),
        "serviceAccountToken" => {
            let expiration = path.child("expirationSeconds");
            match int_at(projection, "expirationSeconds") {
                Some(n) if n < 600 => {
                    errors.invalid(&expiration, &json!(n), "may not specify a duration less than 10 minutes");
                }
                Some(n) if n > 1 << 32 => {
                    errors.invalid(
                        &expiration,
                        &json!(n),
                        "may not specify a duration larger than 2^32 seconds",
                    );
                }
                _ => {}
            }
            match str_at(projection, "path") {
                "" => errors.required(&path.child("path"), ""),
                given => checks::local_descending_path(given, &path.child("path"), errors),
            }
        }
        "clusterTrustBundle" => {
            match (field(projection, "name"), field(projection, "signerName")) {
                (Some(_), Some(_)) => {
                    errors.invalid_str(path, "", "only one of name and signerName may be used");
                }
                (None, None) => errors.required(path, "either name or signerName must be specified"),
                _ => {}
            }
            match str_at(projection, "path") {
                "" => errors.required(&path.child("path"), ""),
                given => checks::local_descending_path(given, &path.child("path"), errors),
            }
        }
        _ => {}
    }
}

fn ephemeral(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(template) = field(source, "volumeClaimTemplate") else {
        errors.required(&path.child("volumeClaimTemplate"), "");
        return;
    };
    let path = path.child("volumeClaimTemplate");
    if let Some(metadata) = object_at(template, "metadata") {
        for name in
            metadata.keys().filter(|k| !matches!(k.as_str(), "labels" | "annotations" | "creationTimestamp"))
        {
            errors.forbidden(&path.child("metadata").child(name), "cannot be set for an ephemeral volume");
        }
    }
    let spec = part(template, "spec");
    claim::validate_spec(spec, &path.child("spec"), errors);
}
