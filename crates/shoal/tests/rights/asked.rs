//! Requests as RBAC sees them, and which single rights they need.

use std::collections::BTreeSet;
use std::fmt;

use http::{Method, Uri};
use serde_json::{Value, json};

/// One thing that somebody wants to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    pub verb: String,
    pub group: String,
    /// With its subresource.
    pub resource: String,
    pub namespace: String,
    pub name: String,
}

impl Asked {
    /// What a request asks for; None if it is about no resource.
    pub fn of(method: &Method, uri: &Uri) -> Option<Asked> {
        let mut rest: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
        let group = match rest.first() {
            Some(&"api") if rest.len() > 2 => String::new(),
            Some(&"apis") if rest.len() > 3 => rest.remove(1).to_owned(),
            _ => return None,
        };
        rest.drain(..2);
        let mut namespace = String::new();
        if rest.first() == Some(&"namespaces") && rest.len() > 2 && !["status", "finalize"].contains(&rest[2])
        {
            namespace = rest[1].to_owned();
            rest.drain(..2);
        }
        let name = rest.get(1).copied().unwrap_or_default().to_owned();
        let resource = match rest.get(2) {
            Some(sub) => format!("{}/{sub}", rest[0]),
            None => rest[0].to_owned(),
        };
        let watches = uri
            .query()
            .is_some_and(|query| query.split('&').any(|part| part == "watch=true" || part == "watch=1"));
        let verb = match (method.as_str(), name.is_empty()) {
            ("GET", _) if watches => "watch",
            ("GET", true) => "list",
            ("GET", false) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", true) => "deletecollection",
            ("DELETE", false) => "delete",
            (other, _) => panic!("{other} {uri}"),
        };
        Some(Asked { verb: verb.to_owned(), group, resource, namespace, name })
    }

    /// What clusters with the admission plugin OwnerReferencesPermissionEnforcement (OpenShift) ask on top: who makes an object
    /// whose owner cannot go before it, must be able to do that himself.
    pub fn of_owners(body: &[u8]) -> Vec<Asked> {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let owners = body["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        let blocking = owners.iter().filter(|owner| owner["blockOwnerDeletion"] == true);
        blocking
            .map(|owner| Asked {
                verb: "update".to_owned(),
                group: owner["apiVersion"]
                    .as_str()
                    .unwrap()
                    .rsplit_once('/')
                    .unwrap_or_default()
                    .0
                    .to_owned(),
                resource: format!("{}s/finalizers", owner["kind"].as_str().unwrap().to_lowercase()),
                namespace: body["metadata"]["namespace"].as_str().unwrap_or_default().to_owned(),
                name: owner["name"].as_str().unwrap().to_owned(),
            })
            .collect()
    }
}

/// A single right: one verb on one resource.
#[derive(Clone, PartialEq)]
pub struct Right {
    /// The role that gives it.
    kind: &'static str,
    /// Where; everywhere if None.
    place: Option<String>,
    group: String,
    resource: String,
    verb: String,
    /// On these objects; on all if None.
    names: Option<Value>,
}

impl Right {
    fn allows(&self, asked: &Asked) -> bool {
        let is = |mine: &str, wanted: &str| mine == "*" || mine == wanted;
        is(&self.group, &asked.group)
            && is(&self.resource, &asked.resource)
            && is(&self.verb, &asked.verb)
            && self.place.as_ref().is_none_or(|place| *place == asked.namespace)
            && self.names.as_ref().is_none_or(|names| names.as_array().unwrap().contains(&json!(asked.name)))
    }

    fn rule(&self) -> Value {
        let mut rule = json!({"apiGroups": [self.group], "resources": [self.resource], "verbs": [self.verb]});
        if let Some(names) = &self.names {
            rule["resourceNames"] = names.clone();
        }
        rule
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        write!(f, "{} {}{group}", self.verb, self.resource)?;
        match &self.place {
            Some(place) => write!(f, " in {place}"),
            None => Ok(()),
        }
    }
}

/// All rights that the roles of manifests give, one by one.
pub fn rights(manifests: &[Value]) -> Vec<Right> {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let mut all = Vec::new();
    for role in manifests {
        let kind = match role["kind"].as_str().unwrap() {
            "ClusterRole" => "ClusterRole",
            "Role" => "Role",
            _ => continue,
        };
        let place = role["metadata"]["namespace"].as_str().map(str::to_owned);
        for rule in role["rules"].as_array().unwrap() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        let (place, group, resource) = (place.clone(), group.clone(), resource.clone());
                        let names = rule.get("resourceNames").cloned();
                        all.push(Right { kind, place, group, resource, verb, names });
                    }
                }
            }
        }
    }
    all
}

/// The rights that nobody would miss: no request is allowed by them alone. Each role is judged by itself.
pub fn not_needed(rights: &[Right], asked: &BTreeSet<Asked>) -> Vec<String> {
    let alone = |right: &Right, asked: &Asked| {
        let others = rights.iter().filter(|other| other.kind == right.kind && other.allows(asked));
        right.allows(asked) && others.count() == 1
    };
    let idle = rights.iter().filter(|right| !asked.iter().any(|asked| alone(right, asked)));
    idle.map(ToString::to_string).collect()
}

/// The manifests without one right.
pub fn without(manifests: &[Value], missing: &str) -> Vec<Value> {
    let all = rights(manifests);
    assert_eq!(all.iter().filter(|right| right.to_string() == missing).count(), 1, "{missing}");
    let rules = |kind: &str| -> Vec<Value> {
        let left = all.iter().filter(|right| right.kind == kind && right.to_string() != missing);
        left.map(Right::rule).collect()
    };
    let mut less = manifests.to_vec();
    for role in less.iter_mut().filter(|object| object.get("rules").is_some()) {
        role["rules"] = Value::Array(rules(role["kind"].as_str().unwrap()));
    }
    less
}

#[test]
fn requests_are_read_as_rbac_reads_them() {
    let asked = |method: Method, uri: &str| {
        let asked = Asked::of(&method, &uri.parse().unwrap())?;
        Some(format!("{} {}.{} {}/{}", asked.verb, asked.resource, asked.group, asked.namespace, asked.name))
    };
    for (method, uri, wanted) in [
        (Method::GET, "/api/v1/pods?watch=true&limit=1", "watch pods. /"),
        (Method::GET, "/api/v1/namespaces/a/pods?labelSelector=x", "list pods. a/"),
        (Method::PUT, "/apis/g/v1/namespaces/a/things/b/status", "update things/status.g a/b"),
        (Method::DELETE, "/api/v1/namespaces/a", "delete namespaces. /a"),
        (Method::PUT, "/api/v1/namespaces/a/finalize", "update namespaces/finalize. /a"),
        (Method::DELETE, "/apis/g/v1/namespaces/a/things", "deletecollection things.g a/"),
        (Method::POST, "/apis/g/v1/things", "create things.g /"),
    ] {
        assert_eq!(asked(method, uri).as_deref(), Some(wanted), "{uri}");
    }
    for uri in ["/version", "/apis", "/apis/g/v1", "/api/v1", "/openapi/v3/apis/g/v1"] {
        assert_eq!(asked(Method::GET, uri), None, "{uri}");
    }
}
