//! What an update may change in a pod, and its subresources `ephemeralcontainers` and `resize`.

use serde_json::{Value, json};
use shoal_objects::{Errors, Path};

use super::containers::{InPod, validate_ephemeral};
use super::qos::qos_class;
use super::scheduling::validate_tolerations;
use super::volumes::validate_volumes;
use crate::kinds::access::{
    carry_over, child_mut, existing_mut, field, int_at, list_at, list_mut, part, remove, set, str_at,
};

const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Checks the change of a pod.
pub fn validate_pod_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (new, old) = (part(new, "spec"), part(old, "spec"));
    if new == old {
        return;
    }
    let path = Path::new("spec");
    for list in ["containers", "initContainers"] {
        if list_at(new, list).len() != list_at(old, list).len() {
            errors.forbidden(&path.child(list), "pod updates may not add or remove containers");
            return;
        }
    }
    if !deadline_may_change(new, old, &path, errors) {
        return;
    }
    only_added_tolerations(new, old, &path.child("tolerations"), errors);
    for gate in list_at(new, "schedulingGates") {
        if !list_at(old, "schedulingGates").contains(gate) {
            let name = str_at(gate, "name");
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&path.child("schedulingGates"), &detail);
        }
    }
    let munged = undo_allowed_changes(new, old, &path, errors);
    if &munged != old {
        errors.forbidden(&path, &format!("{UPDATABLE}\n{}", difference(old, &munged)));
    }
}

/// A deadline can come or shrink. False when it does something else.
fn deadline_may_change(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) -> bool {
    let name = "activeDeadlineSeconds";
    match (int_at(new, name), int_at(old, name)) {
        (Some(now), Some(before)) if now > before => {
            let detail = "must be less than or equal to previous value";
            errors.invalid(&path.child(name), &json!(now), detail);
            false
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            errors.invalid(&path.child(name), &Value::Null, detail);
            true
        }
        _ => true,
    }
}

fn only_added_tolerations(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (new, old) = (list_at(new, "tolerations"), list_at(old, "tolerations"));
    let same = |a: &Value, b: &Value| {
        ["key", "operator", "value", "effect"].iter().all(|name| str_at(a, name) == str_at(b, name))
    };
    if old.iter().any(|old| !new.iter().any(|new| same(new, old))) {
        errors.forbidden(path, "existing toleration can not be modified except its tolerationSeconds");
        return;
    }
    validate_tolerations(new, path, errors);
}

/// The new spec with everything that may change put back.
fn undo_allowed_changes(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) -> Value {
    let mut munged = new.clone();
    for list in ["containers", "initContainers"] {
        for (container, before) in list_mut(&mut munged, list).iter_mut().zip(list_at(old, list)) {
            carry_over(container, before, "image");
        }
    }
    for name in ["schedulingGates", "tolerations", "activeDeadlineSeconds"] {
        carry_over(&mut munged, old, name);
    }
    let grace = "terminationGracePeriodSeconds";
    if int_at(old, grace).is_some_and(|n| n < 0) && int_at(new, grace) == Some(1) {
        carry_over(&mut munged, old, grace);
    }
    if !list_at(old, "schedulingGates").is_empty() {
        undo_gated_changes(&mut munged, old, path, errors);
    }
    munged
}

/// A gated pod's node selector and affinity may become narrower.
fn undo_gated_changes(munged: &mut Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let selector =
        |spec: &Value| spec.get("nodeSelector").and_then(Value::as_object).cloned().unwrap_or_default();
    let now = selector(munged);
    if selector(old).iter().any(|(key, value)| now.get(key) != Some(value)) {
        errors.invalid(&path.child("nodeSelector"), &json!(now), "only additions are allowed");
    }
    carry_over(munged, old, "nodeSelector");
    let affinity = |spec: &Value| spec.pointer("/affinity/nodeAffinity").cloned();
    if affinity(munged) != affinity(old) {
        let terms = "/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        let before = affinity(old).and_then(|a| a.pointer(terms).cloned());
        let after = affinity(munged).and_then(|a| a.pointer(terms).cloned());
        if !only_narrower(before.as_ref(), after.as_ref()) {
            let path = path.child("affinity");
            let path = path.child("nodeAffinity");
            let path = path.child("requiredDuringSchedulingIgnoredDuringExecution");
            let value = after.unwrap_or(Value::Null);
            errors.invalid(&path.child("nodeSelectorTerms"), &value, "only additions are allowed");
        }
        match affinity(old) {
            Some(before) => {
                if let Some(affinity) = child_mut(munged, "affinity") {
                    set(affinity, "nodeAffinity", before);
                }
            }
            None => carry_over(munged, old, "affinity"),
        }
    }
}

/// As many terms as before, each with at least the requirements it had; without terms before, anything goes.
fn only_narrower(before: Option<&Value>, after: Option<&Value>) -> bool {
    let Some(before) = before.and_then(Value::as_array) else { return true };
    let after = after.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    before.len() == after.len()
        && before.iter().zip(after).all(|(before, after)| {
            ["matchExpressions", "matchFields"].iter().all(|list| {
                let kept = list_at(before, list);
                list_at(after, list).get(..kept.len()) == Some(kept)
            })
        })
}

/// The lines that differ with three lines around them. Enough to see what changed; not a minimal diff.
fn difference(old: &Value, new: &Value) -> String {
    let (old, new) = (format!("{old:#}"), format!("{new:#}"));
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let shorter = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count().min(shorter);
    let start = head.saturating_sub(3);
    let end = (old.len() - tail + 3).min(old.len());
    let (old_count, new_count) = (end - start, end + new.len() - old.len() - start);
    let mut text = format!("@@ -{0},{old_count} +{0},{new_count} @@\n", start + 1);
    let mut line = |sign: char, content: &str| {
        text.push(sign);
        text.push_str(content);
        text.push('\n');
    };
    old[start..head].iter().for_each(|l| line(' ', l));
    old[head..old.len() - tail].iter().for_each(|l| line('-', l));
    new[head..new.len() - tail].iter().for_each(|l| line('+', l));
    old[old.len() - tail..end].iter().for_each(|l| line(' ', l));
    text
}

/// `ephemeralcontainers`: takes the ephemeral containers of `new`, everything else of `old`.
pub fn prepare_ephemeral_containers(new: &mut Value, old: &Value) {
    let given = field(new, "spec").and_then(|s| field(s, "ephemeralContainers")).cloned();
    let mut pod = old.clone();
    if let Some(spec) = child_mut(&mut pod, "spec") {
        match given {
            Some(given) => set(spec, "ephemeralContainers", given),
            None => {
                remove(spec, "ephemeralContainers");
            }
        }
    }
    *new = pod;
}

/// `ephemeralcontainers`: they can be added, never changed or removed.
pub fn validate_ephemeral_containers_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (new, old) = (part(new, "spec"), part(old, "spec"));
    let path = Path::new("spec");
    let list = path.child("ephemeralContainers");
    let volumes = validate_volumes(new, &path.child("volumes"), &mut Errors::new());
    validate_ephemeral(&InPod { spec: new, volumes: &volumes, claims: &[] }, &list, errors);
    for before in list_at(old, "ephemeralContainers") {
        let name = str_at(before, "name");
        match list_at(new, "ephemeralContainers").iter().find(|c| str_at(c, "name") == name) {
            None => {
                errors.forbidden(
                    &list,
                    &format!("existing ephemeral containers {name:?} may not be removed\n"),
                );
            }
            Some(after) if after != before => {
                let diff = difference(before, after);
                let detail = format!("existing ephemeral containers {name:?} may not be changed\n{diff}");
                errors.forbidden(&list, &detail);
            }
            Some(_) => {}
        }
    }
}

/// `resize`: takes the resources and resize policies of `new`, everything else of `old`.
pub fn prepare_resize(new: &mut Value, old: &Value) {
    let mut pod = old.clone();
    if let (Some(from), Some(to)) = (field(new, "spec"), existing_mut(&mut pod, "spec")) {
        for list in ["containers", "initContainers"] {
            for (container, given) in list_mut(to, list).iter_mut().zip(list_at(from, list)) {
                if str_at(container, "name") == str_at(given, "name") {
                    carry_over(container, given, "resources");
                    carry_over(container, given, "resizePolicy");
                }
            }
        }
    }
    *new = pod;
}

/// `resize`: cpu and memory may change, as long as the class of the pod does not.
pub fn validate_resize(new: &Value, old: &Value, errors: &mut Errors) {
    let (new, old) = (part(new, "spec"), part(old, "spec"));
    let path = Path::new("spec");
    if qos_class(new) != qos_class(old) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.invalid_str(&path, qos_class(new), detail);
    }
    for list in ["containers", "initContainers"] {
        for (i, (after, before)) in list_at(new, list).iter().zip(list_at(old, list)).enumerate() {
            let path = path.child(list);
            let path = path.index(i);
            validate_container_resize(after, before, &path.child("resources"), errors);
        }
    }
}

fn validate_container_resize(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    for list in ["requests", "limits"] {
        let of = |container: &Value| {
            container
                .get("resources")
                .and_then(|r| r.get(list))
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default()
        };
        let (mut after, mut before) = (of(new), of(old));
        for name in ["cpu", "memory"] {
            let (after, before) = (after.remove(name), before.remove(name));
            if before.is_some() && after.is_none() {
                errors.forbidden(&path.child(list), &format!("resource {list} cannot be removed"));
            }
        }
        if after != before {
            errors.forbidden(&path.child(list), "only cpu and memory resources are mutable");
        }
    }
}
