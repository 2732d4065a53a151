//! The kind `Application` of `apps.example.com/v1alpha1`.

mod crd;
mod install;
mod object;
pub mod rules;
mod schema;
mod spec;
mod status;

pub use crd::crd;
pub use install::{InstallError, install};
pub use object::Application;
pub use spec::{
    ApplicationSpec, Budget, Claim, ConfigFile, DeletionPolicy, HealthCheck, HttpGet, Ingress, LoadBalancer,
    Network, NetworkPolicy, Port, Probe, Retention, Rollback, Scaling, Security, SecurityContext,
    ServiceType, Storage, TcpSocket,
};
pub use status::{ApplicationStatus, Child, Phase};

/// The API group.
pub const GROUP: &str = "apps.example.com";
/// The version.
pub const VERSION: &str = "v1alpha1";
/// The kind.
pub const KIND: &str = "Application";
/// The plural, as in URLs.
pub const PLURAL: &str = "applications";
/// Keeps an Application until its children are dealt with.
pub const FINALIZER: &str = "apps.example.com/application";
/// Who owns the fields of children, and the value of the label [`MANAGED_BY_LABEL`].
pub const OPERATOR: &str = "application-operator";
/// Label of all children: whose they are.
pub const APP_LABEL: &str = "app";
/// Label of all children: who made them.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Label of pods: which template they were made of.
pub const REVISION_LABEL: &str = "apps.example.com/revision";
/// Annotation of the Deployment: who says how many replicas it has.
pub const REPLICAS_ANNOTATION: &str = "apps.example.com/replicas-from";
