//! Endpoints and EndpointSlices: where the pods of a Service are.

pub mod legacy;
pub mod mirror;
pub mod slices;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Endpoints, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use shoal_objects::Map;
use shoal_objects::entropy::Entropy;
use shoal_objects::selector::LabelSelector;
use shoal_runtime::apply::status_code;
use shoal_runtime::{Action, Context, Controller, Object, ObjectKey, Result};

use crate::brief::Brief;
use crate::pace::Pace;
use crate::pending::Pending;
use crate::selecting::watch_selected;
use slices::Plan;

/// How long to wait for the cache to show what was written, if no event comes earlier.
const CATCH_UP: Duration = Duration::from_secs(1);
/// Each pod of a large Service adds this much time between two looks.
const PER_POD: Duration = Duration::from_micros(100);
const ZONE: &str = "topology.kubernetes.io/zone";

/// What reconciles that make slices share.
struct Shared {
    entropy: Entropy,
    pending: Pending,
    pace: Pace,
}

fn shared(entropy: Entropy) -> Arc<Shared> {
    Arc::new(Shared { entropy, pending: Pending::default(), pace: Pace::new(PER_POD) })
}

/// Keeps the EndpointSlices of Services.
pub fn slice_controller(entropy: Entropy) -> Controller {
    let shared = shared(entropy);
    let name = "endpointslice-controller";
    watch_selected::<_, Pod>(Controller::of::<Service>(name), name, behind)
        .event_source("endpoint-slice-controller")
        .owns::<EndpointSlice>()
        .reads::<Node>()
        .reconcile(move |context| keep_slices(Arc::clone(&shared), context))
}

/// Keeps the Endpoints of Services.
pub fn controller() -> Controller {
    let pace = Arc::new(Pace::new(PER_POD));
    let name = "endpoint-controller";
    watch_selected::<_, Pod>(Controller::of::<Service>(name), name, behind)
        .watches::<Endpoints>(|endpoints, _| vec![ObjectKey::of(endpoints)])
        .reconcile(move |context| keep_endpoints(Arc::clone(&pace), context))
}

/// Keeps EndpointSlices of Endpoints that were made by hand, for Services that select no pods.
pub fn mirroring_controller(entropy: Entropy) -> Controller {
    let shared = shared(entropy);
    Controller::of::<Endpoints>("endpointslicemirroring-controller")
        .event_source("endpoint-slice-mirroring-controller")
        .owns::<EndpointSlice>()
        .watches::<Service>(|service, _| vec![ObjectKey::of(service)])
        .reconcile(move |context| keep_mirrors(Arc::clone(&shared), context))
}

/// Which pods are behind a Service, if any can be.
fn behind(service: &Service) -> Option<LabelSelector> {
    let selector = service.spec.as_ref()?.selector.as_ref().filter(|selector| !selector.is_empty())?;
    let labels: Map = selector.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
    Some(LabelSelector::from_labels(&labels))
}

/// The selector of a Service that has endpoints by it.
fn selector(service: &Service) -> Option<LabelSelector> {
    let spec = service.spec.as_ref()?;
    if spec.type_.as_deref() == Some("ExternalName") || service.metadata.deletion_timestamp.is_some() {
        return None;
    }
    behind(service)
}

async fn keep_slices(shared: Arc<Shared>, context: Context<Service>) -> Result<Action> {
    let Some(service) = context.object() else {
        shared.pending.forget(context.key());
        shared.pace.forget(context.key());
        return Ok(Action::done());
    };
    let Some(selector) = selector(&service) else { return Ok(Action::done()) };
    if let Some(wait) = shared.pace.wait(context.key()) {
        return Ok(Action::after(wait));
    }
    let lister = context.lister::<EndpointSlice>();
    if !shared.pending.is_seen(context.key(), &lister, context.writer()).await? {
        return Ok(Action::after(CATCH_UP));
    }
    let pods = context.lister::<Pod>().brief::<Brief>().select_in(&context.key().namespace, &selector);
    shared.pace.looked(context.key(), pods.len());
    let existing = present(&context, |slice| slices::is_of(slice, &service));
    let nodes = context.lister::<Node>();
    let zone = |name: &str| {
        let node = nodes.get(&ObjectKey::cluster(name))?;
        node.metadata.labels.as_ref()?.get(ZONE).cloned()
    };
    let plan = slices::plan(&service, &pods, &existing, zone, &shared.entropy);
    act(&shared, &context, &existing, &plan).await?;
    Ok(Action::done())
}

/// The slices of an owner that are not on their way out.
fn present<K: Object>(
    context: &Context<K>,
    is_ours: impl Fn(&EndpointSlice) -> bool,
) -> Vec<Arc<EndpointSlice>> {
    let mut slices = context.children::<EndpointSlice>();
    slices.retain(|slice| is_ours(slice) && slice.metadata.deletion_timestamp.is_none());
    slices
}

async fn act<K: Object>(
    shared: &Shared,
    context: &Context<K>,
    existing: &[Arc<EndpointSlice>],
    plan: &Plan,
) -> Result<()> {
    let writer = context.writer();
    let known = |name: Option<&String>| existing.iter().find(|slice| slice.metadata.name.as_ref() == name);
    for slice in &plan.create {
        // Before the request: its answer may be lost.
        shared.pending.created(context.key(), slice);
        writer.create(slice).await?;
    }
    for slice in &plan.update {
        let known = known(slice.metadata.name.as_ref()).map(AsRef::as_ref);
        let change = |now: &mut EndpointSlice| {
            now.metadata.labels.clone_from(&slice.metadata.labels);
            now.endpoints.clone_from(&slice.endpoints);
            now.ports.clone_from(&slice.ports);
        };
        writer.modify(&ObjectKey::of(slice), known, change).await?;
    }
    for name in &plan.delete {
        if let Some(slice) = known(Some(name)) {
            shared.pending.deleted(context.key(), &**slice);
            writer.delete(&**slice).await?;
        }
    }
    Ok(())
}

async fn keep_endpoints(pace: Arc<Pace>, context: Context<Service>) -> Result<Action> {
    let lister = context.lister::<Endpoints>();
    let Some(service) = context.object() else {
        // What a person has made without a Service is not ours, what belonged to the Service goes with it.
        let left = lister.get(context.key());
        let theirs = |left: &Arc<Endpoints>| legacy::is_managed(left) || context.last_state().is_some();
        if let Some(left) = left.filter(theirs) {
            context.writer().delete(&*left).await?;
        }
        pace.forget(context.key());
        return Ok(Action::done());
    };
    let Some(selector) = selector(&service) else { return Ok(Action::done()) };
    if let Some(wait) = pace.wait(context.key()) {
        return Ok(Action::after(wait));
    }
    let pods = context.lister::<Pod>().brief::<Brief>().select_in(&context.key().namespace, &selector);
    pace.looked(context.key(), pods.len());
    let wanted = legacy::endpoints(&service, &pods);
    let present = lister.get(context.key());
    if present.is_none() {
        match context.writer().create(&wanted).await {
            Ok(_) => return Ok(Action::done()),
            // The cache is behind.
            Err(error) if status_code(&error) == Some(409) => {}
            Err(error) => return Err(error),
        }
    }
    let change = |now: &mut Endpoints| {
        now.metadata.labels.clone_from(&wanted.metadata.labels);
        legacy::mark_capacity(now, &wanted);
        if now.subsets.as_deref().unwrap_or_default() != wanted.subsets.as_deref().unwrap_or_default() {
            now.subsets.clone_from(&wanted.subsets);
        }
    };
    context.writer().modify(context.key(), present.as_deref(), change).await?;
    Ok(Action::done())
}

async fn keep_mirrors(shared: Arc<Shared>, context: Context<Endpoints>) -> Result<Action> {
    let Some(endpoints) = context.object() else {
        shared.pending.forget(context.key());
        return Ok(Action::done());
    };
    let lister = context.lister::<EndpointSlice>();
    if !shared.pending.is_seen(context.key(), &lister, context.writer()).await? {
        return Ok(Action::after(CATCH_UP));
    }
    let existing = present(&context, mirror::is_mirror);
    let service = context.lister::<Service>().get(context.key());
    let plan = mirror::plan(&endpoints, service.as_deref(), &existing, &shared.entropy);
    act(&shared, &context, &existing, &plan).await?;
    Ok(Action::done())
}
