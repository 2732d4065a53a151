//! CronJobs: Jobs at set times.

pub mod plan;
pub mod schedule;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::{CronJob, Job};
use shoal_objects::clock::Clock;
use shoal_runtime::apply::status_code;
use shoal_runtime::{Action, Context, Controller, ObjectKey, Result, owner};

use crate::children;
use crate::pending::Pending;
use crate::time::now;
use crate::written::Written;

/// How long to wait for the cache to show what was written, if no event comes earlier.
const CATCH_UP: Duration = Duration::from_secs(1);
/// The longest wait for a time of day: the clock may be set meanwhile.
const LONGEST: Duration = Duration::from_secs(60);

/// What all reconciles share.
struct Shared {
    clock: Clock,
    pending: Pending,
    written: Written,
}

/// The controller.
pub fn controller(clock: Clock) -> Controller {
    let shared = Arc::new(Shared { clock, pending: Pending::default(), written: Written::default() });
    Controller::of::<CronJob>("cronjob-controller")
        .owns::<Job>()
        .reconcile(move |context| reconcile(Arc::clone(&shared), context))
}

async fn reconcile(shared: Arc<Shared>, context: Context<CronJob>) -> Result<Action> {
    let Some(cron) = context.object() else {
        shared.pending.forget(context.key());
        shared.written.forget(context.key());
        return Ok(Action::done());
    };
    let jobs = context.lister::<Job>();
    if !shared.written.is_seen(&*cron)
        || !shared.pending.is_seen(context.key(), &jobs, context.writer()).await?
    {
        return Ok(Action::after(CATCH_UP));
    }
    let owned = context.children::<Job>();
    let plan = plan::plan(&cron, &owned, now(&shared.clock));
    for note in &plan.notes {
        match note.warning {
            true => context.recorder().warning(&*cron, note.reason, note.message.clone()),
            false => context.recorder().normal(&*cron, note.reason, note.message.clone()),
        }
    }
    for name in plan.replace.iter().chain(&plan.forget) {
        let Some(job) = owned.iter().find(|job| job.metadata.name.as_ref() == Some(name)) else { continue };
        shared.pending.deleted(context.key(), &**job);
        context.writer().delete(&**job).await?;
        context.recorder().normal(&*cron, "SuccessfulDelete", format!("Deleted job {name}"));
    }
    let mut status = plan.status.clone();
    if let Some(job) = &plan.create {
        let started = start(&shared, &context, &cron, job).await?;
        status.active.get_or_insert_default().push(plan::reference(&started));
    }
    if !shared.written.status(&context, &*cron, |cron| cron.status = Some(status.clone())).await? {
        return Ok(Action::after(CATCH_UP));
    }
    Ok(plan.again.map_or(Action::done(), |again| Action::after(again.min(LONGEST))))
}

async fn start(shared: &Shared, context: &Context<CronJob>, cron: &CronJob, job: &Job) -> Result<Job> {
    shared.pending.created(context.key(), job);
    match context.writer().create(job).await {
        Ok(started) => {
            let name = started.metadata.name.as_deref().unwrap_or_default();
            context.recorder().normal(cron, "SuccessfulCreate", format!("Created job {name}"));
            Ok(started)
        }
        Err(error) => {
            // Started before, and then the status could not be written.
            if status_code(&error) == Some(409)
                && let Some(present) = context.writer().get::<Job>(&ObjectKey::of(job)).await?
                && owner::is_controlled_by(&present.metadata, &cron.metadata)
            {
                return Ok(present);
            }
            let message = format!("Error creating job: {}", children::why(&error));
            context.recorder().warning(cron, "FailedCreate", message);
            Err(error)
        }
    }
}
