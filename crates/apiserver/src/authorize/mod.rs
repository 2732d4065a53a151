//! Who may do what: RBAC, as stored in the cluster.
//!
//! Members of `system:masters` may do everything. For all others the roles bound to them decide; what no role
//! allows is refused.

mod bootstrap;
mod policy;
mod rules;

use http::StatusCode;
use parking_lot::Mutex;
use serde_json::{Value, json};
use shoal_objects::meta;
use shoal_store::{Store, Watcher};

use crate::access::UserInfo;
use crate::registry::Resource;
use crate::status::{Failure, Outcome};

pub use bootstrap::objects as bootstrap_objects;
use policy::Policy;
pub use rules::{Attributes, Rule};

const GROUP: &str = "rbac.authorization.k8s.io";
const TABLES: [&str; 4] = [
    "rbac.authorization.k8s.io/clusterrolebindings",
    "rbac.authorization.k8s.io/clusterroles",
    "rbac.authorization.k8s.io/rolebindings",
    "rbac.authorization.k8s.io/roles",
];

/// Decides by the roles in the store. Reads them again only after they have changed.
pub struct Authorizer {
    store: Store,
    state: Mutex<State>,
}

struct State {
    policy: Policy,
    /// Tell that something has changed since the policy was read.
    watchers: Vec<Watcher>,
}

impl Authorizer {
    /// An authorizer over the roles of this store.
    pub fn new(store: Store) -> Authorizer {
        Authorizer { store, state: Mutex::new(State { policy: Policy::default(), watchers: Vec::new() }) }
    }

    /// Whether the user may do this.
    pub fn allows(&self, user: &UserInfo, attributes: &Attributes) -> bool {
        is_master(user) || self.with_policy(|policy| policy.allows(user, attributes))
    }

    /// Everything the user may do in a namespace, or in the whole cluster where that is empty.
    pub fn rules_of(&self, user: &UserInfo, namespace: &str) -> Vec<Rule> {
        if is_master(user) {
            return Rule::everything();
        }
        self.with_policy(|policy| policy.rules_of(user, namespace))
    }

    /// Whether objects of this kind grant rights.
    pub fn guards(resource: &Resource) -> bool {
        &*resource.group == GROUP
    }

    /// Refuses roles and bindings that would give more than the writer has, unless `escalate` or `bind` is granted.
    pub fn check_escalation(&self, user: &UserInfo, resource: &Resource, object: &Value) -> Outcome<()> {
        if !Authorizer::guards(resource) || is_master(user) {
            return Ok(());
        }
        let namespace = meta::namespace(object);
        let mut missing_role = false;
        let (verb, kind, name, wanted) = match &*resource.plural {
            "roles" | "clusterroles" => {
                ("escalate", &*resource.plural, meta::name(object).to_owned(), rules::read(&object["rules"]))
            }
            _ => {
                let role = &object["roleRef"];
                let name = role["name"].as_str().unwrap_or_default().to_owned();
                let kind = if role["kind"] == "ClusterRole" { "clusterroles" } else { "roles" };
                let given = self.with_policy(|policy| policy.role(kind, namespace, &name));
                missing_role = given.is_none();
                ("bind", kind, name, given.unwrap_or_default())
            }
        };
        let right = Attributes {
            verb: verb.to_owned(),
            group: GROUP.to_owned(),
            resource: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.clone(),
            ..Attributes::default()
        };
        if self.allows(user, &right) {
            return Ok(());
        }
        // A role that is yet to come could grant anything.
        if missing_role {
            let text = format!("{kind}.{GROUP} {name:?} not found");
            return Err(Failure::new(StatusCode::NOT_FOUND, "NotFound", text).about(GROUP, kind, &name));
        }
        let held = self.rules_of(user, namespace);
        if rules::covers(&held, &wanted) {
            // What others are labelled for can be anything too.
            let gathers = &*resource.plural == "clusterroles"
                && object.get("aggregationRule").is_some_and(|rule| !rule.is_null());
            if gathers && !rules::covers(&held, &Rule::everything()) {
                let text = "must have cluster-admin privileges to use the aggregationRule";
                return Err(Failure::new(StatusCode::UNAUTHORIZED, "Unauthorized", text));
            }
            return Ok(());
        }
        let missing = rules::missing(&held, &wanted);
        let why = format!(
            "user {:?} (groups={:?}) is attempting to grant RBAC permissions not currently held:\n{}",
            user.username,
            user.groups,
            missing.join("\n")
        );
        Err(Failure::forbidden(resource, meta::name(object), &why))
    }

    fn with_policy<T>(&self, ask: impl FnOnce(&Policy) -> T) -> T {
        let mut state = self.state.lock();
        let fresh = state.watchers.len() == TABLES.len()
            && state.watchers.iter_mut().all(|watcher| watcher.try_next().is_none());
        if !fresh {
            // Watch first, read then: a change in between is read twice rather than missed.
            let revision = self.store.revision();
            let watchers = TABLES.iter().filter_map(|table| self.store.watch(table, revision).ok());
            state.watchers = watchers.collect();
            state.policy = Policy::read(&self.store);
        }
        ask(&state.policy)
    }
}

/// Whether the user is in the group that may do everything.
pub fn is_master(user: &UserInfo) -> bool {
    user.groups.iter().any(|g| g == "system:masters")
}

/// The refusal, in the words of the real server.
pub fn refusal(user: &UserInfo, attributes: &Attributes) -> Failure {
    let Attributes { verb, group, resource, subresource, namespace, name, path } = attributes;
    let user = &user.username;
    if resource.is_empty() {
        let message = format!("forbidden: User {user:?} cannot {verb} path {path:?}");
        return Failure::new(StatusCode::FORBIDDEN, "Forbidden", message).with_details();
    }
    let full = if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") };
    let qualified = if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") };
    let subject = if name.is_empty() { qualified } else { format!("{qualified} {name:?}") };
    let scope = match namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    let message = format!(
        "{subject} is forbidden: User {user:?} cannot {verb} resource {full:?} in API group {group:?} {scope}"
    );
    Failure::new(StatusCode::FORBIDDEN, "Forbidden", message).about(group, resource, name)
}

/// The status of a SelfSubjectRulesReview.
pub fn rules_review(rules: &[Rule]) -> Value {
    let (paths, resources): (Vec<&Rule>, Vec<&Rule>) = rules.iter().partition(|rule| !rule.paths.is_empty());
    let resource_rules: Vec<Value> = resources.iter().map(|rule| rule.to_resource_rule()).collect();
    let path_rules: Vec<Value> =
        paths.iter().map(|rule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.paths})).collect();
    json!({"resourceRules": resource_rules, "nonResourceRules": path_rules, "incomplete": false})
}
