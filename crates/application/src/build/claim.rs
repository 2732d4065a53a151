//! The PersistentVolumeClaims.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use shoal_objects::quantity::canonicalize;

use super::{metadata, name_of};
use crate::Application;
use crate::api::Claim;

/// Name of the claim for an entry of the specification.
pub fn claim_name(app: &Application, claim: &Claim) -> String {
    format!("{}-{}", name_of(app), claim.name)
}

/// The claim. `live` is the one that is there: one that was kept may be larger than what is asked for, and stays so.
pub fn claim(
    app: &Application,
    claim: &Claim,
    live: Option<&PersistentVolumeClaim>,
) -> PersistentVolumeClaim {
    let asked = canonicalize(&claim.size.0).unwrap_or_else(|_| claim.size.0.clone());
    let size =
        live.and_then(size_of).filter(|present| is_greater(&present.0, &asked)).unwrap_or(Quantity(asked));
    PersistentVolumeClaim {
        metadata: metadata(app, &claim_name(app, claim)),
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(claim.access_modes.clone()),
            storage_class_name: claim.storage_class_name.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_owned(), size)])),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

fn size_of(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage").cloned()
}

fn is_greater(a: &str, b: &str) -> bool {
    match (shoal_objects::Quantity::parse(a), shoal_objects::Quantity::parse(b)) {
        (Ok(a), Ok(b)) => a > b,
        _ => false,
    }
}
