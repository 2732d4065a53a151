//! ControllerRevisions: the templates that a StatefulSet or DaemonSet has and had.
//!
//! Their form is kubectl's too: `rollout history` and `rollout undo` read them and write them back as patches.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::{Value, json};
use shoal_runtime::apply::status_code;
use shoal_runtime::{Object, ObjectKey, Result, Writer};

use crate::claim;
use crate::deployment::sets::template_hash;

/// What makes a template the current one.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// It is already.
    Use(Arc<ControllerRevision>),
    /// It was once: it gets the next number.
    Renumber(Arc<ControllerRevision>, i64),
    /// It never was.
    Create(Box<ControllerRevision>),
}

/// The current template of an owner.
pub struct Current {
    /// Its revision.
    pub revision: Arc<ControllerRevision>,
    /// How often two templates wanted one name, by now.
    pub collisions: Option<i32>,
}

/// The template as a patch that gives it to its owner.
pub fn data(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).unwrap_or_default();
    if let Some(fields) = template.as_object_mut() {
        fields.insert("$patch".to_owned(), json!("replace"));
    }
    json!({"spec": {"template": template}})
}

/// The template that a revision holds.
pub fn template(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let template = revision.data.as_ref()?.0.pointer("/spec/template")?;
    serde_json::from_value(template.clone()).ok()
}

/// The part of a revision's name that is the template's.
pub fn hash<'a>(owner: &str, revision: &'a ControllerRevision) -> &'a str {
    let name = revision.metadata.name.as_deref().unwrap_or_default();
    name.strip_prefix(owner).and_then(|rest| rest.strip_prefix('-')).unwrap_or(name)
}

/// What makes `template` the current one of `owner`, which has had `known`. `label` is where its hash is told.
pub fn decide<K: Object>(
    owner: &K,
    template: &PodTemplateSpec,
    label: &str,
    known: &[Arc<ControllerRevision>],
    collisions: Option<i32>,
) -> Option<Step> {
    let data = data(template);
    let latest = known.iter().map(|revision| revision.revision).max().unwrap_or_default();
    let same = known.iter().filter(|revision| revision.data.as_ref().is_some_and(|own| own.0 == data));
    if let Some(found) = same.max_by_key(|revision| revision.revision) {
        return Some(match found.revision == latest {
            true => Step::Use(Arc::clone(found)),
            false => Step::Renumber(Arc::clone(found), latest + 1),
        });
    }
    let hash = template_hash(template, collisions);
    let mut labels = template.metadata.as_ref().and_then(|own| own.labels.clone()).unwrap_or_default();
    labels.insert(label.to_owned(), hash.clone());
    Some(Step::Create(Box::new(ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", owner.meta().name.as_deref()?)),
            namespace: owner.meta().namespace.clone(),
            labels: Some(labels),
            annotations: owner.meta().annotations.clone(),
            owner_references: Some(vec![claim::reference(owner)?]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision: latest + 1,
    })))
}

/// Does what [`decide`] says. A name that another template has is left, and the next one tried.
pub async fn settle<K: Object>(
    writer: &Writer,
    owner: &K,
    template: &PodTemplateSpec,
    label: &str,
    known: &[Arc<ControllerRevision>],
    mut collisions: Option<i32>,
) -> Result<Option<Current>> {
    loop {
        let Some(step) = decide(owner, template, label, known, collisions) else { return Ok(None) };
        let revision = match step {
            Step::Use(revision) => revision,
            Step::Renumber(revision, number) => {
                let key = ObjectKey::of(&*revision);
                let renumber = |revision: &mut ControllerRevision| revision.revision = number;
                match writer.modify(&key, Some(&*revision), renumber).await? {
                    Some(revision) => Arc::new(revision),
                    None => return Ok(None),
                }
            }
            Step::Create(revision) => match writer.create(&*revision).await {
                Ok(revision) => Arc::new(revision),
                Err(error) if status_code(&error) == Some(409) => {
                    let present = writer.get::<ControllerRevision>(&ObjectKey::of(&*revision)).await?;
                    match present {
                        // The cache is behind.
                        Some(present) if present.data == revision.data => Arc::new(present),
                        Some(_) => {
                            collisions = Some(collisions.unwrap_or_default().saturating_add(1));
                            continue;
                        }
                        None => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            },
        };
        return Ok(Some(Current { revision, collisions }));
    }
}

/// Revisions beyond the limit that no pod has, oldest first. `live` are names or hashes that are in use.
pub fn obsolete<'a>(
    owner: &str,
    known: &'a [Arc<ControllerRevision>],
    live: &BTreeSet<&str>,
    limit: usize,
) -> Vec<&'a ControllerRevision> {
    let is_live = |revision: &ControllerRevision| {
        let name = revision.metadata.name.as_deref().unwrap_or_default();
        live.contains(name) || live.contains(hash(owner, revision))
    };
    let mut idle: Vec<&ControllerRevision> =
        known.iter().map(AsRef::as_ref).filter(|revision| !is_live(revision)).collect();
    idle.sort_by_key(|revision| revision.revision);
    let surplus = idle.len().saturating_sub(limit);
    idle.truncate(surplus);
    idle
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::StatefulSet;

    use super::*;

    fn owner() -> StatefulSet {
        serde_json::from_value(json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": "db", "namespace": "a", "uid": "1"}}))
        .unwrap()
    }

    fn of(image: &str) -> PodTemplateSpec {
        let container = json!({"name": "c", "image": image});
        serde_json::from_value(json!({"metadata": {}, "spec": {"containers": [container]}})).unwrap()
    }

    fn made(template: &PodTemplateSpec, known: &[Arc<ControllerRevision>]) -> Arc<ControllerRevision> {
        match decide(&owner(), template, "hash", known, None) {
            Some(Step::Create(revision)) => Arc::new(*revision),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_template_that_comes_back_keeps_its_name_and_gets_the_next_number() {
        let first = made(&of("1"), &[]);
        assert_eq!(first.revision, 1);
        assert_eq!(template(&first), Some(of("1")));
        let known = [Arc::clone(&first), made(&of("2"), &[Arc::clone(&first)])];
        assert_eq!(known[1].revision, 2);
        let step = decide(&owner(), &of("2"), "hash", &known, None).unwrap();
        assert_eq!(step, Step::Use(Arc::clone(&known[1])));
        let back = decide(&owner(), &of("1"), "hash", &known, None).unwrap();
        assert_eq!(back, Step::Renumber(first, 3));
    }

    #[test]
    fn a_collision_changes_the_name() {
        let Some(Step::Create(other)) = decide(&owner(), &of("1"), "hash", &[], Some(1)) else { panic!() };
        assert_ne!(other.metadata.name, made(&of("1"), &[]).metadata.name);
    }

    #[test]
    fn history_beyond_the_limit_goes_unless_a_pod_has_it() {
        let mut known = Vec::new();
        for image in ["1", "2", "3", "4"] {
            known.push(made(&of(image), &known));
        }
        let first = hash("db", &known[0]).to_owned();
        let names = |gone: Vec<&ControllerRevision>| gone.iter().map(|r| r.revision).collect::<Vec<_>>();
        let live = BTreeSet::from([first.as_str()]);
        assert_eq!(names(obsolete("db", &known, &live, 1)), [2, 3]);
        assert_eq!(names(obsolete("db", &known, &BTreeSet::new(), 3)), [1]);
        assert!(obsolete("db", &known, &live, 9).is_empty());
    }
}
