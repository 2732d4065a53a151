//! A controller beside the operator, made of its public types. docs/how-to/extend-the-application.md shows what follows, all of it.

use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use shoal_application::{Application, Phase};
use shoal_runtime::controller::Listers;
use shoal_runtime::{Action, Context, Controller, Manager, ObjectKey, Result};

/// Names the Application of which the image is taken over.
const FOLLOWS: &str = "example.com/follows";

/// Adds the controller and its metric.
pub fn register(manager: &mut Manager) {
    let promotions = Counter::<u64>::default();
    let help = "Images that were taken over";
    manager
        .metrics()
        .register(|registry| registry.register("application_promotions", help, promotions.clone()));
    let reconcile = move |context: Context<Application>| promote(context, promotions.clone());
    manager.add(Controller::of::<Application>("promotion").watches(followers).reconcile(reconcile));
}

fn followed(app: &Application) -> Option<ObjectKey> {
    let name = app.metadata.annotations.as_ref()?.get(FOLLOWS)?;
    Some(ObjectKey::new(app.metadata.namespace.as_deref()?, name))
}

/// Those who follow this one; they are looked at when it changes.
fn followers(app: &Application, listers: &Listers) -> Vec<ObjectKey> {
    let key = ObjectKey::of(app);
    let others = listers.of::<Application>().list_in(&key.namespace);
    let following = others.iter().filter(|other| followed(other).as_ref() == Some(&key));
    following.map(|other| ObjectKey::of(&**other)).collect()
}

/// The image that an Application runs, if all is well with it.
fn proven(app: &Application) -> Option<&str> {
    let status = app.status.as_ref()?;
    let well = status.phase == Some(Phase::Running) && status.observed_generation == app.metadata.generation;
    status.image.as_deref().filter(|_| well)
}

async fn promote(context: Context<Application>, promotions: Counter) -> Result<Action> {
    let Some(app) = context.object() else { return Ok(Action::done()) };
    let first = followed(&app).and_then(|key| context.lister::<Application>().get(&key));
    if let Some(image) = first.as_deref().and_then(proven).filter(|image| *image != app.spec.image) {
        // Only over what was read: who edits it meanwhile is not undone.
        context.writer().patch_as_read(&*app, json!({"spec": {"image": image}})).await?;
        context.recorder().normal(&*app, "Promoted", format!("{image} has proven itself"));
        promotions.inc();
    }
    Ok(Action::done())
}
