//! DefaultStorageClass and DefaultIngressClass: what names no class gets the default one.

use serde_json::Value;
use shoal_objects::meta;

use crate::handlers::{Call, served};

/// DefaultStorageClass: a claim that names no class gets the default one.
pub async fn default_storage_class(call: &Call<'_>, claim: &mut Value) {
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
pub async fn default_ingress_class(call: &Call<'_>, ingress: &mut Value) {
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
