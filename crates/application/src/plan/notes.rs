//! The events: told when something becomes so, never while it stays so.

use shoal_runtime::events::Severity;
use shoal_runtime::status::{condition, is_true};

use crate::api::{ApplicationStatus, Phase};

/// Something that people are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether someone should worry.
    pub severity: Severity,
    /// In a word.
    pub reason: &'static str,
    /// In a sentence.
    pub message: String,
}

impl Note {
    /// Something went as it should.
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Note {
        Note { severity: Severity::Normal, reason, message: message.into() }
    }

    /// Something needs attention.
    pub fn warning(reason: &'static str, message: impl Into<String>) -> Note {
        Note { severity: Severity::Warning, reason, message: message.into() }
    }
}

/// What has become so between two statuses.
pub fn notes(before: Option<&ApplicationStatus>, after: &ApplicationStatus) -> Vec<Note> {
    let empty = ApplicationStatus::default();
    let old = before.unwrap_or(&empty);
    let mut notes = Vec::new();
    if old.phase != after.phase {
        notes.extend(of_phase(old, after));
    }
    if !is_true(&old.conditions, "RolledBack") && is_true(&after.conditions, "RolledBack") {
        let why = after.failed_reason.as_deref().unwrap_or_default();
        let (failed, good) = (name(&after.failed_revision), name(&after.last_good_revision));
        let message = format!("Template {failed} failed ({why}); template {good} is put back");
        notes.push(Note::warning("RolledBack", message));
    }
    notes.extend(of_health(old, after));
    notes.extend(of_detail(old, after, "AutoscalerReady", "AutoscalerFailing", "AutoscalerReady"));
    notes.extend(of_detail(old, after, "StorageReady", "StoragePending", "StorageReady"));
    notes
}

fn name(revision: &Option<String>) -> &str {
    revision.as_deref().unwrap_or("none")
}

fn of_phase(old: &ApplicationStatus, after: &ApplicationStatus) -> Vec<Note> {
    let Some(phase) = after.phase else { return Vec::new() };
    let image = after.image.as_deref().unwrap_or("its image");
    let (was, now) = (old.settled_replicas.unwrap_or_default(), after.desired_replicas);
    let by = if after.scaling.is_some() { "the autoscaler" } else { "the specification" };
    let mut notes = Vec::new();
    if old.phase == Some(Phase::Paused) {
        notes.push(Note::normal("Resumed", "It is looked after again"));
    }
    if (old.phase == Some(Phase::Failed) || old.recovering)
        && matches!(phase, Phase::Running | Phase::Suspended)
    {
        notes.push(Note::normal("Recovered", "It works again"));
    }
    notes.extend(match (old.phase, phase) {
        (_, Phase::Creating) if old.phase.is_none() => {
            Some(Note::normal("Creating", "Its children are being made"))
        }
        (Some(Phase::Creating) | None, Phase::Running) => {
            Some(Note::normal("Running", format!("{} of {now} pods are ready", after.ready_replicas)))
        }
        (_, Phase::Updating) => {
            let revision = name(&after.current_revision);
            Some(Note::normal(
                "RolloutStarted",
                format!("Pods of {image} (template {revision}) replace the old ones"),
            ))
        }
        (Some(Phase::Updating), Phase::Running) => {
            Some(Note::normal("RolloutComplete", format!("All {now} pods are of {image}")))
        }
        (_, Phase::Scaling) => {
            Some(Note::normal("ScalingStarted", format!("From {was} to {now} pods, as {by} says")))
        }
        (Some(Phase::Scaling), Phase::Running) => {
            Some(Note::normal("ScalingComplete", format!("There are {now} pods")))
        }
        (_, Phase::Failed) => {
            let stalled = condition(&after.conditions, "Stalled");
            let (reason, why) =
                stalled.map_or(("", ""), |stalled| (stalled.reason.as_str(), stalled.message.as_str()));
            match reason {
                // Told by itself.
                "RolledBack" => None,
                "InvalidSpec" => Some(Note::warning("ValidationFailed", why)),
                "NameTaken" => Some(Note::warning("NameTaken", why)),
                "VolumeLost" => Some(Note::warning("StorageLost", why)),
                "Refused" => Some(Note::warning("ApplyRefused", why)),
                _ => Some(Note::warning("RolloutFailed", why)),
            }
        }
        (_, Phase::Suspended) => Some(Note::normal("Suspended", "There are no pods, as asked")),
        (_, Phase::Paused) => Some(Note::normal("Paused", "It is left alone, as asked")),
        (_, Phase::Deleting) => Some(Note::normal("Deleting", "Its children are being dealt with")),
        _ => None,
    });
    notes
}

/// Pods of a running application that become ready or cease to be.
fn of_health(old: &ApplicationStatus, after: &ApplicationStatus) -> Option<Note> {
    if old.phase != Some(Phase::Running) || after.phase != Some(Phase::Running) {
        return None;
    }
    let healthy = |status: &ApplicationStatus| is_true(&status.conditions, "Ready");
    let counts = format!("{} of {} pods are ready", after.ready_replicas, after.desired_replicas);
    match (healthy(old), healthy(after)) {
        (true, false) => Some(Note::warning("Unhealthy", counts)),
        (false, true) => Some(Note::normal("Healthy", counts)),
        _ => None,
    }
}

fn of_detail(
    old: &ApplicationStatus,
    after: &ApplicationStatus,
    type_: &str,
    bad: &'static str,
    good: &'static str,
) -> Option<Note> {
    let now = condition(&after.conditions, type_)?;
    let before = condition(&old.conditions, type_).map(|condition| condition.status.as_str());
    match (before, now.status.as_str()) {
        (Some("True"), "False") => Some(Note::warning(bad, now.message.clone())),
        (Some("False"), "True") => Some(Note::normal(good, now.message.clone())),
        _ => None,
    }
}
