//! A whole operator: a `WebApp` becomes a Deployment and a Service, and shows in its status how many replicas are ready.
//! Probes, metrics and inspection are on port 8080; of several replicas, one leads.

#[cfg(test)]
mod tests;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use shoal_runtime::{
    Action, Applied, Context, Controller, Error, Manager, Result, Writer, finalizer, logging,
};

const FINALIZER: &str = "example.com/web-app";

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "WebApp", namespaced, status = "WebAppStatus")]
#[serde(rename_all = "camelCase")]
pub struct WebAppSpec {
    /// What to run.
    pub image: String,
    /// How many of it.
    pub replicas: i32,
    /// Where it listens.
    pub port: i32,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WebAppStatus {
    pub observed_generation: i64,
    pub ready_replicas: i32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut manager = Manager::builder("web-app").leader_election().build().await?;
    logging::init(&manager.config().logging, vec![])?;
    install(&manager).await?;
    manager.add(controller());
    Ok(manager.run().await?)
}

/// The definition of the kind, so that the operator can be started on an empty cluster.
async fn install(manager: &Manager) -> Result<()> {
    Writer::new(manager.client(), "web-app").apply(&WebApp::crd(), None).await?;
    Ok(())
}

fn controller() -> Controller {
    Controller::of::<WebApp>("web-app").owns::<Deployment>().owns::<Service>().reconcile(reconcile)
}

async fn reconcile(context: Context<WebApp>) -> Result<Action> {
    let Some(app) = context.object() else { return Ok(Action::done()) };
    let writer = context.writer();
    finalizer::finalize(
        writer,
        &*app,
        FINALIZER,
        |app| roll_out(&context, app),
        |app| clean_up(&context, app),
    )
    .await
}

async fn roll_out(context: &Context<WebApp>, app: WebApp) -> Result<Action> {
    let live = context.lister::<Deployment>().get(context.key());
    let applied = context.writer().apply_child(&app, &deployment(&app)?, live.as_deref()).await?;
    if let Applied::Written(_) = applied {
        let message = format!("{} of {}", app.spec.replicas, app.spec.image);
        context.recorder().normal(&app, "RolledOut", message);
    }
    let service_live = context.lister::<Service>().get(context.key());
    context.writer().apply_child(&app, &service(&app)?, service_live.as_deref()).await?;

    let ready = live.and_then(|live| live.status.as_ref()?.ready_replicas).unwrap_or(0);
    let observed_generation = app.metadata.generation.unwrap_or_default();
    let status = Some(WebAppStatus { observed_generation, ready_replicas: ready });
    context.writer().apply_status(&WebApp { status, ..app.clone() }, Some(&app)).await?;
    Ok(Action::done())
}

/// Children go by themselves, with their owner. What is outside the cluster is given back here.
async fn clean_up(context: &Context<WebApp>, app: WebApp) -> Result<()> {
    context.recorder().normal(&app, "CleanedUp", "nothing outside the cluster is left");
    Ok(())
}

fn deployment(app: &WebApp) -> Result<Deployment> {
    let labels = json!({"app": app.name_any()});
    let WebAppSpec { image, replicas, port } = &app.spec;
    let container = json!({"name": "web", "image": image, "ports": [{"containerPort": port}]});
    child(json!({
        "metadata": {"name": app.name_any(), "namespace": app.namespace(), "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }))
}

fn service(app: &WebApp) -> Result<Service> {
    let labels = json!({"app": app.name_any()});
    let ports = json!([{"port": 80, "targetPort": app.spec.port}]);
    child(json!({
        "metadata": {"name": app.name_any(), "namespace": app.namespace(), "labels": labels},
        "spec": {"selector": labels, "ports": ports},
    }))
}

fn child<T: serde::de::DeserializeOwned>(json: serde_json::Value) -> Result<T> {
    serde_json::from_value(json)
        .map_err(|error| Error::permanent("a child cannot be described").because(error))
}
