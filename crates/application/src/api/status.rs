//! What is, as far as the operator has seen.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

/// What is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApplicationStatus {
    /// In a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The generation of the specification that all of this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Pods that exist.
    pub replicas: i32,
    /// Pods that are ready.
    pub ready_replicas: i32,
    /// Pods of the current template.
    pub updated_replicas: i32,
    /// Pods that have been ready for long enough.
    pub available_replicas: i32,
    /// Pods that are wanted.
    pub desired_replicas: i32,
    /// Pods there were when last all was as wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_replicas: Option<i32>,
    /// Ready and wanted, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ready: String,
    /// Fewest and most pods of automatic scaling, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<String>,
    /// The label selector of the pods.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// Where it is reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The image that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The template that is rolled out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<String>,
    /// The last template that worked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_good_revision: Option<String>,
    /// The template that failed, not tried again until the specification changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_revision: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_reason: Option<String>,
    /// It had failed, and is on its way to run again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub recovering: bool,
    /// Details.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The objects that were made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Child>,
}

/// How an Application is, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// It has never run.
    Creating,
    /// All is as wanted.
    Running,
    /// The number of pods changes.
    Scaling,
    /// Pods are replaced by ones of a new template.
    Updating,
    /// It does not go on without help.
    Failed,
    /// No pods are wanted.
    Suspended,
    /// Left alone, as asked.
    Paused,
    /// On its way out.
    Deleting,
}

impl Phase {
    /// All phases.
    pub const ALL: [Phase; 8] = [
        Phase::Creating,
        Phase::Running,
        Phase::Scaling,
        Phase::Updating,
        Phase::Failed,
        Phase::Suspended,
        Phase::Paused,
        Phase::Deleting,
    ];

    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Creating => "Creating",
            Phase::Running => "Running",
            Phase::Scaling => "Scaling",
            Phase::Updating => "Updating",
            Phase::Failed => "Failed",
            Phase::Suspended => "Suspended",
            Phase::Paused => "Paused",
            Phase::Deleting => "Deleting",
        }
    }
}

/// An object that was made for the Application.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Child {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}
