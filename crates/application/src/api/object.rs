//! An Application as an object of the API.

use std::borrow::Cow;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{ApplicationSpec, ApplicationStatus, DeletionPolicy, GROUP, KIND, PLURAL, VERSION};

/// A program that runs in the cluster, with everything around it.
///
/// Reading never fails on the specification: one that was stored before the schema became stricter still is an Application, with
/// [`Application::malformed`] saying what is wrong.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Application {
    /// Name, namespace, labels.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: ApplicationSpec,
    /// What is.
    pub status: Option<ApplicationStatus>,
    /// Why the stored specification cannot be read; `spec` is then empty.
    pub malformed: Option<String>,
}

impl Application {
    /// A new Application.
    pub fn new(name: &str, spec: ApplicationSpec) -> Application {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        Application { metadata, spec, ..Application::default() }
    }
}

impl Resource for Application {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Serialize for Application {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = 4 + usize::from(self.status.is_some());
        let mut object = serializer.serialize_struct(KIND, fields)?;
        object.serialize_field("apiVersion", &Self::api_version(&()))?;
        object.serialize_field("kind", KIND)?;
        object.serialize_field("metadata", &self.metadata)?;
        object.serialize_field("spec", &self.spec)?;
        if let Some(status) = &self.status {
            object.serialize_field("status", status)?;
        }
        object.end()
    }
}

impl<'de> Deserialize<'de> for Application {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Application, D::Error> {
        #[derive(Deserialize)]
        struct Read {
            #[serde(default)]
            metadata: ObjectMeta,
            #[serde(default)]
            spec: Value,
            #[serde(default)]
            status: Value,
        }
        let Read { metadata, spec, status } = Read::deserialize(deserializer)?;
        let (spec, malformed) = match ApplicationSpec::deserialize(&spec) {
            Ok(spec) => (spec, None),
            Err(error) => {
                // What is deleted with it must not depend on whether the rest can be read.
                let deletion_policy =
                    DeletionPolicy::deserialize(&spec["deletionPolicy"]).unwrap_or_default();
                (ApplicationSpec { deletion_policy, ..ApplicationSpec::default() }, Some(error.to_string()))
            }
        };
        // A status that somebody has broken is worked out anew.
        let status = Option::<ApplicationStatus>::deserialize(&status).unwrap_or_default();
        Ok(Application { metadata, spec, status, malformed })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whatever_is_stored_is_an_application() {
        for spec in [json!(null), json!(7), json!({"image": 7}), json!({"image": "a", "scaling": {}})] {
            let read: Application =
                serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec, "status": "?"}))
                    .unwrap();
            assert!(read.malformed.is_some(), "{spec}");
            assert_eq!(read.metadata.name.as_deref(), Some("a"));
        }
        let read: Application = serde_json::from_value(json!({"spec": {"image": "a"}})).unwrap();
        assert_eq!((read.malformed, read.spec.replicas), (None, 1));
    }

    #[test]
    fn an_application_is_written_as_it_is_read() {
        let text = json!({
            "apiVersion": "apps.example.com/v1alpha1", "kind": "Application",
            "metadata": {"name": "a"},
            "spec": {
                "replicas": 3, "image": "nginx", "port": 80,
                "scaling": {"minReplicas": 2, "maxReplicas": 10, "targetCPUUtilizationPercentage": 70},
                "healthCheck": {"livenessProbe": {"httpGet": {"path": "/", "port": 80}}},
                "progressDeadlineSeconds": 600, "minReadySeconds": 0, "revisionHistoryLimit": 10,
                "rollback": {"enabled": true, "crashLoopRestarts": 3}, "deletionPolicy": "Delete"
            },
        });
        let read: Application = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(read.malformed, None);
        assert_eq!(serde_json::to_value(&read).unwrap(), text);
    }
}
