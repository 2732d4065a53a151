//! PodSecurity: namespaces say by labels how much freedom their pods have.

mod baseline;
mod findings;
mod policy;
mod restricted;

use serde_json::Value;
use shoal_objects::{Errors, Path, meta};
use shoal_store::Range;

use crate::handlers::{Call, served};
use crate::kinds::access::{at, list_at, part, str_at};
use crate::status::{Failure, Outcome};
use findings::Finding;
use policy::{Level, LevelVersion, Policy};

/// More pods of a namespace than these are not looked at when its level changes.
const MOST_PODS: usize = 3_000;

/// Refuses pods that their namespace forbids, warns of others, and checks the labels of namespaces.
pub async fn validate(call: &Call<'_>, object: &Value, old: Option<&Value>) -> Outcome<()> {
    let resource = &*call.target.resource;
    match (&*resource.group, &*resource.plural) {
        ("", "namespaces") => namespace(call, object, old).await,
        ("", "pods") => {
            if old.is_some_and(|old| !is_significant(object, old)) {
                return Ok(());
            }
            let policy = namespace_policy(call).await?;
            enforce(call, object, &policy)?;
            warn(call, object, &policy);
            Ok(())
        }
        _ => {
            let Some(template) = pod_template(&resource.group, &resource.plural, object) else {
                return Ok(());
            };
            // What makes pods is never refused: its pods are, when they come.
            warn(call, template, &namespace_policy(call).await?);
            Ok(())
        }
    }
}

/// The pods that an object will make.
fn pod_template<'a>(group: &str, plural: &str, object: &'a Value) -> Option<&'a Value> {
    match (group, plural) {
        ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
        | ("batch", "jobs")
        | ("", "replicationcontrollers") => at(object, &["spec", "template"]),
        ("batch", "cronjobs") => at(object, &["spec", "jobTemplate", "spec", "template"]),
        ("", "podtemplates") => at(object, &["template"]),
        _ => None,
    }
}

/// Whether the namespace says anything about its pods.
pub async fn is_on(call: &Call<'_>) -> bool {
    let registry = call.server.registry();
    let Some(namespaces) = registry.find("", "v1", "namespaces") else { return false };
    let found = call.server.store.get(&namespaces.table, &call.target.namespace).await;
    found.is_some_and(|found| policy::is_labelled(&found.value))
}

async fn namespace_policy(call: &Call<'_>) -> Outcome<Policy> {
    let registry = call.server.registry();
    let Some(namespaces) = registry.find("", "v1", "namespaces") else { return Ok(Policy::default()) };
    let found = call.server.store.get(&namespaces.table, &call.target.namespace).await;
    let Some(found) = found else { return Ok(Policy::default()) };
    // Most namespaces have no such label: no need to decode them.
    if !policy::is_labelled(&found.value) {
        return Ok(Policy::default());
    }
    Ok(Policy::of(&served(namespaces, &found)?).0)
}

fn enforce(call: &Call<'_>, pod: &Value, policy: &Policy) -> Outcome<()> {
    match violations(pod, &policy.enforce) {
        None => Ok(()),
        Some(found) => {
            let why = format!("violates PodSecurity \"{}\": {found}", policy.enforce);
            Err(Failure::forbidden(&call.target.resource, meta::name(pod), &why))
        }
    }
}

fn warn(call: &Call<'_>, pod: &Value, policy: &Policy) {
    if let Some(found) = violations(pod, &policy.audit) {
        call.annotate_audit(
            "pod-security.kubernetes.io/audit-violations",
            format!("would violate PodSecurity \"{}\": {found}", policy.audit),
        );
    }
    if let Some(found) = violations(pod, &policy.warn) {
        call.warn(format!("would violate PodSecurity \"{}\": {found}", policy.warn));
    }
}

/// What a pod (or template) does that this level forbids.
fn findings(pod: &Value, level: Level) -> Vec<Finding> {
    match level {
        Level::Privileged => Vec::new(),
        Level::Baseline => baseline::check(pod, false),
        Level::Restricted => {
            let mut found = baseline::check(pod, true);
            found.extend(restricted::check(part(pod, "spec")));
            found
        }
    }
}

fn violations(pod: &Value, level: &LevelVersion) -> Option<String> {
    let found = findings(pod, level.level);
    let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// Only a change of images or of the set of containers makes a pod less secure than it was.
fn is_significant(pod: &Value, old: &Value) -> bool {
    ["containers", "initContainers", "ephemeralContainers"].iter().any(|list| {
        let images = |pod| -> Vec<(String, String)> {
            let containers = list_at(part(pod, "spec"), list).iter();
            containers.map(|c| (str_at(c, "name").to_owned(), str_at(c, "image").to_owned())).collect()
        };
        images(pod) != images(old)
    })
}

/// Labels must make sense; a stricter level warns of the pods that are there.
async fn namespace(call: &Call<'_>, namespace: &Value, old: Option<&Value>) -> Outcome<()> {
    let resource = &*call.target.resource;
    let (policy, wrong) = Policy::of(namespace);
    let known = old.map(Policy::of).unwrap_or_default();
    if !wrong.is_empty() && wrong != known.1 {
        let mut errors = Errors::new();
        let path = Path::new("metadata");
        let path = path.child("labels");
        for (label, value, why) in &wrong {
            errors.invalid_str(&path.key(label), value, why);
        }
        return Err(Failure::invalid(&resource.group, &resource.kind, meta::name(namespace), &errors));
    }
    if old.is_some() && policy.enforce != known.0.enforce && policy.enforce.level > known.0.enforce.level {
        warn_of_pods(call, meta::name(namespace), &policy.enforce).await?;
    }
    Ok(())
}

async fn warn_of_pods(call: &Call<'_>, namespace: &str, enforce: &LevelVersion) -> Outcome<()> {
    let registry = call.server.registry();
    let Some(pods) = registry.find("", "v1", "pods") else { return Ok(()) };
    let listing = call.server.store.list(&pods.table, Range::Namespace(namespace), None, MOST_PODS).await;
    // Pods with the same faults are told together: the first by name, and how many more.
    let mut told: Vec<(String, String, usize)> = Vec::new();
    for stored in &listing.objects {
        let pod = served(pods, stored)?;
        let reasons: Vec<String> = findings(&pod, enforce.level).into_iter().map(|f| f.reason).collect();
        let reasons = reasons.join(", ");
        match told.iter_mut().find(|(known, _, _)| *known == reasons) {
            _ if reasons.is_empty() => {}
            Some((_, _, more)) => *more += 1,
            None => told.push((reasons, meta::name(&pod).to_owned(), 0)),
        }
    }
    if told.is_empty() {
        return Ok(());
    }
    call.warn(format!(
        "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{enforce}\""
    ));
    let mut texts: Vec<String> = told
        .into_iter()
        .map(|(reasons, pod, more)| match more {
            0 => format!("{pod}: {reasons}"),
            1 => format!("{pod} (and 1 other pod): {reasons}"),
            more => format!("{pod} (and {more} other pods): {reasons}"),
        })
        .collect();
    texts.sort_unstable();
    texts.into_iter().for_each(|text| call.warn(text));
    Ok(())
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tests read better with literals")]
mod tests;
