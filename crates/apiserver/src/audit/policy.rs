//! The audit policy (`audit.k8s.io/v1`): which requests are logged, and how much of each. The first rule that matches
//! decides; what no rule matches is not logged.

use serde_json::{Map, Value};

use super::{Level, ObjectRef};
use crate::access::UserInfo;
use crate::decode;

const LEVELS: [(&str, Level); 4] = [
    ("None", Level::None),
    ("Metadata", Level::Metadata),
    ("Request", Level::Request),
    ("RequestResponse", Level::RequestResponse),
];
const STAGES: [&str; 4] = ["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"];

/// What is wrong with a policy: where, and what.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PolicyError(String);

/// Which requests are logged, and how much of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditPolicy {
    rules: Vec<Rule>,
    omit_stages: Vec<String>,
    omit_managed_fields: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    level: Level,
    users: Vec<String>,
    groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    paths: Vec<String>,
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

/// A request in the words of rules.
pub(super) struct Asked<'a> {
    pub(super) user: Option<&'a UserInfo>,
    pub(super) verb: &'a str,
    /// Nothing for paths outside of resources.
    pub(super) object: Option<&'a ObjectRef>,
    pub(super) path: &'a str,
}

/// What is logged of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decision<'p> {
    pub(super) level: Level,
    pub(super) omit_managed_fields: bool,
    stages: [&'p [String]; 2],
}

impl Decision<'_> {
    /// Whether a stage of the request is left out.
    pub(super) fn omits(&self, stage: &str) -> bool {
        self.stages.iter().copied().flatten().any(|omitted| omitted == stage)
    }
}

impl AuditPolicy {
    /// The same level for all requests.
    pub fn of_level(level: Level) -> AuditPolicy {
        let rule = Rule { level, ..Rule::everything() };
        AuditPolicy { rules: vec![rule], ..AuditPolicy::default() }
    }

    /// Reads a policy in YAML or JSON.
    pub fn parse(text: &[u8]) -> Result<AuditPolicy, PolicyError> {
        let (value, duplicates) = decode::parse_yaml(text).map_err(PolicyError)?;
        if let Some(field) = duplicates.first() {
            return Err(PolicyError(format!("{field} is given twice")));
        }
        read_policy(&value).map_err(PolicyError)
    }

    pub(super) fn decide(&self, asked: &Asked<'_>) -> Decision<'_> {
        match self.rules.iter().find(|rule| rule.matches(asked)) {
            Some(rule) => Decision {
                level: rule.level,
                omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
                stages: [&self.omit_stages, &rule.omit_stages],
            },
            None => Decision { level: Level::None, omit_managed_fields: false, stages: [&[], &[]] },
        }
    }
}

impl Rule {
    fn everything() -> Rule {
        Rule {
            level: Level::None,
            users: Vec::new(),
            groups: Vec::new(),
            verbs: Vec::new(),
            resources: Vec::new(),
            namespaces: Vec::new(),
            paths: Vec::new(),
            omit_stages: Vec::new(),
            omit_managed_fields: None,
        }
    }

    fn matches(&self, asked: &Asked<'_>) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|text| text == wanted);
        let groups = asked.user.map(|user| user.groups.as_slice()).unwrap_or_default();
        (self.users.is_empty() || asked.user.is_some_and(|user| has(&self.users, &user.username)))
            && (self.groups.is_empty() || groups.iter().any(|group| has(&self.groups, group)))
            && (self.verbs.is_empty() || has(&self.verbs, asked.verb))
            && match (asked.object, self.resources.is_empty() && self.namespaces.is_empty()) {
                (Some(object), false) => {
                    (self.namespaces.is_empty() || has(&self.namespaces, &object.namespace))
                        && (self.resources.is_empty() || self.resources.iter().any(|r| r.covers(object)))
                }
                (None, false) => false,
                (object, true) => {
                    self.paths.is_empty()
                        || (object.is_none() && self.paths.iter().any(|p| path_matches(p, asked.path)))
                }
            }
    }
}

impl GroupResources {
    fn covers(&self, object: &ObjectRef) -> bool {
        if self.group != object.group {
            return false;
        }
        let name_fits = self.names.is_empty() || self.names.contains(&object.name);
        let resource_fits = |wanted: &String| {
            let (of, sub) = wanted.split_once('/').unwrap_or((wanted, ""));
            match (of, sub) {
                ("*", "") => true,
                ("*", sub) => sub == object.subresource && !sub.is_empty(),
                (of, "*") => of == object.resource,
                (of, sub) => of == object.resource && sub == object.subresource,
            }
        };
        self.resources.is_empty() || (name_fits && self.resources.iter().any(resource_fits))
    }
}

fn path_matches(wanted: &str, path: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => path == wanted,
    }
}

type Read<T> = Result<T, String>;

fn read_policy(value: &Value) -> Read<AuditPolicy> {
    let fields = members(value, "the policy")?;
    known(fields, "", &["apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"])?;
    for (field, wanted) in [("apiVersion", "audit.k8s.io/v1"), ("kind", "Policy")] {
        let given = fields.get(field).and_then(Value::as_str).unwrap_or_default();
        if given != wanted {
            return Err(format!("{field}: {given:?} is not {wanted:?}"));
        }
    }
    let rules = match fields.get("rules") {
        Some(Value::Array(rules)) if !rules.is_empty() => rules,
        Some(Value::Array(_) | Value::Null) | None => return Err("rules: there is none".to_owned()),
        Some(_) => return Err("rules: not a list".to_owned()),
    };
    let read = rules.iter().enumerate().map(|(i, rule)| read_rule(rule, &format!("rules[{i}]")));
    Ok(AuditPolicy {
        rules: read.collect::<Read<_>>()?,
        omit_stages: stages(fields, "")?,
        omit_managed_fields: flag(fields, "", "omitManagedFields")?.unwrap_or(false),
    })
}

fn read_rule(value: &Value, at: &str) -> Read<Rule> {
    let fields = members(value, at)?;
    known(
        fields,
        at,
        &[
            "level",
            "users",
            "userGroups",
            "verbs",
            "resources",
            "namespaces",
            "nonResourceURLs",
            "omitStages",
            "omitManagedFields",
        ],
    )?;
    let given = fields.get("level").and_then(Value::as_str).unwrap_or_default();
    let Some((_, level)) = LEVELS.iter().find(|(name, _)| *name == given) else {
        let names = LEVELS.map(|(name, _)| name).join(", ");
        return Err(format!("{at}.level: {given:?} is none of {names}"));
    };
    let rule = Rule {
        level: *level,
        users: texts(fields, at, "users")?,
        groups: texts(fields, at, "userGroups")?,
        verbs: texts(fields, at, "verbs")?,
        resources: read_resources(fields, at)?,
        namespaces: texts(fields, at, "namespaces")?,
        paths: texts(fields, at, "nonResourceURLs")?,
        omit_stages: stages(fields, at)?,
        omit_managed_fields: flag(fields, at, "omitManagedFields")?,
    };
    let about_resources = !rule.resources.is_empty() || !rule.namespaces.is_empty();
    if about_resources && !rule.paths.is_empty() {
        return Err(format!(
            "{at}.nonResourceURLs: rules cannot apply to both regular resources and non-resource URLs"
        ));
    }
    for (i, path) in rule.paths.iter().enumerate() {
        if path != "*" && !path.starts_with('/') {
            return Err(format!("{at}.nonResourceURLs[{i}]: {path:?} does not begin with a '/'"));
        }
        if path.find('*').is_some_and(|star| star + 1 != path.len()) {
            return Err(format!("{at}.nonResourceURLs[{i}]: {path:?} has a '*' before its end"));
        }
    }
    Ok(rule)
}

fn read_resources(fields: &Map<String, Value>, at: &str) -> Read<Vec<GroupResources>> {
    let list = match fields.get("resources") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(format!("{at}.resources: not a list")),
    };
    let read = list.iter().enumerate().map(|(i, value)| {
        let at = format!("{at}.resources[{i}]");
        let fields = members(value, &at)?;
        known(fields, &at, &["group", "resources", "resourceNames"])?;
        let group = match fields.get("group") {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(group)) => group.clone(),
            Some(_) => return Err(format!("{at}.group: not a text")),
        };
        if group.contains('/') {
            return Err(format!("{at}.group: {group:?} has a version; only the group's name is wanted"));
        }
        let resources = texts(fields, &at, "resources")?;
        let names = texts(fields, &at, "resourceNames")?;
        if resources.is_empty() && !names.is_empty() {
            return Err(format!("{at}.resourceNames: using resourceNames requires at least one resource"));
        }
        Ok(GroupResources { group, resources, names })
    });
    read.collect()
}

fn members<'v>(value: &'v Value, at: &str) -> Read<&'v Map<String, Value>> {
    value.as_object().ok_or_else(|| format!("{at}: not an object"))
}

fn place(at: &str, field: &str) -> String {
    if at.is_empty() { field.to_owned() } else { format!("{at}.{field}") }
}

fn known(fields: &Map<String, Value>, at: &str, names: &[&str]) -> Read<()> {
    match fields.keys().find(|field| !names.contains(&field.as_str())) {
        Some(field) => Err(format!("{}: there is no such field", place(at, field))),
        None => Ok(()),
    }
}

fn texts(fields: &Map<String, Value>, at: &str, field: &str) -> Read<Vec<String>> {
    let wrong = || format!("{}: not a list of texts", place(at, field));
    match fields.get(field) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => {
            list.iter().map(|text| text.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}

fn stages(fields: &Map<String, Value>, at: &str) -> Read<Vec<String>> {
    let stages = texts(fields, at, "omitStages")?;
    match stages.iter().position(|stage| !STAGES.contains(&stage.as_str())) {
        Some(i) => {
            let at = place(at, "omitStages");
            Err(format!("{at}[{i}]: {:?} is none of {}", stages[i], STAGES.join(", ")))
        }
        None => Ok(stages),
    }
}

fn flag(fields: &Map<String, Value>, at: &str, field: &str) -> Read<Option<bool>> {
    match fields.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(_) => Err(format!("{}: not true or false", place(at, field))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: None, users: ["system:kube-proxy"], verbs: [watch], resources: [{group: "", resources: [endpoints, services]}]}
- {level: None, userGroups: ["system:nodes"], nonResourceURLs: ["/healthz*", /version]}
- {level: Request, namespaces: [kube-system], resources: [{group: "", resources: ["pods/*"], resourceNames: [a]}], omitManagedFields: false}
- {level: RequestResponse, resources: [{group: apps}, {group: "", resources: ["*/status"]}], omitStages: [ResponseStarted]}
- {level: Metadata, resources: [{group: "", resources: ["*"]}]}
"#;

    fn level(user: &str, groups: &[&str], verb: &str, object: Option<[&str; 5]>, path: &str) -> Level {
        let policy = AuditPolicy::parse(POLICY.as_bytes()).unwrap();
        let user = UserInfo::authenticated(user, groups);
        let object = object.map(|[group, resource, subresource, namespace, name]| ObjectRef {
            resource: resource.to_owned(),
            group: group.to_owned(),
            version: "v1".to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        });
        policy.decide(&Asked { user: Some(&user), verb, object: object.as_ref(), path }).level
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let proxy = "system:kube-proxy";
        assert_eq!(level(proxy, &[], "watch", Some(["", "services", "", "", ""]), ""), Level::None);
        assert_eq!(level(proxy, &[], "get", Some(["", "services", "", "n", "s"]), ""), Level::Metadata);
        assert_eq!(level("u", &[], "watch", Some(["", "services", "", "", ""]), ""), Level::Metadata);
        let pod = |name, sub| Some(["", "pods", sub, "kube-system", name]);
        assert_eq!(level("u", &[], "update", pod("a", ""), ""), Level::Request);
        assert_eq!(level("u", &[], "update", pod("a", "status"), ""), Level::Request);
        assert_eq!(level("u", &[], "update", pod("b", "status"), ""), Level::RequestResponse);
        assert_eq!(level("u", &[], "update", pod("b", ""), ""), Level::Metadata);
        let deployment = Some(["apps", "deployments", "scale", "n", "d"]);
        assert_eq!(level("u", &[], "update", deployment, ""), Level::RequestResponse);
        assert_eq!(level("u", &[], "get", Some(["batch", "jobs", "", "n", "j"]), ""), Level::None);
        assert_eq!(level("u", &["system:nodes"], "get", None, "/healthz/ping"), Level::None);
        assert_eq!(level("u", &[], "get", None, "/version"), Level::None);
    }

    #[test]
    fn stages_and_managed_fields_are_left_out_as_rules_say() {
        let policy = AuditPolicy::parse(POLICY.as_bytes()).unwrap();
        let decision = |group: &str| {
            let object =
                ObjectRef { resource: "x".to_owned(), group: group.to_owned(), ..ObjectRef::default() };
            let asked = Asked { user: None, verb: "get", object: Some(&object), path: "" };
            let decision = policy.decide(&asked);
            (
                decision.omits("RequestReceived"),
                decision.omits("ResponseStarted"),
                decision.omit_managed_fields,
            )
        };
        assert_eq!(decision("apps"), (true, true, true));
        assert_eq!(decision(""), (true, false, true));
        assert_eq!(decision("other"), (false, false, false));
    }

    #[test]
    fn bad_policies_are_refused_with_the_place() {
        let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
        for (text, told) in [
            ("{", ""),
            ("[]", "the policy: not an object"),
            ("apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]", "apiVersion:"),
            ("apiVersion: audit.k8s.io/v1\nkind: Pod\nrules: [{level: None}]", "kind:"),
            (head, "rules: there is none"),
            (&format!("{head}rules: []"), "rules: there is none"),
            (&format!("{head}rules: 7"), "rules: not a list"),
            (&format!("{head}rules: [7]"), "rules[0]: not an object"),
            (&format!("{head}rules: [{{level: All}}]"), "rules[0].level: \"All\" is none of None, Metadata"),
            (&format!("{head}rules: [{{}}]"), "rules[0].level"),
            (&format!("{head}rules: [{{level: None, user: [a]}}]"), "rules[0].user: there is no such field"),
            (&format!("{head}rules: [{{level: None, users: a}}]"), "rules[0].users: not a list of texts"),
            (&format!("{head}rules: [{{level: None, omitStages: [X]}}]"), "rules[0].omitStages[0]: \"X\""),
            (&format!("{head}rules: [{{level: None, nonResourceURLs: [a]}}]"), "does not begin"),
            (&format!("{head}rules: [{{level: None, nonResourceURLs: [/a*b]}}]"), "before its end"),
            (
                &format!("{head}rules: [{{level: None, nonResourceURLs: [/a], namespaces: [default]}}]"),
                "both",
            ),
            (&format!("{head}rules: [{{level: None, resources: [{{group: apps/v1}}]}}]"), "has a version"),
            (&format!("{head}rules: [{{level: None, resources: [{{resourceNames: [a]}}]}}]"), "at least one"),
            (&format!("{head}rules: [{{level: None}}]\nomitManagedFields: maybe"), "not true or false"),
        ] {
            let error = AuditPolicy::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
