//! Owner references: who made an object, and who removes it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;

use crate::ObjectKey;
use crate::reconcile::{Error, Result};

/// The reference to the object's controlling owner.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|reference| reference.controller == Some(true))
}

/// Whether exactly this owner, not another one of its name, controls the object.
pub fn is_controlled_by(child: &ObjectMeta, owner: &ObjectMeta) -> bool {
    owner.uid.is_some() && controller_of(child).map(|reference| &reference.uid) == owner.uid.as_ref()
}

/// Makes `owner` the controlling owner of `child`.
///
/// Refused when another object controls the child already, and where the garbage collector would take the reference
/// for one to a missing object: across namespaces, or from a cluster-wide child to an owner in a namespace.
pub fn set_controller<O, T>(owner: &O, child: &mut T) -> Result<()>
where
    O: Resource<DynamicType = ()>,
    T: Resource<DynamicType = ()>,
{
    let (parent, this) = (ObjectKey::of(owner), ObjectKey::of(child));
    let refuse = |why: String| {
        let (kind, owner_kind) = (T::kind(&()), O::kind(&()));
        Error::permanent(format!("cannot make {owner_kind} {parent} the owner of {kind} {this}: {why}"))
    };
    let reference = owner
        .controller_owner_ref(&())
        .ok_or_else(|| refuse("the owner was not read from the cluster, it has no uid".to_owned()))?;
    if !parent.namespace.is_empty() && parent.namespace != this.namespace {
        return Err(refuse("an owner in a namespace can only own objects of that namespace".to_owned()));
    }
    let references = child.meta_mut().owner_references.get_or_insert_default();
    if let Some(other) =
        references.iter().find(|present| present.controller == Some(true) && present.uid != reference.uid)
    {
        let why = format!("{} {} controls it", other.kind, other.name);
        return Err(refuse(why));
    }
    match references.iter_mut().find(|present| present.uid == reference.uid) {
        Some(present) => {
            present.controller = Some(true);
            present.block_owner_deletion = Some(true);
        }
        None => references.push(OwnerReference { block_owner_deletion: Some(true), ..reference }),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};

    use super::*;

    fn map(namespace: &str, name: &str, uid: &str) -> ConfigMap {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectMeta::default()
        };
        ConfigMap { metadata, ..ConfigMap::default() }
    }

    fn secret(namespace: &str) -> Secret {
        let metadata = ObjectMeta {
            name: Some("s".to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        };
        Secret { metadata, ..Secret::default() }
    }

    #[test]
    fn an_owner_is_set_once_and_known_by_uid() {
        let (owner, mut child) = (map("a", "owner", "1"), secret("a"));
        set_controller(&owner, &mut child).unwrap();
        set_controller(&owner, &mut child).unwrap();
        assert_eq!(child.metadata.owner_references.as_ref().unwrap().len(), 1);
        assert!(is_controlled_by(&child.metadata, &owner.metadata));
        assert!(!is_controlled_by(&child.metadata, &map("a", "owner", "2").metadata));
        assert!(!is_controlled_by(&child.metadata, &ObjectMeta::default()));
    }

    #[test]
    fn a_second_controller_is_refused() {
        let mut child = secret("a");
        set_controller(&map("a", "first", "1"), &mut child).unwrap();
        let refused = set_controller(&map("a", "second", "2"), &mut child).unwrap_err().to_string();
        assert!(refused.contains("ConfigMap first controls it"), "{refused}");
    }

    #[test]
    fn references_that_the_garbage_collector_would_not_find_are_refused() {
        assert!(set_controller(&map("a", "owner", "1"), &mut secret("b")).is_err());
        assert!(set_controller(&map("a", "owner", "1"), &mut Namespace::default()).is_err());
        assert!(set_controller(&map("a", "owner", ""), &mut secret("a")).is_ok());
        let unread = ConfigMap {
            metadata: ObjectMeta { uid: None, ..map("a", "o", "").metadata },
            ..ConfigMap::default()
        };
        assert!(set_controller(&unread, &mut secret("a")).is_err());
    }
}
