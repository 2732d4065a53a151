//! ResourceQuotas tell what their namespace uses. Who may use more is decided when objects are made, by the server.

pub mod usage;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, Pod, ResourceQuota, ResourceQuotaSpec, ResourceQuotaStatus, Service,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use kube::api::{Api, DynamicObject, ListParams};
use shoal_objects::Quantity;
use shoal_objects::quantity::Format;
use shoal_runtime::cache::Encoded;
use shoal_runtime::controller::Listers;
use shoal_runtime::{Action, Context, Controller, ObjectKey, Result};

use crate::discovery::Discovery;
use usage::Amounts;

/// Kinds that are only counted are not watched; they are counted again after this time.
const AGAIN: Duration = Duration::from_secs(30);

/// The controller.
pub fn controller() -> Controller {
    Controller::of::<ResourceQuota>("resourcequota-controller")
        .field_manager("kube-controller-manager")
        .watches_metadata::<Pod>(quotas_of)
        .watches_metadata::<Service>(quotas_of)
        .watches_metadata::<PersistentVolumeClaim>(quotas_of)
        .reconcile(reconcile)
}

fn quotas_of(object: &Encoded, listers: &Listers) -> Vec<ObjectKey> {
    let quotas = listers.of::<ResourceQuota>().metas_in(object.namespace());
    quotas.iter().map(|quota| quota.key().clone()).collect()
}

async fn reconcile(context: Context<ResourceQuota>) -> Result<Action> {
    let Some(quota) = context.object().filter(|quota| quota.metadata.deletion_timestamp.is_none()) else {
        return Ok(Action::done());
    };
    let spec = quota.spec.clone().unwrap_or_default();
    let hard = spec.hard.clone().unwrap_or_default();
    let mut used = from_caches(&context, &spec);
    let counted: Vec<String> = hard.keys().filter(|name| usage::counted(name).is_some()).cloned().collect();
    if !counted.is_empty() {
        count(&context, &counted, &mut used).await?;
    }
    let known = quota.status.as_ref().and_then(|status| status.used.as_ref());
    let status = ResourceQuotaStatus { used: Some(shown(&hard, &used, known)), hard: Some(hard) };
    context
        .writer()
        .modify_status(context.key(), Some(&*quota), |quota: &mut ResourceQuota| {
            quota.status = Some(status.clone());
        })
        .await?;
    Ok(if counted.is_empty() { Action::done() } else { Action::after(AGAIN) })
}

fn from_caches(context: &Context<ResourceQuota>, spec: &ResourceQuotaSpec) -> Amounts {
    let namespace = &context.key().namespace;
    let mut used = Amounts::new();
    usage::of_pods(context.lister::<Pod>().list_in(namespace).iter().map(AsRef::as_ref), spec, &mut used);
    // Scopes are of pods; a quota with any is about nothing else.
    if spec.scopes.is_none() && spec.scope_selector.is_none() {
        let services = context.lister::<Service>().list_in(namespace);
        usage::of_services(services.iter().map(AsRef::as_ref), &mut used);
        let claims = context.lister::<PersistentVolumeClaim>().list_in(namespace);
        usage::of_claims(claims.iter().map(AsRef::as_ref), &mut used);
    }
    used
}

/// Asks the server how many objects there are.
async fn count(context: &Context<ResourceQuota>, names: &[String], used: &mut Amounts) -> Result<()> {
    let discovery = Discovery::ask(context.client()).await?;
    for name in names {
        let Some((plural, group)) = usage::counted(name) else { continue };
        let kind = discovery
            .preferred()
            .find(|kind| kind.resource.plural == plural && kind.resource.group == group && kind.namespaced);
        let Some(kind) = kind else { continue };
        let client = context.client().clone();
        let api: Api<DynamicObject> = Api::namespaced_with(client, &context.key().namespace, &kind.resource);
        let first = api.list_metadata(&ListParams::default().limit(1)).await?;
        let more = first.metadata.remaining_item_count.unwrap_or(0);
        let number = i64::try_from(first.items.len()).unwrap_or(i64::MAX).saturating_add(more);
        used.insert(name.clone(), Quantity::new(number, Format::DecimalSi));
    }
    Ok(())
}

/// What is used of what is limited. An amount that is told already stays as it is written, if it is the same.
fn shown(
    hard: &BTreeMap<String, ApiQuantity>,
    used: &Amounts,
    known: Option<&BTreeMap<String, ApiQuantity>>,
) -> BTreeMap<String, ApiQuantity> {
    let amount = |name: &String| {
        let now = used.get(name).cloned().unwrap_or_else(|| Quantity::new(0, Format::DecimalSi));
        let before = known.and_then(|known| known.get(name)).cloned();
        let same = before.filter(|before| Quantity::parse(&before.0).is_ok_and(|before| before == now));
        same.unwrap_or_else(|| ApiQuantity(now.to_string()))
    };
    hard.keys().map(|name| (name.clone(), amount(name))).collect()
}
