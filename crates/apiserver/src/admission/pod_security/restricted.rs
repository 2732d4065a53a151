//! The restricted level: what good practice asks of pods beyond the baseline.

use serde_json::Value;

use super::baseline::{self, added_capabilities, has_own_users};
use super::findings::{Finding, containers, containers_with, distinct, named, quoted, setters};
use crate::kinds::access::{field, int_at, list_at, part, str_at};

const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// All that a pod's spec breaks of this level beyond the baseline.
pub fn check(spec: &Value) -> Vec<Finding> {
    // On Windows some of this has no meaning.
    let windows = str_at(part(spec, "os"), "name") == "windows";
    let mut found = Vec::new();
    if !windows {
        found.extend(privilege_escalation(spec));
        found.extend(capabilities(spec));
    }
    found.extend(volumes(spec));
    if !has_own_users(spec) {
        found.extend(run_as_non_root(spec));
        found.extend(run_as_user(spec));
    }
    if !windows {
        found.extend(seccomp(spec));
    }
    found
}

fn privilege_escalation(spec: &Value) -> Option<Finding> {
    let who = containers_with(spec, |c| field(c, "allowPrivilegeEscalation") != Some(&Value::Bool(false)));
    (!who.is_empty()).then(|| {
        let who = named("container", &who);
        let detail = format!("{who} must set securityContext.allowPrivilegeEscalation=false");
        Finding::new("allowPrivilegeEscalation != false", detail)
    })
}

fn capabilities(spec: &Value) -> Option<Finding> {
    let drops_all = |context: &Value| {
        list_at(part(context, "capabilities"), "drop").iter().any(|capability| capability == "ALL")
    };
    let keeping = containers_with(spec, |context| !drops_all(context));
    let mut details = Vec::new();
    if !keeping.is_empty() {
        let who = named("container", &keeping);
        details.push(format!("{who} must set securityContext.capabilities.drop=[\"ALL\"]"));
    }
    details.extend(added_capabilities(spec, &["NET_BIND_SERVICE"]));
    (!details.is_empty()).then(|| Finding::new("unrestricted capabilities", details.join("; ")))
}

fn volumes(spec: &Value) -> Option<Finding> {
    let source = |volume: &'_ Value| -> Option<String> {
        let members = volume.as_object()?;
        members.keys().find(|key| *key != "name" && !VOLUMES.contains(&key.as_str())).cloned()
    };
    let bad: Vec<(&str, String)> =
        list_at(spec, "volumes").iter().filter_map(|v| Some((str_at(v, "name"), source(v)?))).collect();
    if bad.is_empty() {
        return None;
    }
    let names: Vec<&str> = bad.iter().map(|(name, _)| *name).collect();
    let types = distinct(bad.iter().map(|(_, kind)| kind.as_str()).collect());
    let verb = if names.len() == 1 { "uses" } else { "use" };
    let plural = if types.len() == 1 { "" } else { "s" };
    let detail =
        format!("{} {verb} restricted volume type{plural} {}", named("volume", &names), quoted(&types));
    Some(Finding::new("restricted volume types", detail))
}

fn run_as_non_root(spec: &Value) -> Option<Finding> {
    const REASON: &str = "runAsNonRoot != true";
    let said = |context| field(context, "runAsNonRoot").and_then(Value::as_bool);
    let of_pod = said(part(spec, "securityContext"));
    let refusing = containers_with(spec, |context| said(context) == Some(false));
    if let Some(who) = setters(of_pod == Some(false), &refusing) {
        return Some(Finding::new(REASON, format!("{who} must not set securityContext.runAsNonRoot=false")));
    }
    let silent = containers_with(spec, |context| said(context).is_none() && of_pod != Some(true));
    (!silent.is_empty()).then(|| {
        let who = named("container", &silent);
        Finding::new(REASON, format!("pod or {who} must set securityContext.runAsNonRoot=true"))
    })
}

fn run_as_user(spec: &Value) -> Option<Finding> {
    let root = |context: &Value| int_at(context, "runAsUser") == Some(0);
    let who = setters(root(part(spec, "securityContext")), &containers_with(spec, root))?;
    Some(Finding::new("runAsUser=0", format!("{who} must not set runAsUser=0")))
}

fn seccomp(spec: &Value) -> Option<Finding> {
    if let Some(found) = baseline::seccomp(spec) {
        return Some(found);
    }
    let set = |context| field(context, "seccompProfile").is_some();
    if set(part(spec, "securityContext")) {
        return None;
    }
    let silent: Vec<&str> = containers(spec)
        .filter(|container| !set(part(container, "securityContext")))
        .map(|container| str_at(container, "name"))
        .collect();
    (!silent.is_empty()).then(|| {
        let who = named("container", &silent);
        let detail = format!(
            "pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""
        );
        Finding::new("seccompProfile", detail)
    })
}
