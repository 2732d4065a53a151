//! Who owns whom, over all kinds, and what follows when an owner goes.
//!
//! The graph is fed from watches and can lag behind the cluster. It only proposes: before an object is deleted for
//! want of an owner, the controller asks the server whether that owner is really gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use shoal_runtime::ObjectKey;

/// Holds an owner until its blocking dependents are gone.
pub const FOREGROUND: &str = "foregroundDeletion";
/// Holds an owner until its dependents have forgotten it.
pub const ORPHAN: &str = "orphan";

/// A kind, by group, version and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KindRef {
    /// `apps/v1` or `v1`.
    pub api_version: String,
    /// `Deployment`.
    pub kind: String,
}

/// An object of any kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// What it is.
    pub kind: Arc<KindRef>,
    /// Where it is.
    pub key: ObjectKey,
    /// Which one it is.
    pub uid: Arc<str>,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.kind, self.key)
    }
}

struct Node {
    identity: Identity,
    owners: Vec<OwnerReference>,
    deleting: bool,
    foreground: bool,
    orphan: bool,
}

/// What is to be done about one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Nothing.
    Keep,
    /// All its owners are gone: it goes too, with this policy.
    Delete(Policy),
    /// Some owners are gone and some are not: these references are removed.
    Forget(Vec<String>),
    /// It waits for dependents, and there are none left: the finalizer goes.
    Finish,
    /// Its dependents forget it, then the finalizer goes.
    Orphan(Vec<Identity>),
}

/// What happens to the dependents of an object that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// They go afterwards.
    Background,
    /// They go first.
    Foreground,
    /// They stay.
    Orphan,
}

/// The graph of owners and dependents.
#[derive(Default)]
pub struct Graph {
    nodes: BTreeMap<Arc<str>, Node>,
    /// Dependents by the uid of an owner, whether that owner has been seen or not.
    dependents: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Uids that the server says do not exist.
    absent: BTreeSet<Arc<str>>,
}

impl Graph {
    /// An object exists, so. Gives the objects that must be looked at now.
    pub fn observe(&mut self, kind: &Arc<KindRef>, meta: &ObjectMeta) -> Vec<Identity> {
        let (Some(uid), Some(name)) = (meta.uid.as_deref(), meta.name.as_deref()) else { return Vec::new() };
        let uid: Arc<str> = uid.into();
        let key = ObjectKey::new(meta.namespace.as_deref().unwrap_or_default(), name);
        let has = |finalizer: &str| meta.finalizers.iter().flatten().any(|present| present == finalizer);
        let node = Node {
            identity: Identity { kind: Arc::clone(kind), key, uid: Arc::clone(&uid) },
            owners: meta.owner_references.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            foreground: meta.deletion_timestamp.is_some() && has(FOREGROUND),
            orphan: meta.deletion_timestamp.is_some() && has(ORPHAN),
        };
        self.absent.remove(&uid);
        let before = self.nodes.get(&uid);
        let lost: Vec<Arc<str>> = before
            .iter()
            .flat_map(|before| &before.owners)
            .filter(|owner| node.owners.iter().all(|still| still.uid != owner.uid))
            .map(|owner| owner.uid.as_str().into())
            .collect();
        let was_foreground = before.is_some_and(|before| before.foreground);
        for owner in &lost {
            if let Some(set) = self.dependents.get_mut(owner) {
                set.remove(&uid);
            }
        }
        for owner in &node.owners {
            self.dependents.entry(owner.uid.as_str().into()).or_default().insert(Arc::clone(&uid));
        }
        let mut look = Vec::new();
        if !node.owners.is_empty() || node.foreground || node.orphan {
            look.push(node.identity.clone());
        }
        // Owners that wait for their dependents count again.
        for owner in lost.iter().cloned().chain(node.owners.iter().map(|owner| owner.uid.as_str().into())) {
            look.extend(
                self.nodes.get(&owner).filter(|owner| owner.foreground).map(|owner| owner.identity.clone()),
            );
        }
        let begins = node.foreground && !was_foreground;
        self.nodes.insert(Arc::clone(&uid), node);
        if begins {
            look.extend(self.dependents_of(&uid));
        }
        look
    }

    /// An object is gone. Gives the objects that must be looked at now.
    pub fn remove(&mut self, uid: &str) -> Vec<Identity> {
        let Some(node) = self.nodes.remove(uid) else { return Vec::new() };
        let uid = node.identity.uid;
        self.absent.insert(Arc::clone(&uid));
        let mut look = self.dependents_of(&uid);
        for owner in &node.owners {
            let owner_uid: Arc<str> = owner.uid.as_str().into();
            if let Some(set) = self.dependents.get_mut(&owner_uid) {
                set.remove(&uid);
                if set.is_empty() {
                    self.dependents.remove(&owner_uid);
                    self.absent.remove(&owner_uid);
                }
            }
            look.extend(
                self.nodes
                    .get(&owner_uid)
                    .filter(|owner| owner.foreground)
                    .map(|owner| owner.identity.clone()),
            );
        }
        // Nobody refers to it: there is no need to remember that it is gone.
        if !self.dependents.contains_key(&uid) {
            self.absent.remove(&uid);
        }
        look
    }

    /// The server says that this owner does not exist.
    pub fn owner_is_absent(&mut self, uid: &str) {
        if !self.nodes.contains_key(uid) {
            self.absent.insert(uid.into());
        }
    }

    /// Owners of this object that nobody has seen: the server must be asked about them before anything is decided.
    pub fn unknown_owners(&self, uid: &str) -> Vec<OwnerReference> {
        let Some(node) = self.nodes.get(uid) else { return Vec::new() };
        let known = |owner: &OwnerReference| {
            self.nodes.contains_key(owner.uid.as_str()) || self.absent.contains(owner.uid.as_str())
        };
        node.owners.iter().filter(|owner| !known(owner)).cloned().collect()
    }

    /// What to do about this object, once all its owners are known.
    pub fn decide(&self, uid: &str) -> Decision {
        let Some(node) = self.nodes.get(uid) else { return Decision::Keep };
        if node.orphan {
            return Decision::Orphan(self.dependents_of(&node.identity.uid));
        }
        if node.foreground {
            return if self.blocking(&node.identity.uid).next().is_none() {
                Decision::Finish
            } else {
                Decision::Keep
            };
        }
        if node.deleting || node.owners.is_empty() {
            return Decision::Keep;
        }
        let (mut solid, mut gone, mut going) = (0, Vec::new(), false);
        for owner in &node.owners {
            match self.nodes.get(owner.uid.as_str()) {
                // The same uid under another name or kind is a reference that someone made up.
                Some(seen) if !refers(owner, &node.identity, &seen.identity) => gone.push(owner.uid.clone()),
                Some(seen) if seen.foreground => {
                    gone.push(owner.uid.clone());
                    going = true;
                }
                Some(_) => solid += 1,
                None if self.absent.contains(owner.uid.as_str()) => gone.push(owner.uid.clone()),
                // Not known: the caller asks first.
                None => solid += 1,
            }
        }
        match (solid, gone.is_empty()) {
            (_, true) => Decision::Keep,
            // Its own dependents go first, except those that wait for it: in a circle nobody would ever be the first.
            (0, false) if going && self.has_waiting_dependents(&node.identity.uid) => {
                Decision::Delete(Policy::Foreground)
            }
            (0, false) => Decision::Delete(Policy::Background),
            (_, false) => Decision::Forget(gone),
        }
    }

    /// Every object that names this one as an owner.
    pub fn dependents_of(&self, uid: &str) -> Vec<Identity> {
        let uids = self.dependents.get(uid).into_iter().flatten();
        uids.filter_map(|uid| self.nodes.get(uid)).map(|node| node.identity.clone()).collect()
    }

    fn has_waiting_dependents(&self, uid: &str) -> bool {
        let uids = self.dependents.get(uid).into_iter().flatten();
        uids.filter_map(|dependent| self.nodes.get(dependent)).any(|node| !node.foreground)
    }

    /// Dependents that hold their owner.
    fn blocking<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = &'a Node> {
        let uids = self.dependents.get(uid).into_iter().flatten();
        uids.filter_map(|dependent| self.nodes.get(dependent)).filter(move |node| {
            node.owners.iter().any(|owner| owner.uid == uid && owner.block_owner_deletion == Some(true))
        })
    }

    /// The objects of a kind.
    pub fn of_kind(&self, kind: &KindRef) -> Vec<Identity> {
        let nodes = self.nodes.values().map(|node| &node.identity);
        nodes.filter(|identity| *identity.kind == *kind).cloned().collect()
    }

    /// The owners that an object is known to have.
    pub fn owners_of(&self, uid: &str) -> Vec<OwnerReference> {
        self.nodes.get(uid).map(|node| node.owners.clone()).unwrap_or_default()
    }

    /// How many objects are known.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

/// Whether a reference means this object. Versions of a group are served from one object.
fn refers(owner: &OwnerReference, dependent: &Identity, seen: &Identity) -> bool {
    let group = |api_version: &str| {
        api_version.rsplit_once('/').map(|(group, _)| group.to_owned()).unwrap_or_default()
    };
    // Owners lie in the namespace of their dependents, or in none.
    let reachable = seen.key.namespace.is_empty() || seen.key.namespace == dependent.key.namespace;
    reachable
        && owner.name == *seen.key.name
        && owner.kind == seen.kind.kind
        && group(&owner.api_version) == group(&seen.kind.api_version)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn kind() -> Arc<KindRef> {
        Arc::new(KindRef { api_version: "v1".to_owned(), kind: "ConfigMap".to_owned() })
    }

    fn meta(uid: &str, owners: &[(&str, bool)], extra: Value) -> ObjectMeta {
        let owners: Vec<Value> = owners
            .iter()
            .map(|(owner, blocks)| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": owner, "blockOwnerDeletion": blocks}))
            .collect();
        let mut meta = json!({"name": uid, "namespace": "a", "uid": uid, "ownerReferences": owners});
        meta.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        serde_json::from_value(meta).unwrap()
    }

    fn dying(finalizer: &str) -> Value {
        json!({"deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": [finalizer]})
    }

    fn names(identities: &[Identity]) -> Vec<&str> {
        identities.iter().map(|identity| &*identity.uid).collect()
    }

    #[test]
    fn dependents_go_when_the_last_owner_is_gone() {
        let mut graph = Graph::default();
        graph.observe(&kind(), &meta("o1", &[], json!({})));
        graph.observe(&kind(), &meta("o2", &[], json!({})));
        graph.observe(&kind(), &meta("d", &[("o1", false), ("o2", false)], json!({})));
        assert_eq!(graph.decide("d"), Decision::Keep);
        assert_eq!(names(&graph.remove("o1")), ["d"]);
        assert_eq!(graph.decide("d"), Decision::Forget(vec!["o1".to_owned()]));
        graph.remove("o2");
        assert_eq!(graph.decide("d"), Decision::Delete(Policy::Background));
    }

    #[test]
    fn an_owner_that_nobody_has_seen_is_asked_for_first() {
        let mut graph = Graph::default();
        graph.observe(&kind(), &meta("d", &[("o", false)], json!({})));
        assert_eq!(graph.unknown_owners("d").len(), 1);
        assert_eq!(graph.decide("d"), Decision::Keep);
        graph.owner_is_absent("o");
        assert_eq!(graph.decide("d"), Decision::Delete(Policy::Background));
    }

    #[test]
    fn foreground_deletion_waits_for_blocking_dependents_only() {
        let mut graph = Graph::default();
        graph.observe(&kind(), &meta("free", &[("o", false)], json!({})));
        graph.observe(&kind(), &meta("blocks", &[("o", true)], json!({})));
        let look = graph.observe(&kind(), &meta("o", &[], dying(FOREGROUND)));
        assert_eq!(names(&look), ["o", "blocks", "free"]);
        assert_eq!(graph.decide("free"), Decision::Delete(Policy::Background));
        assert_eq!(graph.decide("blocks"), Decision::Delete(Policy::Background));
        assert_eq!(graph.decide("o"), Decision::Keep);
        assert_eq!(names(&graph.remove("blocks")), ["o"]);
        assert_eq!(graph.decide("o"), Decision::Finish);
    }

    #[test]
    fn orphans_forget_their_owner() {
        let mut graph = Graph::default();
        graph.observe(&kind(), &meta("d", &[("o", true)], json!({})));
        graph.observe(&kind(), &meta("o", &[], dying(ORPHAN)));
        let Decision::Orphan(orphans) = graph.decide("o") else { panic!("it has the finalizer") };
        assert_eq!(names(&orphans), ["d"]);
    }

    #[test]
    fn a_reference_that_lies_about_its_owner_does_not_hold() {
        let mut graph = Graph::default();
        graph.observe(&kind(), &meta("o", &[], json!({})));
        let mut liar = meta("d", &[("o", false)], json!({}));
        liar.owner_references.as_mut().unwrap()[0].name = "another".to_owned();
        graph.observe(&kind(), &liar);
        assert_eq!(graph.decide("d"), Decision::Delete(Policy::Background));
    }

    #[test]
    fn a_cycle_that_is_deleted_in_the_foreground_ends() {
        let mut graph = Graph::default();
        graph.observe(&kind(), &meta("a", &[("b", true)], json!({})));
        graph.observe(&kind(), &meta("b", &[("a", true)], json!({})));
        graph.observe(&kind(), &meta("a", &[("b", true)], dying(FOREGROUND)));
        assert_eq!(
            graph.decide("b"),
            Decision::Delete(Policy::Background),
            "b must not wait for a, which waits for b"
        );
    }

    proptest! {
        /// Whatever order events come in, nothing is left in the graph of what is gone, and nothing goes that has an owner.
        #[test]
        fn the_graph_follows_its_events(steps in prop::collection::vec((0..6_u8, 0..6_u8, prop::bool::ANY), 0..60)) {
            let mut graph = Graph::default();
            let mut alive = BTreeSet::new();
            for (object, owner, exists) in steps {
                let uid = format!("u{object}");
                if exists {
                    let owners = if owner == object { vec![] } else { vec![(format!("u{owner}"), false)] };
                    let owners: Vec<(&str, bool)> = owners.iter().map(|(uid, blocks)| (uid.as_str(), *blocks)).collect();
                    graph.observe(&kind(), &meta(&uid, &owners, json!({})));
                    alive.insert(uid);
                } else {
                    graph.remove(&uid);
                    alive.remove(&uid);
                }
                prop_assert_eq!(graph.len(), alive.len());
                for uid in &alive {
                    let orphaned = !graph.nodes[uid.as_str()].owners.is_empty()
                        && graph.nodes[uid.as_str()].owners.iter().all(|owner| !alive.contains(&owner.uid));
                    if let Decision::Delete(_) = graph.decide(uid) {
                        prop_assert!(orphaned);
                    }
                }
            }
            for uid in alive.clone() {
                graph.remove(&uid);
            }
            prop_assert!(graph.is_empty() && graph.dependents.values().all(BTreeSet::is_empty));
        }
    }
}
