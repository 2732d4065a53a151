//! The roles and bindings of a cluster, read once and asked often.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use futures::FutureExt as _;
use serde_json::Value;
use shoal_objects::meta;
use shoal_objects::selector::LabelSelector;
use shoal_store::{Range, Store};

use super::TABLES;
use super::rules::{self, Attributes, Rule};
use crate::access::UserInfo;
use crate::encode;

/// All roles and bindings.
#[derive(Default)]
pub struct Policy {
    /// By namespace (empty: ClusterRoles) and name.
    roles: HashMap<(String, String), Vec<Rule>>,
    /// By namespace (empty: ClusterRoleBindings).
    bindings: BTreeMap<String, Vec<Binding>>,
}

struct Binding {
    subjects: Vec<Subject>,
    /// Namespace of the role (empty: ClusterRole) and its name.
    role: (String, String),
}

enum Subject {
    User(String),
    Group(String),
}

impl Policy {
    /// Reads the store.
    pub fn read(store: &Store) -> Policy {
        let mut policy = Policy::default();
        let mut aggregated = Vec::new();
        let [cluster_bindings, cluster_roles, bindings, roles] = TABLES;
        for role in objects(store, cluster_roles).into_iter().chain(objects(store, roles)) {
            let key = (meta::namespace(&role).to_owned(), meta::name(&role).to_owned());
            policy.roles.insert(key, rules::read(&role["rules"]));
            if role.get("aggregationRule").is_some() {
                aggregated.push(role);
            }
        }
        policy.aggregate(store, &aggregated);
        for binding in objects(store, cluster_bindings).into_iter().chain(objects(store, bindings)) {
            let namespace = meta::namespace(&binding).to_owned();
            let role = &binding["roleRef"];
            let role_namespace = if role["kind"] == "Role" { namespace.clone() } else { String::new() };
            let role_name = role["name"].as_str().unwrap_or_default().to_owned();
            let subjects = binding["subjects"].as_array().into_iter().flatten();
            let subjects = subjects.filter_map(|s| subject(s, &namespace)).collect();
            let entry = Binding { subjects, role: (role_namespace, role_name) };
            policy.bindings.entry(namespace).or_default().push(entry);
        }
        policy
    }

    /// Gives aggregated ClusterRoles the rules of those they select, to any depth. Roles may select each other: each
    /// counts once.
    fn aggregate(&mut self, store: &Store, aggregated: &[Value]) {
        if aggregated.is_empty() {
            return;
        }
        let all = objects(store, TABLES[1]);
        let selected: HashMap<&str, Vec<&str>> =
            aggregated.iter().map(|role| (meta::name(role), selected_names(role, &all))).collect();
        for name in selected.keys() {
            let (mut reached, mut waiting) = (HashSet::new(), VecDeque::from([*name]));
            let mut rules: Vec<Rule> = Vec::new();
            while let Some(next) = waiting.pop_front() {
                match selected.get(next) {
                    _ if !reached.insert(next) => {}
                    Some(parts) => waiting.extend(parts),
                    None => {
                        let key = (String::new(), next.to_owned());
                        rules.extend(self.roles.get(&key).cloned().unwrap_or_default());
                    }
                }
            }
            rules.dedup();
            self.roles.insert((String::new(), (*name).to_owned()), rules);
        }
    }

    /// Whether a role bound to the user allows this.
    pub fn allows(&self, user: &UserInfo, attributes: &Attributes) -> bool {
        self.applying(user, &attributes.namespace).any(|rule| rule.allows(attributes))
    }

    /// All rules that apply to the user in a namespace.
    pub fn rules_of(&self, user: &UserInfo, namespace: &str) -> Vec<Rule> {
        self.applying(user, namespace).cloned().collect()
    }

    /// The rules of a role, if there is one of that name.
    pub fn role(&self, kind: &str, namespace: &str, name: &str) -> Option<Vec<Rule>> {
        let namespace = if kind == "clusterroles" { "" } else { namespace };
        self.roles.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    fn applying<'a>(&'a self, user: &'a UserInfo, namespace: &str) -> impl Iterator<Item = &'a Rule> {
        let cluster = self.bindings.get("").into_iter().flatten();
        let local = self.bindings.get(namespace).filter(|_| !namespace.is_empty()).into_iter().flatten();
        let bound = cluster.chain(local).filter(|b| b.subjects.iter().any(|s| s.is(user)));
        bound.filter_map(|b| self.roles.get(&b.role)).flatten()
    }
}

impl Subject {
    fn is(&self, user: &UserInfo) -> bool {
        match self {
            Subject::User(name) => *name == user.username,
            Subject::Group(name) => user.groups.contains(name),
        }
    }
}

/// The names of the roles whose labels an aggregated one asks for.
fn selected_names<'a>(role: &Value, all: &'a [Value]) -> Vec<&'a str> {
    let mut names = Vec::new();
    for selector in role["aggregationRule"]["clusterRoleSelectors"].as_array().into_iter().flatten() {
        let Ok(selector) = LabelSelector::from_object(Some(selector)) else { continue };
        names.extend(all.iter().filter(|part| selector.matches_object(part)).map(meta::name));
    }
    names
}

fn subject(subject: &Value, binding_namespace: &str) -> Option<Subject> {
    let name = subject["name"].as_str()?.to_owned();
    match subject["kind"].as_str()? {
        "User" => Some(Subject::User(name)),
        "Group" => Some(Subject::Group(name)),
        "ServiceAccount" => {
            let namespace =
                subject["namespace"].as_str().filter(|n| !n.is_empty()).unwrap_or(binding_namespace);
            let user = crate::access::tokens::service_account_username(namespace, &name);
            (!namespace.is_empty()).then_some(Subject::User(user))
        }
        _ => None,
    }
}

fn objects(store: &Store, table: &str) -> Vec<Value> {
    // Reads of committed state never wait.
    let listing = store.list(table, Range::All, None, 0).now_or_never();
    let objects = listing.map(|l| l.objects).unwrap_or_default();
    objects.iter().filter_map(|o| serde_json::from_slice(encode::object_slice(&o.value)).ok()).collect()
}
