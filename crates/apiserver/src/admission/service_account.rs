//! ServiceAccount: every pod runs as an account of its namespace and gets its token, unless told otherwise.

use serde_json::{Value, json};
use shoal_objects::meta;

use crate::handlers::{Call, served};
use crate::status::{Failure, Outcome};

const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_SECONDS: i64 = 3607;

/// Gives a pod its account and token.
pub async fn service_account(call: &Call<'_>, pod: &mut Value) -> Outcome<()> {
    let resource = &*call.target.resource;
    let (namespace, pod_name) = (call.target.namespace.clone(), meta::name(pod).to_owned());
    // Mirror pods are made by the node and need no account.
    if meta::annotation(pod, "kubernetes.io/config.mirror").is_some() {
        return Ok(());
    }
    let name = match pod["spec"]["serviceAccountName"].as_str() {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => "default".to_owned(),
    };
    pod["spec"]["serviceAccountName"] = name.as_str().into();
    pod["spec"]["serviceAccount"] = name.as_str().into();
    let registry = call.server.registry();
    let Some(accounts) = registry.find("", "v1", "serviceaccounts") else { return Ok(()) };
    let Some(found) = call.server.store.get("serviceaccounts", &format!("{namespace}/{name}")).await else {
        let why =
            format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        return Err(Failure::forbidden(resource, &pod_name, &why));
    };
    let account = served(accounts, &found)?;
    let mounts = |v: &Value| v["automountServiceAccountToken"].as_bool();
    if mounts(&pod["spec"]).or_else(|| mounts(&account)).unwrap_or(true) {
        mount_token(call, pod);
    }
    if pod["spec"]["imagePullSecrets"].as_array().is_none_or(Vec::is_empty)
        && let Some(secrets) =
            account.get("imagePullSecrets").filter(|s| s.as_array().is_some_and(|a| !a.is_empty()))
    {
        pod["spec"]["imagePullSecrets"] = secrets.clone();
    }
    Ok(())
}

fn mount_token(call: &Call<'_>, pod: &mut Value) {
    let name = format!("kube-api-access-{}", call.server.entropy.name_suffix(5));
    let mut used = false;
    for list in ["initContainers", "containers"] {
        let Some(containers) = pod["spec"].get_mut(list).and_then(Value::as_array_mut) else { continue };
        for container in containers {
            let mounts = container["volumeMounts"].as_array();
            if mounts.is_some_and(|m| m.iter().any(|m| m["mountPath"] == TOKEN_PATH)) {
                continue;
            }
            let mount = json!({"name": name, "readOnly": true, "mountPath": TOKEN_PATH});
            match container["volumeMounts"].as_array_mut() {
                Some(mounts) => mounts.push(mount),
                None => container["volumeMounts"] = json!([mount]),
            }
            used = true;
        }
    }
    if !used {
        return;
    }
    let volume = json!({"name": name, "projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
        ]}},
    ]}});
    match pod["spec"]["volumes"].as_array_mut() {
        Some(volumes) => volumes.push(volume),
        None => pod["spec"]["volumes"] = json!([volume]),
    }
}
