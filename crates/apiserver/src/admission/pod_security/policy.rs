//! The labels of a namespace, read.

use std::fmt;

use serde_json::Value;
use shoal_objects::meta;

const PREFIX: &str = "pod-security.kubernetes.io/";

/// How much freedom pods have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// All of it.
    #[default]
    Privileged,
    /// No known way to more privileges.
    Baseline,
    /// What is good practice.
    Restricted,
}

/// A level and the release whose idea of it is meant. All releases are judged as this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelVersion {
    /// The level.
    pub level: Level,
    version: String,
}

/// What a namespace asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Violations are refused.
    pub enforce: LevelVersion,
    /// Violations are noted in the audit log.
    pub audit: LevelVersion,
    /// Violations are warned of.
    pub warn: LevelVersion,
}

/// A label, its value and what is wrong with it.
pub type WrongLabel = (String, String, &'static str);

impl Default for LevelVersion {
    fn default() -> LevelVersion {
        LevelVersion { level: Level::Privileged, version: "latest".to_owned() }
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        write!(f, "{level}:{}", self.version)
    }
}

/// Whether the encoded namespace may have any of the labels.
pub fn is_labelled(encoded: &[u8]) -> bool {
    let wanted = PREFIX.as_bytes();
    encoded.windows(wanted.len()).any(|window| window == wanted)
}

impl Policy {
    /// Reads the labels of a namespace. What cannot be read counts as the strictest, except for privileges that were
    /// not asked for: a wrong `enforce` restricts.
    pub fn of(namespace: &Value) -> (Policy, Vec<WrongLabel>) {
        let mut wrong = Vec::new();
        let enforce = read(namespace, "enforce", Level::Restricted, &mut wrong);
        let audit = read(namespace, "audit", Level::Restricted, &mut wrong);
        let warn = read(namespace, "warn", Level::Restricted, &mut wrong);
        let enforced = enforce.unwrap_or_default();
        // What is enforced is also warned of, where nothing else is said.
        let policy = Policy {
            audit: audit.unwrap_or_else(|| enforced.clone()),
            warn: warn.unwrap_or_else(|| enforced.clone()),
            enforce: enforced,
        };
        (policy, wrong)
    }
}

fn read(namespace: &Value, mode: &str, fallback: Level, wrong: &mut Vec<WrongLabel>) -> Option<LevelVersion> {
    let label = format!("{PREFIX}{mode}");
    let version_label = format!("{label}-version");
    let version = meta::label(namespace, &version_label);
    let level = meta::label(namespace, &label).map(|text| match text {
        "privileged" => Level::Privileged,
        "baseline" => Level::Baseline,
        "restricted" => Level::Restricted,
        _ => {
            wrong.push((label.clone(), text.to_owned(), "must be one of privileged, baseline, restricted"));
            fallback
        }
    });
    let version_text = match version {
        Some(text) if is_version(text) => text,
        Some(text) => {
            wrong.push((version_label, text.to_owned(), "must be \"latest\" or \"v1.x\""));
            "latest"
        }
        None => "latest",
    };
    if level.is_none() && version.is_none() {
        return None;
    }
    Some(LevelVersion { level: level.unwrap_or_default(), version: version_text.to_owned() })
}

fn is_version(text: &str) -> bool {
    let minor = text.strip_prefix("v1.");
    let number = |m: &str| m.parse::<u16>().is_ok() && (m == "0" || !m.starts_with(['0', '+']));
    text == "latest" || minor.is_some_and(number)
}
