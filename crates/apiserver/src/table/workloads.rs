//! What makes pods, and what guards them.

use serde_json::Value;
use shoal_objects::selector::LabelSelector;
use shoal_objects::{Timestamp, conditions, meta};

use super::Column;
use super::cells::{
    AGE, CONTAINERS, IMAGES, NAME, NONE, SELECTOR, UNSET, count, each, labels, number, quantity, selector,
    text, text_or,
};
use super::duration::{micros, since, spell};
use crate::kinds::access::{at, str_at};

const READY_OF_DESIRED: Column = Column::text("Ready", "Pods that are ready, of those wanted.", |o, _| {
    format!("{}/{}", number(o, &["status", "readyReplicas"]), number(o, &["spec", "replicas"])).into()
});
const DESIRED: Column =
    Column::number("Desired", "How many pods are wanted.", |o, _| number(o, &["spec", "replicas"]).into());
const CURRENT: Column =
    Column::number("Current", "How many pods there are.", |o, _| number(o, &["status", "replicas"]).into());
const READY: Column = Column::number("Ready", "How many pods are ready.", |o, _| {
    number(o, &["status", "readyReplicas"]).into()
});

/// Columns of pod templates.
pub static POD_TEMPLATE: &[Column] = &[
    NAME,
    Column::text("Containers", "The template's containers.", |o, _| {
        each(at(o, &["template", "spec"]), "containers", "name").into()
    }),
    Column::text("Images", "Images of the template's containers.", |o, _| {
        each(at(o, &["template", "spec"]), "containers", "image").into()
    }),
    Column::text("Pod Labels", "Labels of pods made from the template.", |o, _| {
        labels(at(o, &["template", "metadata", "labels"]))
    }),
];

/// Columns of replication controllers, whose selector is a plain map.
pub static REPLICATION_CONTROLLER: &[Column] = &[
    NAME,
    DESIRED,
    CURRENT,
    READY,
    AGE,
    CONTAINERS,
    IMAGES,
    Column::text("Selector", "Labels of the pods that belong to the controller.", |o, _| {
        labels(at(o, &["spec", "selector"]))
    })
    .wide(),
];

/// Columns of replica sets.
pub static REPLICA_SET: &[Column] = &[NAME, DESIRED, CURRENT, READY, AGE, CONTAINERS, IMAGES, SELECTOR];

/// Columns of deployments.
pub static DEPLOYMENT: &[Column] = &[
    NAME,
    READY_OF_DESIRED,
    Column::text("Up-to-date", "How many pods are of the current template.", |o, _| {
        number(o, &["status", "updatedReplicas"]).into()
    }),
    Column::text("Available", "How many pods have been ready for long enough.", |o, _| {
        number(o, &["status", "availableReplicas"]).into()
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    Column::text("Selector", "Which pods belong to the deployment.", |o, _| {
        let selector = LabelSelector::from_object(at(o, &["spec", "selector"]));
        selector.map_or("<invalid>".to_owned(), |selector| selector.to_string()).into()
    })
    .wide(),
];

/// Columns of stateful sets.
pub static STATEFUL_SET: &[Column] = &[NAME, READY_OF_DESIRED, AGE, CONTAINERS, IMAGES];

/// Columns of daemon sets.
pub static DAEMON_SET: &[Column] = &[
    NAME,
    Column::number("Desired", "How many nodes should run the pod.", |o, _| {
        number(o, &["status", "desiredNumberScheduled"]).into()
    }),
    Column::number("Current", "How many of those nodes have the pod.", |o, _| {
        number(o, &["status", "currentNumberScheduled"]).into()
    }),
    Column::number("Ready", "How many nodes have a ready pod.", |o, _| {
        number(o, &["status", "numberReady"]).into()
    }),
    Column::number("Up-to-date", "How many nodes have a pod of the current template.", |o, _| {
        number(o, &["status", "updatedNumberScheduled"]).into()
    }),
    Column::number("Available", "How many nodes have a pod that has been ready for long enough.", |o, _| {
        number(o, &["status", "numberAvailable"]).into()
    }),
    Column::text("Node Selector", "Labels a node needs to run the pod.", |o, _| {
        labels(at(o, &["spec", "template", "spec", "nodeSelector"]))
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

/// Columns of controller revisions.
pub static CONTROLLER_REVISION: &[Column] = &[
    NAME,
    Column::text("Controller", "The object whose revision it is.", |o, _| controller(o).into()),
    Column::text("Revision", "The number of the revision.", |o, _| number(o, &["revision"]).into()),
    AGE,
];

/// Columns of jobs.
pub static JOB: &[Column] = &[
    NAME,
    Column::text("Status", "What became of the job.", |o, _| job_status(o).into()),
    Column::text("Completions", "Pods that succeeded, of those needed.", |o, _| completions(o).into()),
    Column::text("Duration", "How long the job took, or has run.", job_duration),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const JOB_TEMPLATE: &[&str] = &["spec", "jobTemplate", "spec", "template", "spec"];

/// Columns of cron jobs.
pub static CRON_JOB: &[Column] = &[
    NAME,
    Column::text("Schedule", "When jobs are made, in cron format.", |o, _| text(o, &["spec", "schedule"])),
    Column::text("Timezone", "The time zone of the schedule.", |o, _| {
        text_or(o, &["spec", "timeZone"], NONE)
    }),
    Column::boolean("Suspend", "Whether no jobs are made for now.", |o, _| {
        match at(o, &["spec", "suspend"]).and_then(Value::as_bool) {
            Some(true) => "True".into(),
            Some(false) => "False".into(),
            None => UNSET.into(),
        }
    }),
    Column::number("Active", "How many jobs are running.", |o, _| count(o, &["status", "active"]).into()),
    Column::text("Last Schedule", "When a job was made last.", |o, now| {
        at(o, &["status", "lastScheduleTime"]).map_or(NONE.into(), |time| since(Some(time), now).into())
    }),
    AGE,
    Column::text("Containers", "The template's containers.", |o, _| {
        each(at(o, JOB_TEMPLATE), "containers", "name").into()
    })
    .wide(),
    Column::text("Images", "Images of the template's containers.", |o, _| {
        each(at(o, JOB_TEMPLATE), "containers", "image").into()
    })
    .wide(),
    Column::text("Selector", "Which pods belong to a job.", |o, _| {
        selector(at(o, &["spec", "jobTemplate", "spec", "selector"])).into()
    })
    .wide(),
];

/// Columns of pod disruption budgets.
pub static DISRUPTION_BUDGET: &[Column] = &[
    NAME,
    Column::text("Min Available", "How many pods must stay available.", |o, _| bound(o, "minAvailable")),
    Column::text("Max Unavailable", "How many pods may be unavailable.", |o, _| bound(o, "maxUnavailable")),
    Column::number("Allowed Disruptions", "How many pods may be disrupted now.", |o, _| {
        number(o, &["status", "disruptionsAllowed"]).into()
    }),
    AGE,
];

fn bound(budget: &Value, name: &str) -> Value {
    at(budget, &["spec", name]).map_or("N/A".into(), |bound| quantity(Some(bound)).into())
}

/// `statefulset.apps/web`
fn controller(revision: &Value) -> String {
    let Some(owner) = meta::controller_of(revision) else { return NONE.to_owned() };
    let group = str_at(owner, "apiVersion").split_once('/').map_or("", |(group, _)| group);
    let (kind, name) = (str_at(owner, "kind").to_lowercase(), str_at(owner, "name"));
    if group.is_empty() {
        format!("{kind}/{name}")
    } else {
        format!("{kind}.{}/{name}", group.to_lowercase())
    }
}

fn job_status(job: &Value) -> &'static str {
    let is = |condition: &str| conditions::is_condition_true(job, condition);
    if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if meta::deletion_timestamp(job).is_some() {
        "Terminating"
    } else if is("Suspended") {
        "Suspended"
    } else if is("FailureTarget") {
        "FailureTarget"
    } else if is("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

/// Without a number of completions one success is enough, of however many pods run at once.
fn completions(job: &Value) -> String {
    let succeeded = number(job, &["status", "succeeded"]);
    match (at(job, &["spec", "completions"]), number(job, &["spec", "parallelism"])) {
        (Some(wanted), _) => format!("{succeeded}/{}", wanted.as_i64().unwrap_or_default()),
        (None, parallelism @ 2..) => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn job_duration(job: &Value, now: Timestamp) -> Value {
    let Some(start) = at(job, &["status", "startTime"]).and_then(micros) else { return "".into() };
    let end = at(job, &["status", "completionTime"]).and_then(micros).unwrap_or(now.0);
    spell(end.saturating_sub(start) / 1_000_000).into()
}
