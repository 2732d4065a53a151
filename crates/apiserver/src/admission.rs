//! What the server adds to, or refuses of, requests that are fine in themselves: the admission plugins that are on
//! by default and need to look at other objects.

use serde_json::{Value, json};
use shoal_objects::meta;

use crate::handlers::{Call, served};
use crate::status::{Failure, Outcome};

/// Namespaces that cannot be deleted.
const PROTECTED: [&str; 3] = ["default", "kube-system", "kube-public"];
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_SECONDS: i64 = 3607;
const TOLERATION_SECONDS: i64 = 300;

/// Looks at an object that is to be created.
pub async fn create(call: &Call<'_>, object: &mut Value) -> Outcome<()> {
    let resource = &*call.target.resource;
    call.server.authorizer.check_escalation(&call.user, resource, object)?;
    if resource.namespaced {
        namespace_is_open(call, meta::name(object)).await?;
    }
    match (&*resource.group, &*resource.plural) {
        ("", "pods") => {
            service_account(call, object).await?;
            priority(call, object).await?;
            default_tolerations(object);
        }
        ("", "persistentvolumeclaims") => default_storage_class(call, object).await,
        ("networking.k8s.io", "ingresses") => default_ingress_class(call, object).await,
        _ => {}
    }
    Ok(())
}

/// Looks at a change.
pub async fn update(call: &Call<'_>, object: &mut Value, old: &Value) -> Outcome<()> {
    let granted =
        |o: &Value| (o.get("rules").cloned(), o.get("roleRef").cloned(), o.get("subjects").cloned());
    if granted(object) != granted(old) {
        call.server.authorizer.check_escalation(&call.user, &call.target.resource, object)?;
    }
    if &*call.target.resource.plural == "pods" && call.target.resource.group.is_empty() {
        default_tolerations(object);
    }
    Ok(())
}

/// Looks at a deletion.
pub fn delete(call: &Call<'_>) -> Outcome<()> {
    let (resource, name) = (&call.target.resource, call.target.name.as_str());
    if &*resource.plural == "namespaces" && resource.group.is_empty() && PROTECTED.contains(&name) {
        return Err(Failure::forbidden(resource, name, "this namespace may not be deleted"));
    }
    Ok(())
}

/// NamespaceLifecycle: nothing new in namespaces that are absent or on their way out.
async fn namespace_is_open(call: &Call<'_>, name: &str) -> Outcome<()> {
    let namespace = call.target.namespace.as_str();
    let resource = &*call.target.resource;
    let registry = call.server.registry();
    let Some(namespaces) = registry.find("", "v1", "namespaces") else { return Ok(()) };
    let Some(found) = call.server.store.get("namespaces", namespace).await else {
        return Err(Failure::not_found(namespaces, namespace));
    };
    // The phase is a selectable field, so the index answers without decoding.
    let position = namespaces.fields.iter().position(|f| *f == "status.phase").unwrap_or(0);
    if crate::index::Index::new(&found.meta).field(position) != "Terminating" {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut failure = Failure::forbidden(resource, name, &why);
    let cause = json!([{
        "reason": "NamespaceTerminating", "field": "metadata.namespace",
        "message": format!("namespace {namespace} is being terminated"),
    }]);
    failure.detail("causes", cause);
    Err(failure)
}

/// ServiceAccount: every pod runs as an account of its namespace and gets its token, unless told otherwise.
async fn service_account(call: &Call<'_>, pod: &mut Value) -> Outcome<()> {
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

/// Priority: the class named by the pod, or the default one, gives the number.
async fn priority(call: &Call<'_>, pod: &mut Value) -> Outcome<()> {
    let registry = call.server.registry();
    let Some(classes) = registry.find("scheduling.k8s.io", "v1", "priorityclasses") else { return Ok(()) };
    let store = &call.server.store;
    let named = pod["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
    let class = if named.is_empty() {
        let mut default: Option<Value> = None;
        for object in store.list(&classes.table, shoal_store::Range::All, None, 0).await.objects {
            let class = served(classes, &object)?;
            // Of several defaults the lowest is taken.
            let lower = |d: &Value| class["value"].as_i64() < d["value"].as_i64();
            if class["globalDefault"] == true && default.as_ref().is_none_or(lower) {
                default = Some(class);
            }
        }
        default
    } else {
        let Some(found) = store.get(&classes.table, &named).await else {
            let why = format!("no PriorityClass with name {named} was found");
            return Err(Failure::forbidden(&call.target.resource, meta::name(pod), &why));
        };
        Some(served(classes, &found)?)
    };
    let value = class.as_ref().and_then(|c| c["value"].as_i64()).unwrap_or(0);
    if let Some(given) = pod["spec"]["priority"].as_i64()
        && given != value
    {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {value} from the given PriorityClass name"
        );
        return Err(Failure::forbidden(&call.target.resource, meta::name(pod), &why));
    }
    if let Some(class) = &class {
        pod["spec"]["priorityClassName"] = meta::name(class).into();
    }
    let policy =
        class.as_ref().and_then(|c| c["preemptionPolicy"].as_str()).unwrap_or("PreemptLowerPriority");
    pod["spec"]["priority"] = value.into();
    if pod["spec"].get("preemptionPolicy").is_none() {
        pod["spec"]["preemptionPolicy"] = policy.into();
    }
    Ok(())
}

/// DefaultTolerationSeconds: pods stay five minutes on nodes that are not ready or cannot be reached.
fn default_tolerations(pod: &mut Value) {
    let spec = &mut pod["spec"];
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerates = spec["tolerations"].as_array().into_iter().flatten().any(|t| {
            let (k, effect) =
                (t["key"].as_str().unwrap_or_default(), t["effect"].as_str().unwrap_or_default());
            (k == key || k.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if tolerates {
            continue;
        }
        let toleration = json!({
            "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS,
        });
        match spec["tolerations"].as_array_mut() {
            Some(list) => list.push(toleration),
            None => spec["tolerations"] = json!([toleration]),
        }
    }
}

/// DefaultStorageClass: a claim that names no class gets the default one.
async fn default_storage_class(call: &Call<'_>, claim: &mut Value) {
    let beta = meta::annotation(claim, "volume.beta.kubernetes.io/storage-class").is_some();
    if claim["spec"].get("storageClassName").is_some() || beta {
        return;
    }
    let annotation = "storageclass.kubernetes.io/is-default-class";
    if let Some(name) = newest_default(call, "storage.k8s.io", "storageclasses", annotation).await {
        claim["spec"]["storageClassName"] = name.into();
    }
}

/// DefaultIngressClass: an ingress that names no class gets the default one.
async fn default_ingress_class(call: &Call<'_>, ingress: &mut Value) {
    let old = meta::annotation(ingress, "kubernetes.io/ingress.class").is_some();
    if ingress["spec"].get("ingressClassName").is_some() || old {
        return;
    }
    let annotation = "ingressclass.kubernetes.io/is-default-class";
    if let Some(name) = newest_default(call, "networking.k8s.io", "ingressclasses", annotation).await {
        ingress["spec"]["ingressClassName"] = name.into();
    }
}

/// The newest class that is marked as default.
async fn newest_default(call: &Call<'_>, group: &str, plural: &str, annotation: &str) -> Option<String> {
    let registry = call.server.registry();
    let classes = registry.find(group, "v1", plural)?;
    let listing = call.server.store.list(&classes.table, shoal_store::Range::All, None, 0).await;
    let mut marked: Vec<Value> = listing.objects.iter().filter_map(|o| served(classes, o).ok()).collect();
    marked.retain(|class| meta::annotation(class, annotation) == Some("true"));
    marked.sort_by(|a, b| {
        let key = |v: &Value| {
            (meta::creation_timestamp(v).unwrap_or_default().to_owned(), meta::name(v).to_owned())
        };
        let ((time_a, name_a), (time_b, name_b)) = (key(a), key(b));
        time_b.cmp(&time_a).then(name_a.cmp(&name_b))
    });
    marked.first().map(|class| meta::name(class).to_owned())
}
