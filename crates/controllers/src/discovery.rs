//! Which kinds a server has: read in two requests, from the aggregated documents.

use http::Request;
use http::header::ACCEPT;
use kube::Client;
use kube::api::ApiResource;
use serde_json::Value;
use shoal_runtime::{Error, Result};

const DOCUMENT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A kind in one of its versions.
#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    /// Group, version, kind and plural.
    pub resource: ApiResource,
    /// Whether its objects lie in namespaces.
    pub namespaced: bool,
    /// Whether this is the version to use, of all in which the kind is served.
    pub preferred: bool,
    verbs: Vec<String>,
}

impl Kind {
    /// Whether the server offers all of these verbs.
    pub fn can(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|known| known == verb))
    }
}

#[cfg(test)]
impl Kind {
    /// A core kind that can be listed.
    pub(crate) fn of_test(plural: &str) -> Kind {
        let mut found = Discovery::default();
        found.read(&serde_json::json!({"items": [{"metadata": {}, "versions": [{"version": "v1", "resources": [
            {"resource": plural, "responseKind": {"kind": plural}, "scope": "Namespaced", "verbs": ["list"]}]}]}]}));
        found.kinds.remove(0)
    }
}

/// Everything that a server has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Discovery {
    kinds: Vec<Kind>,
    /// Group versions of which the server cannot tell at the moment what is in them.
    pub failed: Vec<String>,
}

impl Discovery {
    /// Asks the server.
    pub async fn ask(client: &Client) -> Result<Discovery> {
        let mut found = Discovery::default();
        for path in ["/api", "/apis"] {
            let request = Request::get(path).header(ACCEPT, DOCUMENT).body(Vec::new());
            let request = request.map_err(|error| Error::permanent("cannot ask for kinds").because(error))?;
            let document: Value = client.request(request).await?;
            found.read(&document);
        }
        Ok(found)
    }

    /// Each kind in the version to use.
    pub fn preferred(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.iter().filter(|kind| kind.preferred)
    }

    /// A kind in the version that someone names.
    pub fn find(&self, api_version: &str, kind: &str) -> Option<&Kind> {
        self.kinds
            .iter()
            .find(|known| known.resource.api_version == api_version && known.resource.kind == kind)
    }

    fn read(&mut self, document: &Value) {
        for group in list(document, "items") {
            let name = text(&group["metadata"], "name");
            let first = self.kinds.len();
            for version in list(group, "versions") {
                let v = text(version, "version");
                let api_version = if name.is_empty() { v.to_owned() } else { format!("{name}/{v}") };
                if version["freshness"] == "Stale" {
                    self.failed.push(api_version.clone());
                }
                for resource in list(version, "resources") {
                    let plural = text(resource, "resource");
                    let known = |kind: &Kind| kind.resource.plural == plural;
                    let preferred = !self.kinds[first..].iter().any(known);
                    self.kinds.push(Kind {
                        resource: ApiResource {
                            group: name.to_owned(),
                            version: v.to_owned(),
                            api_version: api_version.clone(),
                            kind: text(&resource["responseKind"], "kind").to_owned(),
                            plural: plural.to_owned(),
                        },
                        namespaced: resource["scope"] == "Namespaced",
                        preferred,
                        verbs: list(resource, "verbs").filter_map(Value::as_str).map(str::to_owned).collect(),
                    });
                }
            }
        }
    }
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_version_of_a_group_that_has_a_kind_is_the_one_to_use() {
        let kind = |plural: &str, kind: &str| json!({"resource": plural, "responseKind": {"kind": kind}, "scope": "Namespaced", "verbs": ["get", "list"]});
        let document = json!({"items": [{"metadata": {"name": "autoscaling"}, "versions": [
            {"version": "v2", "resources": [kind("hpas", "HPA")]},
            {"version": "v1", "freshness": "Stale", "resources": [kind("hpas", "HPA"), kind("olds", "Old")]},
        ]}]});
        let mut found = Discovery::default();
        found.read(&document);
        let preferred: Vec<_> = found.preferred().map(|kind| kind.resource.api_version.as_str()).collect();
        assert_eq!(preferred, ["autoscaling/v2", "autoscaling/v1"]);
        assert_eq!(found.failed, ["autoscaling/v1"]);
        let old = found.find("autoscaling/v1", "HPA").unwrap();
        assert!(!old.preferred && old.can(&["list"]) && !old.can(&["list", "watch"]));
        found.read(&json!({"items": [7, {"versions": {}}]}));
    }
}
