//! Which objects a controller's owner has, takes, or lets go: by controlling owner and by selector.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector as Selector, ObjectMeta, OwnerReference};
use shoal_objects::selector::LabelSelector;
use shoal_runtime::cache::Encoded;
use shoal_runtime::controller::Listers;
use shoal_runtime::{Context, Object, ObjectKey, Result, Writer, owner};

/// What to do with an object that an owner might own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is the owner's.
    Keep,
    /// It is nobody's and matches: the owner takes it.
    Adopt,
    /// It is the owner's and matches no more: the owner lets it go.
    Release,
    /// It is none of the owner's business.
    Ignore,
}

/// What `owner`, which selects by `selector`, does about `object` of its own namespace.
pub fn claim(owner: &ObjectMeta, selector: &LabelSelector, object: &ObjectMeta) -> Claim {
    let matches = matches(selector, object);
    let owner_goes = owner.deletion_timestamp.is_some();
    match owner::controller_of(object) {
        Some(controller) if Some(&controller.uid) != owner.uid.as_ref() => Claim::Ignore,
        Some(_) if matches => Claim::Keep,
        Some(_) if owner_goes => Claim::Ignore,
        Some(_) => Claim::Release,
        None if !matches || owner_goes || object.deletion_timestamp.is_some() => Claim::Ignore,
        None => Claim::Adopt,
    }
}

/// What the reconciled object has and what it might take: its children, and objects of its namespace that match and
/// that nobody controls. `T` was named with `owns`.
pub fn candidates<K: Object, T: Object>(context: &Context<K>, selector: &LabelSelector) -> Vec<Arc<T>> {
    let mut candidates = context.children::<T>();
    let lister = context.lister::<T>();
    // Those that somebody controls are many and are not decoded.
    let matching = lister.select_metas(Some(&context.key().namespace), selector);
    let orphans = matching.iter().filter(|object| object.controller().is_none());
    candidates.extend(orphans.filter_map(|object| lister.decode(object)));
    candidates
}

/// What an owner has.
pub struct Owned<T> {
    /// Had before, and not decoded.
    pub kept: Vec<Arc<Encoded>>,
    /// Taken now: the cache shows it later.
    pub taken: Vec<Arc<T>>,
}

/// What `parent` owns, taken and let go as [`claim`] says, without decoding what simply stays. `T` was named with `owns`.
pub async fn owned<K: Object, T: Object>(
    context: &Context<K>,
    parent: &K,
    selector: &LabelSelector,
) -> Result<Owned<T>> {
    let lister = context.lister::<T>();
    let (kept, others): (Vec<_>, Vec<_>) = context
        .children_metas::<T>()
        .iter()
        .cloned()
        .partition(|child| child.matches(selector) && is_controlled_by(child, parent));
    let matching = lister.select_metas(Some(&context.key().namespace), selector);
    let orphans = matching.into_iter().filter(|object| object.controller().is_none());
    let unsettled: Vec<Arc<T>> =
        others.into_iter().chain(orphans).filter_map(|object| lister.decode(&object)).collect();
    let taken = settle(context.writer(), parent, selector, unsettled).await?;
    Ok(Owned { kept, taken })
}

fn is_controlled_by<K: Object>(object: &Encoded, parent: &K) -> bool {
    object.controller().is_some_and(|owner| parent.meta().uid.as_deref() == Some(&*owner.uid))
}

/// Objects of `K` whose selector matches an object that nobody controls.
pub fn who_might_adopt<K: Object>(
    object: &Encoded,
    listers: &Listers,
    selector_of: fn(&K) -> Option<&Selector>,
) -> Vec<ObjectKey> {
    if object.controller().is_some() {
        return Vec::new();
    }
    let wants =
        |parent: &Arc<K>| selector(selector_of(parent)).is_some_and(|selector| object.matches(&selector));
    let parents = listers.of::<K>().list_in(object.namespace());
    parents.iter().filter(|parent| wants(parent)).map(|parent| ObjectKey::of(&**parent)).collect()
}

/// The reference by which `parent` controls its children, which hold up its foreground deletion.
pub fn reference<K: Object>(parent: &K) -> Option<OwnerReference> {
    let reference = parent.controller_owner_ref(&())?;
    Some(OwnerReference { block_owner_deletion: Some(true), ..reference })
}

/// Takes and lets go as [`claim`] says; gives what `parent` owns now.
pub async fn settle<O: Object, T: Object>(
    writer: &Writer,
    parent: &O,
    selector: &LabelSelector,
    candidates: Vec<Arc<T>>,
) -> Result<Vec<Arc<T>>> {
    let mut owned = Vec::with_capacity(candidates.len());
    let mut may_adopt = None;
    for object in candidates {
        match claim(parent.meta(), selector, object.meta()) {
            Claim::Keep => owned.push(object),
            Claim::Ignore => {}
            Claim::Release => {
                let uid = parent.meta().uid.clone().unwrap_or_default();
                let release = |object: &mut T| {
                    let references = object.meta_mut().owner_references.take().unwrap_or_default();
                    let kept: Vec<_> =
                        references.into_iter().filter(|reference| reference.uid != uid).collect();
                    object.meta_mut().owner_references = (!kept.is_empty()).then_some(kept);
                };
                writer.modify(&ObjectKey::of(&*object), Some(&*object), release).await?;
            }
            Claim::Adopt => {
                // The cache may show an owner that is already gone.
                if may_adopt.is_none() {
                    let now = writer.get::<O>(&ObjectKey::of(parent)).await?;
                    may_adopt = Some(now.is_some_and(|now| {
                        now.meta().uid == parent.meta().uid && now.meta().deletion_timestamp.is_none()
                    }));
                }
                if may_adopt == Some(true) {
                    let mut taken = (*object).clone();
                    owner::set_controller(parent, &mut taken)?;
                    let references = taken.meta().owner_references.clone();
                    let adopt = |object: &mut T| object.meta_mut().owner_references.clone_from(&references);
                    if let Some(now) = writer.modify(&ObjectKey::of(&*object), Some(&*object), adopt).await? {
                        owned.push(Arc::new(now));
                    }
                }
            }
        }
    }
    Ok(owned)
}

/// Whether the labels of an object match.
pub fn matches(selector: &LabelSelector, object: &ObjectMeta) -> bool {
    selector.matches(|key| object.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str))
}

/// A selector as the API has it, ready for matching. An invalid or absent one matches nothing.
pub fn selector(selector: Option<&Selector>) -> Option<LabelSelector> {
    let selector = serde_json::to_value(selector?).ok()?;
    LabelSelector::from_object(Some(&selector)).ok().filter(|selector| !selector.is_everything())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn meta(value: Value) -> ObjectMeta {
        serde_json::from_value(value).unwrap()
    }

    fn by(uid: &str) -> Value {
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": uid, "controller": true}])
    }

    #[test]
    fn an_owner_keeps_adopts_and_releases_by_selector() {
        let owner = meta(json!({"uid": "1"}));
        let web =
            selector(Some(&serde_json::from_value(json!({"matchLabels": {"app": "web"}})).unwrap())).unwrap();
        let labels = json!({"app": "web"});
        for (object, expected) in [
            (json!({"labels": labels, "ownerReferences": by("1")}), Claim::Keep),
            (json!({"labels": {}, "ownerReferences": by("1")}), Claim::Release),
            (json!({"labels": labels}), Claim::Adopt),
            (json!({"labels": labels, "deletionTimestamp": "2024-01-01T00:00:00Z"}), Claim::Ignore),
            (json!({"labels": labels, "ownerReferences": by("2")}), Claim::Ignore),
            (json!({}), Claim::Ignore),
        ] {
            assert_eq!(claim(&owner, &web, &meta(object.clone())), expected, "{object}");
        }
        let dying = meta(json!({"uid": "1", "deletionTimestamp": "2024-01-01T00:00:00Z"}));
        assert_eq!(claim(&dying, &web, &meta(json!({"labels": labels}))), Claim::Ignore);
        assert_eq!(claim(&dying, &web, &meta(json!({"ownerReferences": by("1")}))), Claim::Ignore);
    }

    #[test]
    fn an_empty_selector_takes_nothing() {
        assert!(selector(Some(&Selector::default())).is_none());
        assert!(selector(None).is_none());
    }
}
