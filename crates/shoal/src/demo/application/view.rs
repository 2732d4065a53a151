//! An Application and what was made for it, as seen at one moment.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Event, Pod, Service};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use shoal_application::{Application, Phase};

/// How many of the last events are shown.
const EVENTS: usize = 5;

/// What is seen.
#[derive(Default)]
pub struct View {
    /// The Application's phase, if there is one.
    pub phase: Option<Phase>,
    /// Its conditions: type, whether it is true, message.
    pub conditions: Vec<(String, bool, String)>,
    /// What was made for it.
    pub children: Vec<String>,
    /// Pods that are not on their way out.
    pub pods: Vec<PodView>,
    /// How many of them are ready.
    pub ready: usize,
    /// What the autoscaler measures and wants.
    pub scaling: Option<String>,
    /// What was told last: reason and message.
    pub events: Vec<(String, String)>,
    pub exists: bool,
    pub has_service: bool,
    pub leaving: usize,
}

/// A pod.
pub struct PodView {
    /// Its name.
    pub name: String,
    /// What it runs.
    pub image: String,
    /// Whether it serves.
    pub ready: bool,
    /// In a word.
    pub state: String,
}

impl View {
    /// Asks the cluster.
    pub async fn of(client: &Client, name: &str) -> kube::Result<View> {
        let applications: Api<Application> = Api::default_namespaced(client.clone());
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let services: Api<Service> = Api::default_namespaced(client.clone());
        let autoscalers: Api<HorizontalPodAutoscaler> = Api::default_namespaced(client.clone());
        let events: Api<Event> = Api::default_namespaced(client.clone());
        let labelled = ListParams::default().labels(&format!("app={name}"));
        let about = format!("involvedObject.name={name},involvedObject.kind=Application");
        let about = ListParams::default().fields(&about);
        let application = applications.get_opt(name).await?;
        let all = pods.list(&labelled).await?.items;
        let (leaving, staying): (Vec<Pod>, Vec<Pod>) =
            all.into_iter().partition(|pod| pod.metadata.deletion_timestamp.is_some());
        let pods: Vec<PodView> = staying.iter().map(pod).collect();
        let status = application.as_ref().and_then(|application| application.status.clone());
        let status = status.unwrap_or_default();
        let conditions = status.conditions.into_iter();
        Ok(View {
            phase: status.phase,
            children: status.children.iter().map(|child| format!("{} {}", child.kind, child.name)).collect(),
            conditions: conditions.map(|c| (c.type_, c.status == "True", c.message)).collect(),
            ready: pods.iter().filter(|pod| pod.ready).count(),
            pods,
            scaling: autoscalers.get_opt(name).await?.as_ref().map(scaling),
            events: last(events.list(&about).await?.items),
            exists: application.is_some(),
            has_service: services.get_opt(name).await?.is_some(),
            leaving: leaving.len(),
        })
    }

    /// Whether a condition is true.
    pub fn is_true(&self, condition: &str) -> bool {
        self.conditions.iter().any(|(kind, is_true, _)| kind == condition && *is_true)
    }

    /// What a condition says.
    pub fn message(&self, condition: &str) -> &str {
        let found = self.conditions.iter().find(|(kind, ..)| kind == condition);
        found.map_or("", |(.., message)| message)
    }

    /// Whether nothing is left.
    pub fn is_gone(&self) -> bool {
        !self.exists && !self.has_service && self.pods.is_empty() && self.leaving == 0
    }

    /// All in a line.
    pub fn line(&self) -> String {
        if self.is_gone() {
            return "gone      nothing is left".to_owned();
        }
        let phase = match (self.phase, self.exists) {
            (_, false) => "gone",
            (Some(phase), true) => phase.as_str(),
            (None, true) => "new",
        };
        let mut images: Vec<(&str, usize)> = Vec::new();
        for pod in &self.pods {
            match images.iter_mut().find(|(image, _)| *image == pod.image) {
                Some((_, count)) => *count += 1,
                None => images.push((&pod.image, 1)),
            }
        }
        let images: Vec<String> = images.iter().map(|(image, count)| format!("{count} × {image}")).collect();
        let rolled_back = if self.is_true("RolledBack") { ", rolled back" } else { "" };
        let pods = images.join(", ");
        format!("{phase:<9} {} of {} pods ready  {pods}{rolled_back}", self.ready, self.pods.len())
    }
}

fn pod(pod: &Pod) -> PodView {
    let status = pod.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    let container = status.container_statuses.unwrap_or_default().into_iter().next();
    let waiting = container.and_then(|container| container.state?.waiting?.reason);
    let image = pod.spec.as_ref().and_then(|spec| spec.containers.first()?.image.clone());
    PodView {
        name: pod.name_any(),
        image: image.unwrap_or_default(),
        ready,
        state: waiting.or(status.phase).unwrap_or_else(|| "Pending".to_owned()),
    }
}

fn scaling(autoscaler: &HorizontalPodAutoscaler) -> String {
    let status = autoscaler.status.clone().unwrap_or_default();
    let metrics = autoscaler.spec.metrics.iter().flatten();
    let goal = metrics.filter_map(|metric| metric.resource.as_ref()?.target.average_utilization).next();
    let goal = goal.map(|goal| format!(", goal {goal} %")).unwrap_or_default();
    let measured = status.current_metrics.iter().flatten().find_map(|metric| {
        let resource = metric.resource.as_ref()?;
        Some(format!("{} {} %{goal}", resource.name, resource.current.average_utilization?))
    });
    match measured {
        Some(measured) => format!("{measured}, wants {} pods", status.desired_replicas),
        None => "not measured yet".to_owned(),
    }
}

/// The last ones, oldest first.
fn last(mut events: Vec<Event>) -> Vec<(String, String)> {
    events.sort_by_key(|event| {
        event.last_timestamp.clone().or(event.first_timestamp.clone()).map(|time| time.0)
    });
    let from = events.len().saturating_sub(EVENTS);
    events
        .drain(from..)
        .map(|event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default()))
        .collect()
}
