//! Makes the cluster have the children that are wanted, and no others.
//!
//! A child is ours if this very Application controls it, or if nobody does and its labels say that it was made for an Application of
//! this name: one that was kept or orphaned. Everything else is somebody else's and not touched.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolumeClaim, PodTemplateSpec, Service, ServiceAccount,
};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use shoal_runtime::apply::status_code;
use shoal_runtime::{Applied, Context, Error, Object, ObjectKey, Result, owner};

use crate::Application;
use crate::api::{APP_LABEL, Child, MANAGED_BY_LABEL, OPERATOR, Retention};
use crate::build::{self, ReplicasFrom};
use crate::controller::Shared;
use crate::plan::{Choice, Note, Problem};

/// Holds the number of replicas while it goes from the specification to the autoscaler: a field that nobody holds is set to 1.
const HANDOVER: &str = "application-operator-handover";
/// An object of the name is in the way, or on its way out: nobody tells when it is gone.
const WAIT_FOR_NAME: Duration = Duration::from_secs(2);
/// What the server refuses it may accept later, when a quota has room or a role is there.
const WAIT_FOR_LEAVE: Duration = Duration::from_secs(30);

/// What is done for one Application, and what came of it.
pub(crate) struct Act<'a> {
    context: &'a Context<Application>,
    app: &'a Application,
    shared: &'a Shared,
    /// The children that are wanted.
    pub children: Vec<Child>,
    /// What people are told.
    pub notes: Vec<Note>,
    /// When to look again, if nothing happens before.
    pub again: Option<Duration>,
    taken: Vec<String>,
    refused: Vec<String>,
}

/// The children as they are after acting.
#[derive(Default)]
pub(crate) struct Children {
    pub deployment: Option<Arc<Deployment>>,
    pub service: Option<Arc<Service>>,
    pub autoscaler: Option<Arc<HorizontalPodAutoscaler>>,
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
}

/// Whether an object was made for this Application.
pub(crate) fn belongs(app: &Application, child: &ObjectMeta) -> bool {
    if owner::controller_of(child).is_some() {
        return owner::is_controlled_by(child, &app.metadata);
    }
    let label = |name: &str| child.labels.as_ref().and_then(|labels| labels.get(name)).map(String::as_str);
    label(MANAGED_BY_LABEL) == Some(OPERATOR) && label(APP_LABEL) == Some(build::name_of(app))
}

impl<'a> Act<'a> {
    pub fn new(context: &'a Context<Application>, app: &'a Application, shared: &'a Shared) -> Act<'a> {
        Act {
            context,
            app,
            shared,
            children: Vec::new(),
            notes: Vec::new(),
            again: None,
            taken: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// What is in the way, if anything.
    pub fn problem(&self) -> Option<Problem> {
        if !self.taken.is_empty() {
            let names = self.taken.join(", ");
            let remedy = "rename or delete it, or give the Application another name";
            return Some(Problem::new(
                "NameTaken",
                format!("{names} exists and belongs to somebody else: {remedy}"),
            ));
        }
        (!self.refused.is_empty()).then(|| Problem::new("Refused", self.refused.join("; ")))
    }

    /// Applies what is wanted and deletes what is not wanted any more.
    pub async fn run(&mut self, choice: &Choice, last_good: Option<&PodTemplateSpec>) -> Result<Children> {
        let app = self.app;
        self.account().await?;
        if let Some(files) = build::config_map(app) {
            self.apply(&files, true, false).await?;
        }
        let claims = self.claims().await?;
        let service = match build::service(app) {
            Some(service) => self.apply(&service, true, false).await?,
            None => None,
        };
        let autoscaler = build::autoscaler(app);
        if autoscaler.is_none() {
            // Before the number of replicas is taken back, or the two would fight over it.
            self.prune::<HorizontalPodAutoscaler>(&[]).await?;
        }
        let deployment = self.deployment(choice).await?;
        let autoscaler = match autoscaler {
            Some(autoscaler) => self.apply(&autoscaler, true, false).await?,
            None => None,
        };
        if let Some(budget) = build::budget(app) {
            self.apply(&budget, true, false).await?;
        }
        if let Some(ingress) = build::ingress(app) {
            self.apply(&ingress, true, false).await?;
        }
        if let Some(policy) = build::network_policy(app) {
            self.apply(&policy, true, false).await?;
        }
        self.prune_all(choice, last_good).await?;
        Ok(Children { deployment, service, autoscaler, claims })
    }

    /// Keeps the template that has worked.
    pub async fn keep(&self, revision: &str, template: &PodTemplateSpec) -> Result<()> {
        let kept = build::last_good(self.app, revision, template);
        let live = self.live::<ControllerRevision>(&ObjectKey::of(&kept)).await?;
        self.context.writer().apply_child(self.app, &kept, live.as_deref()).await.map(drop)
    }

    /// The object from the cache; if it is not there, from the server, because a cache may be late.
    async fn live<T: Object>(&self, key: &ObjectKey) -> Result<Option<Arc<T>>> {
        match self.context.lister::<T>().get(key) {
            Some(live) => Ok(Some(live)),
            None => Ok(self.context.writer().get::<T>(key).await?.map(Arc::new)),
        }
    }

    /// Applies a child; `None` if it is somebody else's, or cannot be had now. `expected`: that it changes is no surprise.
    async fn apply<T: Object>(&mut self, desired: &T, owned: bool, expected: bool) -> Result<Option<Arc<T>>> {
        let live = self.live::<T>(&ObjectKey::of(desired)).await?;
        self.apply_over(desired, live, owned, expected).await
    }

    async fn apply_over<T: Object>(
        &mut self,
        desired: &T,
        live: Option<Arc<T>>,
        owned: bool,
        expected: bool,
    ) -> Result<Option<Arc<T>>> {
        let (kind, name) = (T::kind(&()).into_owned(), desired.meta().name.clone().unwrap_or_default());
        self.children.push(Child { kind: kind.clone(), name: name.clone() });
        if let Some(live) = &live {
            if !belongs(self.app, live.meta()) {
                self.taken.push(format!("{kind} {name}"));
                self.again = Some(WAIT_FOR_NAME);
                return Ok(None);
            }
            if live.meta().deletion_timestamp.is_some() {
                self.again = Some(WAIT_FOR_NAME);
                return Ok(None);
            }
        }
        let writer = self.context.writer();
        let applied = match owned {
            true => writer.apply_child(self.app, desired, live.as_deref()).await,
            false => writer.apply(desired, live.as_deref()).await,
        };
        match applied {
            Ok(Applied::InEffect) => {
                if let Some(live) = &live {
                    self.shared.saw_old(self.context.key(), &kind, live.meta());
                }
                Ok(live)
            }
            Ok(Applied::Written(now)) => {
                self.tell(&kind, &name, live.as_deref().map(T::meta), now.meta(), expected);
                Ok(Some(Arc::new(*now)))
            }
            Err(error) if is_refusal(&error) => {
                self.refused.push(error.to_string());
                self.again.get_or_insert(WAIT_FOR_LEAVE);
                Ok(live)
            }
            Err(error) => Err(error),
        }
    }

    fn tell(
        &mut self,
        kind: &str,
        name: &str,
        before: Option<&ObjectMeta>,
        now: &ObjectMeta,
        expected: bool,
    ) {
        // A cache that is behind our own writes shows what was, and no drift.
        let stale = before.is_some_and(|before| self.shared.saw_old(self.context.key(), kind, before));
        if before.is_none_or(|before| before.resource_version != now.resource_version) {
            self.shared.applied(self.context.key(), kind, now);
        }
        let Some(before) = before else {
            self.shared.metrics.applied(kind);
            self.notes.push(Note::normal("Created", format!("Created {kind} {name}")));
            return;
        };
        // After a restart everything is applied once more; that changes nothing.
        if stale || before.resource_version == now.resource_version {
            return;
        }
        self.shared.metrics.applied(kind);
        let observed = self.app.status.as_ref().and_then(|status| status.observed_generation);
        if expected || observed != self.app.metadata.generation {
            self.notes.push(Note::normal("Updated", format!("Updated {kind} {name}")));
        } else {
            self.shared.metrics.drift(kind);
            let message = format!("{kind} {name} was changed by somebody else and is as wanted again");
            self.notes.push(Note::normal("DriftCorrected", message));
        }
    }

    /// The account is made if it is missing. One that somebody else made is used as it is.
    async fn account(&mut self) -> Result<()> {
        let Some(account) = build::service_account(self.app) else { return Ok(()) };
        let live = self.live::<ServiceAccount>(&ObjectKey::of(&account)).await?;
        if live.as_ref().is_some_and(|live| !owner::is_controlled_by(&live.metadata, &self.app.metadata)) {
            return Ok(());
        }
        self.apply_over(&account, live, true, false).await.map(drop)
    }

    async fn claims(&mut self) -> Result<Vec<Arc<PersistentVolumeClaim>>> {
        let mut claims = Vec::new();
        for entry in self.app.spec.claims() {
            let key = ObjectKey::of(&build::claim(self.app, entry, None));
            let live = self.live::<PersistentVolumeClaim>(&key).await?;
            let kept = live.as_ref().is_some_and(|live| belongs(self.app, &live.metadata))
                && self.app.status.is_none();
            let desired = build::claim(self.app, entry, live.as_deref());
            // What shall stay has no owner, or it would go with it.
            let owned = entry.retention == Retention::Delete;
            let claim = self.apply_over(&desired, live, owned, false).await?;
            if kept && claim.is_some() {
                let message = format!("Claim {} was kept and is used again, with what is on it", key.name);
                self.notes.push(Note::normal("VolumeReused", message));
            }
            claims.extend(claim);
        }
        Ok(claims)
    }

    async fn deployment(&mut self, choice: &Choice) -> Result<Option<Arc<Deployment>>> {
        let app = self.app;
        let key = ObjectKey::of(app);
        let mut live = self.live::<Deployment>(&key).await?;
        let within = |count: i32| match app.spec.active_scaling() {
            Some(scaling) => count.min(scaling.max_replicas).max(scaling.min_replicas),
            None => count,
        };
        let mut from = ReplicasFrom::Application(within(app.spec.replicas));
        let mut expected = false;
        if let Some(present) = live.clone().filter(|live| belongs(app, &live.metadata)) {
            let spec = present.spec.clone().unwrap_or_default();
            expected = build::revision_of(&spec.template) != Some(choice.applied.as_str());
            if app.spec.active_scaling().is_some() {
                let count = spec.replicas.unwrap_or(1);
                // The autoscaler does nothing at zero: it has to be given something to begin with.
                if !build::replicas_from(&present) || count == 0 {
                    let begin = within(if count == 0 { app.spec.replicas } else { count });
                    live = Some(Arc::new(self.hand_over(&present, begin).await?));
                    expected = true;
                }
                from = ReplicasFrom::Autoscaler;
            } else {
                expected |= build::replicas_from(&present);
            }
        }
        let desired = build::deployment(app, choice.template.clone(), from);
        let deployment = self.apply_over(&desired, live, true, expected).await?;
        if let (Some(_), ReplicasFrom::Application(_), Some(_)) =
            (&deployment, from, app.spec.active_scaling())
        {
            // Made with the first number of replicas; the next pass hands them over.
            self.again.get_or_insert(WAIT_FOR_NAME);
        }
        Ok(deployment)
    }

    /// Holds the number of replicas under another name, so that it stays when the field is given up.
    async fn hand_over(&self, live: &Deployment, replicas: i32) -> Result<Deployment> {
        let key = ObjectKey::of(live);
        let deployments: Api<Deployment> = Api::namespaced(self.context.client().clone(), &key.namespace);
        let body = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            // Only over what was seen: the autoscaler may have been here since.
            "metadata": {"name": &*key.name, "uid": live.metadata.uid, "resourceVersion": live.metadata.resource_version},
            "spec": {"replicas": replicas},
        });
        let params = PatchParams::apply(HANDOVER).force();
        Ok(deployments.patch(&key.name, &params, &Patch::Apply(&body)).await?)
    }

    async fn prune_all(&mut self, choice: &Choice, last_good: Option<&PodTemplateSpec>) -> Result<()> {
        let app = self.app;
        let wanted = self.children.clone();
        let of = |kind: &str| -> Vec<String> {
            wanted.iter().filter(|child| child.kind == kind).map(|child| child.name.clone()).collect()
        };
        self.prune::<Service>(&of("Service")).await?;
        self.prune::<PodDisruptionBudget>(&of("PodDisruptionBudget")).await?;
        self.prune::<Ingress>(&of("Ingress")).await?;
        self.prune::<NetworkPolicy>(&of("NetworkPolicy")).await?;
        let mut maps = of("ConfigMap");
        for template in [Some(&choice.template), last_good].into_iter().flatten() {
            maps.extend(build::config_maps_of(template).map(str::to_owned));
        }
        self.prune::<ConfigMap>(&maps).await?;
        let good = app.status.as_ref().and_then(|status| status.last_good_revision.as_deref());
        let kept: Vec<String> = good.iter().map(|good| build::revision_name(app, good)).collect();
        self.prune::<ControllerRevision>(&kept).await?;
        // A template that may be put back needs the account that it had.
        let mut accounts = of("ServiceAccount");
        for template in [Some(&choice.template), last_good].into_iter().flatten() {
            accounts.extend(template.spec.as_ref().and_then(|spec| spec.service_account_name.clone()));
        }
        let present = labelled::<ServiceAccount>(self.context, app);
        self.prune_of(present, &accounts).await?;
        let claims = labelled::<PersistentVolumeClaim>(self.context, app);
        self.prune_of(claims, &of("PersistentVolumeClaim")).await
    }

    async fn prune<T: Object>(&mut self, wanted: &[String]) -> Result<()> {
        let present = self.context.children::<T>();
        self.prune_of(present, wanted).await
    }

    async fn prune_of<T: Object>(&mut self, present: Vec<Arc<T>>, wanted: &[String]) -> Result<()> {
        let namespace = &self.context.key().namespace;
        let keys: Vec<ObjectKey> = wanted.iter().map(|name| ObjectKey::new(namespace, name)).collect();
        let gone: Vec<String> = present
            .iter()
            .filter(|child| owner::is_controlled_by(child.meta(), &self.app.metadata))
            .filter(|child| {
                child.meta().deletion_timestamp.is_none() && !keys.contains(&ObjectKey::of(&***child))
            })
            .filter_map(|child| child.meta().name.clone())
            .collect();
        if gone.is_empty() {
            return Ok(());
        }
        self.context.writer().prune(self.app, present, keys).await?;
        let kind = T::kind(&());
        // Old templates are no news.
        if kind != "ControllerRevision" {
            self.notes.push(Note::normal("Deleted", format!("Deleted {kind} {}", gone.join(", "))));
        }
        Ok(())
    }
}

/// The objects of the Application's namespace that are labelled as made for it, from the cache.
pub(crate) fn labelled<T: Object>(context: &Context<Application>, app: &Application) -> Vec<Arc<T>> {
    match shoal_objects::LabelSelector::parse(&build::selector_text(app)) {
        Ok(selector) => context.lister::<T>().select_in(&context.key().namespace, &selector),
        Err(_) => Vec::new(),
    }
}

/// Whether the server will not have it as it is, as opposed to not now.
fn is_refusal(error: &Error) -> bool {
    matches!(status_code(error), Some(400 | 403 | 422)) && !error.is_ordinary()
}
