//! A whole operator: a derived kind, a controller with a finalizer, children, a status and events.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event as StoredEvent;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{Event as Finalizer, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher;
use kube::{Client, CustomResource, CustomResourceExt, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Use, shown_by, until};

pub const USES: &[Use] = &[
    ("an operator on a streamed list makes, keeps and cleans up what its kind asks for", shown_by!(streamed)),
    ("an operator that lists first does the same", shown_by!(listed)),
];

const MARK: &str = "fleets.example.org/cleanup";

/// Says how many boats there shall be: the operator writes that many entries into a ConfigMap.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "fleets.example.org", version = "v1", kind = "Fleet", namespaced)]
#[kube(
    status = "FleetStatus",
    shortname = "fl",
    printcolumn = r#"{"name":"Boats","type":"integer","jsonPath":".spec.boats"}"#
)]
#[serde(rename_all = "camelCase")]
struct FleetSpec {
    boats: u32,
    harbour: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct FleetStatus {
    afloat: u32,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the API server: {0}")]
    Api(#[from] kube::Error),
    #[error("the finalizer: {0}")]
    Finalizer(#[from] Box<kube::runtime::finalizer::Error<Error>>),
    #[error("a fleet without a namespace")]
    Nowhere,
}

struct Work {
    client: Client,
    recorder: Recorder,
}

async fn streamed(client: Client, namespace: String) -> Result<()> {
    operate(client, namespace, watcher::Config::default().streaming_lists()).await
}

async fn listed(client: Client, namespace: String) -> Result<()> {
    operate(client, namespace, watcher::Config::default().any_semantic()).await
}

async fn operate(client: Client, namespace: String, config: watcher::Config) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let apply = PatchParams::apply("uses").force();
    definitions.patch(Fleet::crd_name(), &apply, &Patch::Apply(Fleet::crd())).await?;
    await_condition(definitions, Fleet::crd_name(), conditions::is_crd_established()).await?;

    let fleets: Api<Fleet> = Api::namespaced(client.clone(), &namespace);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let recorder = Recorder::new(client.clone(), Reporter::from("fleet-operator"));
    let context = Arc::new(Work { client: client.clone(), recorder });
    let controller = Controller::new(fleets.clone(), config.clone()).owns(maps.clone(), config);
    let running = tokio::spawn(controller.run(reconcile, retry, context).for_each(|_| async {}));

    let spec = FleetSpec { boats: 2, harbour: None };
    let made = fleets.create(&PostParams::default(), &Fleet::new("blue", spec)).await?;
    let afloat = async |wanted: u32| {
        until("the status", async || {
            let found = fleets.get("blue").await?;
            Ok(found.status.as_ref().is_some_and(|status| status.afloat == wanted).then_some(found))
        })
        .await
    };
    let found = afloat(2).await?;
    ensure!(found.finalizers() == [MARK], "{:?}", found.finalizers());
    ensure!(found.metadata.generation == Some(1), "a status must not count as a generation");
    let child = maps.get("blue").await?;
    ensure!(
        child.owner_references().first().is_some_and(|owner| Some(&owner.uid) == made.metadata.uid.as_ref())
    );

    let more = Patch::Merge(json!({"spec": {"boats": 3}}));
    fleets.patch("blue", &PatchParams::default(), &more).await?;
    afloat(3).await?;
    ensure!(maps.get("blue").await?.data.is_some_and(|data| data.len() == 3));
    // The operator watches what it owns: a child that is deleted comes back.
    let first = child.uid();
    maps.delete("blue", &DeleteParams::default()).await?;
    until("the child", async || Ok(maps.get_opt("blue").await?.filter(|again| again.uid() != first))).await?;

    let events: Api<StoredEvent> = Api::namespaced(client, &namespace);
    let wanted = ListParams::default().fields("reason=Launched");
    until("an event with a series", async || {
        Ok(events.list(&wanted).await?.into_iter().find(|event| event.series.is_some()))
    })
    .await?;

    fleets.delete("blue", &DeleteParams::default()).await?;
    until("the end", async || Ok(fleets.get_opt("blue").await?.is_none().then_some(()))).await?;
    ensure!(maps.get_opt("blue").await?.is_none(), "the finalizer's work was not done");
    running.abort();
    Ok(())
}

async fn reconcile(fleet: Arc<Fleet>, context: Arc<Work>) -> Result<Action, Error> {
    let namespace = fleet.namespace().ok_or(Error::Nowhere)?;
    let fleets: Api<Fleet> = Api::namespaced(context.client.clone(), &namespace);
    let outcome = finalizer(&fleets, MARK, fleet, |event| async {
        match event {
            Finalizer::Apply(fleet) => launch(&fleet, &context, &namespace).await,
            Finalizer::Cleanup(fleet) => scuttle(&fleet, &context, &namespace).await,
        }
    });
    outcome.await.map_err(|error| Error::Finalizer(Box::new(error)))
}

async fn launch(fleet: &Fleet, context: &Work, namespace: &str) -> Result<Action, Error> {
    let name = fleet.name_any();
    let boats: serde_json::Map<_, _> =
        (0..fleet.spec.boats).map(|number| (format!("boat-{number}"), json!("afloat"))).collect();
    let child = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": [fleet.controller_owner_ref(&())]},
        "data": boats,
    });
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), namespace);
    let apply = PatchParams::apply("fleet-operator").force();
    maps.patch(&name, &apply, &Patch::Apply(child)).await?;
    let status = json!({
        "apiVersion": "fleets.example.org/v1", "kind": "Fleet", "status": FleetStatus { afloat: fleet.spec.boats },
    });
    let fleets: Api<Fleet> = Api::namespaced(context.client.clone(), namespace);
    fleets.patch_status(&name, &apply, &Patch::Apply(status)).await?;
    let event = Event {
        type_: EventType::Normal,
        reason: "Launched".into(),
        note: Some(format!("{} boats", fleet.spec.boats)),
        action: "Launching".into(),
        secondary: None,
    };
    context.recorder.publish(&event, &fleet.object_ref(&())).await?;
    Ok(Action::await_change())
}

async fn scuttle(fleet: &Fleet, context: &Work, namespace: &str) -> Result<Action, Error> {
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), namespace);
    match maps.delete(&fleet.name_any(), &DeleteParams::default()).await {
        Ok(_) => Ok(Action::await_change()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Action::await_change()),
        Err(error) => Err(error.into()),
    }
}

fn retry(_fleet: Arc<Fleet>, _error: &Error, _context: Arc<Work>) -> Action {
    Action::requeue(Duration::from_millis(200))
}
