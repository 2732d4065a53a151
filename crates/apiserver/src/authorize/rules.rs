//! Policy rules: what one allows, and whether some cover others.

use serde_json::{Value, json};

/// What is to be done.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// `get`, `list`, …
    pub verb: String,
    /// API group.
    pub group: String,
    /// Plural resource, empty for other paths.
    pub resource: String,
    /// Subresource.
    pub subresource: String,
    /// Namespace, empty for cluster scope.
    pub namespace: String,
    /// Object name.
    pub name: String,
    /// Path outside of resources.
    pub path: String,
}

/// One rule of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// What may be done.
    pub verbs: Vec<String>,
    /// In which groups.
    pub groups: Vec<String>,
    /// To which resources, `pods/log` for subresources.
    pub resources: Vec<String>,
    /// To which objects; empty means all.
    pub names: Vec<String>,
    /// To which paths outside of resources.
    pub paths: Vec<String>,
}

/// Reads the rules of a role.
pub fn read(rules: &Value) -> Vec<Rule> {
    let texts = |rule: &Value, field: &str| -> Vec<String> {
        let list = rule.get(field).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let list = rules.as_array().into_iter().flatten();
    list.map(|rule| Rule {
        verbs: texts(rule, "verbs"),
        groups: texts(rule, "apiGroups"),
        resources: texts(rule, "resources"),
        names: texts(rule, "resourceNames"),
        paths: texts(rule, "nonResourceURLs"),
    })
    .collect()
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

impl Rule {
    /// The rules of an administrator.
    pub fn everything() -> Vec<Rule> {
        let all = || vec!["*".to_owned()];
        let resources = Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() };
        vec![resources, Rule { verbs: all(), paths: all(), ..Rule::default() }]
    }

    /// Whether the rule allows this.
    pub fn allows(&self, wanted: &Attributes) -> bool {
        if !has(&self.verbs, &wanted.verb) {
            return false;
        }
        if wanted.resource.is_empty() {
            return self.paths.iter().any(|path| path_matches(path, &wanted.path));
        }
        let name = self.names.is_empty() || self.names.contains(&wanted.name);
        name && has(&self.groups, &wanted.group) && self.has_resource(&wanted.resource, &wanted.subresource)
    }

    fn has_resource(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|item| match (item.as_str(), subresource) {
            ("*", _) => true,
            (item, "") => item == resource,
            (item, sub) => item.split_once('/').is_some_and(|(r, s)| s == sub && (r == resource || r == "*")),
        })
    }

    pub(super) fn to_resource_rule(&self) -> Value {
        let mut rule = json!({"verbs": self.verbs, "apiGroups": self.groups, "resources": self.resources});
        if !self.names.is_empty() {
            rule["resourceNames"] = json!(self.names);
        }
        rule
    }

    /// The rule as single permissions: one verb on one thing.
    fn split(&self) -> Vec<Rule> {
        let one = |s: &str| vec![s.to_owned()];
        let mut parts = Vec::new();
        for verb in &self.verbs {
            for path in &self.paths {
                parts.push(Rule { verbs: one(verb), paths: one(path), ..Rule::default() });
            }
            for group in &self.groups {
                for resource in &self.resources {
                    let base = Rule {
                        verbs: one(verb),
                        groups: one(group),
                        resources: one(resource),
                        ..Rule::default()
                    };
                    if self.names.is_empty() {
                        parts.push(base);
                    } else {
                        parts.extend(self.names.iter().map(|n| Rule { names: one(n), ..base.clone() }));
                    }
                }
            }
        }
        parts
    }

    /// Whether this rule alone gives a single permission.
    fn covers_single(&self, part: &Rule) -> bool {
        let every = |mine: &[String], wanted: &[String]| wanted.iter().all(|w| has(mine, w));
        if !every(&self.verbs, &part.verbs) {
            return false;
        }
        if let [path] = &part.paths[..] {
            return self.paths.iter().any(|mine| mine == path || path_matches(mine, path));
        }
        let resources = part.resources.iter().all(|wanted| {
            let (resource, sub) = wanted.split_once('/').unwrap_or((wanted, ""));
            self.has_resource(resource, sub) || self.resources.contains(wanted)
        });
        let names = self.names.is_empty() || (!part.names.is_empty() && every(&self.names, &part.names));
        resources && names && every(&self.groups, &part.groups)
    }
}

fn path_matches(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => pattern == path,
    }
}

/// Whether somebody with the first rules has everything the second would give.
pub fn covers(held: &[Rule], wanted: &[Rule]) -> bool {
    missing_parts(held, wanted).next().is_none()
}

/// What the second rules give beyond the first, for people.
pub fn missing(held: &[Rule], wanted: &[Rule]) -> Vec<String> {
    missing_parts(held, wanted).map(|rule| rule.to_resource_rule().to_string()).collect()
}

fn missing_parts<'a>(held: &'a [Rule], wanted: &'a [Rule]) -> impl Iterator<Item = Rule> + 'a {
    let parts = wanted.iter().flat_map(Rule::split);
    parts.filter(|part| !held.iter().any(|rule| rule.covers_single(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> Rule {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        Rule {
            verbs: own(verbs),
            groups: own(groups),
            resources: own(resources),
            names: own(names),
            paths: vec![],
        }
    }

    fn ask(verb: &str, resource: &str, subresource: &str, name: &str) -> Attributes {
        let own = str::to_owned;
        Attributes {
            verb: own(verb),
            resource: own(resource),
            subresource: own(subresource),
            name: own(name),
            ..Attributes::default()
        }
    }

    #[test]
    fn a_rule_allows_what_it_names_and_nothing_else() {
        let pods = rule(&["get", "list"], &[""], &["pods"], &[]);
        assert!(pods.allows(&ask("get", "pods", "", "a")));
        assert!(!pods.allows(&ask("delete", "pods", "", "a")));
        assert!(!pods.allows(&ask("get", "pods", "log", "a")), "a subresource needs its own entry");
        let log = rule(&["*"], &["*"], &["*/log"], &[]);
        assert!(log.allows(&ask("get", "pods", "log", "a")));
        assert!(!log.allows(&ask("get", "pods", "", "a")));
        let one = rule(&["get", "list"], &[""], &["secrets"], &["one"]);
        assert!(one.allows(&ask("get", "secrets", "", "one")));
        assert!(!one.allows(&ask("get", "secrets", "", "two")));
        assert!(!one.allows(&ask("list", "secrets", "", "")), "lists have no name");
    }

    #[test]
    fn paths_match_exactly_or_by_prefix() {
        let own = |list: &[&str]| -> Vec<String> { list.iter().map(|s| (*s).to_owned()).collect() };
        let rule = Rule { verbs: own(&["get"]), paths: own(&["/healthz", "/api/*"]), ..Rule::default() };
        let ask = |path: &str| Attributes { verb: "get".into(), path: path.into(), ..Attributes::default() };
        assert!(rule.allows(&ask("/healthz")) && rule.allows(&ask("/api/v1")));
        assert!(!rule.allows(&ask("/healthz/ping")) && !rule.allows(&ask("/metrics")));
    }

    #[test]
    fn rules_cover_what_they_give_together() {
        let held = [rule(&["get"], &[""], &["pods", "secrets"], &[]), rule(&["list"], &[""], &["pods"], &[])];
        assert!(covers(&held, &[rule(&["get", "list"], &[""], &["pods"], &[])]));
        assert!(covers(&held, &[rule(&["get"], &[""], &["secrets"], &["one"])]));
        assert!(!covers(&held, &[rule(&["list"], &[""], &["secrets"], &[])]));
        assert!(!covers(&held, &[rule(&["*"], &[""], &["pods"], &[])]));
        assert!(!covers(
            &[rule(&["get"], &[""], &["secrets"], &["one"])],
            &[rule(&["get"], &[""], &["secrets"], &[])]
        ));
        assert!(covers(&Rule::everything(), &[rule(&["*"], &["*"], &["*"], &[])]));
    }
}
