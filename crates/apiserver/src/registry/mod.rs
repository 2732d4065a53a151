//! Which resources are served, and how each behaves where kinds differ: one entry per group, version and resource.

pub mod custom;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use shoal_objects::schema::TypeId;

use crate::builtin;
use crate::kinds::{self, Rules};
use custom::CustomKind;
use shoal_store::Object;

/// A served resource.
pub struct Resource {
    /// API group, empty for core.
    pub group: Box<str>,
    /// Version within the group.
    pub version: Box<str>,
    /// Plural name as in paths.
    pub plural: Box<str>,
    /// Singular name.
    pub singular: Box<str>,
    /// Kind of its objects.
    pub kind: Box<str>,
    /// Kind of its lists.
    pub list_kind: Box<str>,
    /// `v1` or `apps/v1`.
    pub api_version: Box<str>,
    /// Lives in a namespace.
    pub namespaced: bool,
    /// What can be done with it, sorted.
    pub verbs: Vec<Box<str>>,
    /// Short names for the command line.
    pub short_names: Vec<Box<str>>,
    /// Categories such as `all`.
    pub categories: Vec<Box<str>>,
    /// Subresources, sorted by name.
    pub subresources: Vec<Subresource>,
    /// Behaviour that is the same mechanism for all kinds but switched per kind.
    pub traits: Traits,
    /// Table of the store; shared by versions and groups that show the same objects.
    pub table: Arc<str>,
    /// Conversion between this version and the stored one.
    pub conversion: Conversion,
    /// The type of its objects.
    pub type_id: Option<TypeId>,
    /// Defaults and validation.
    pub rules: Rules,
    /// Field selectors beyond `metadata.name` and `metadata.namespace`.
    pub fields: &'static [&'static str],
    /// What makes it a custom kind.
    pub custom: Option<Arc<CustomKind>>,
}

/// A subresource of a resource.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// `status`
    pub name: Box<str>,
    /// Kind of what it takes and gives.
    pub kind: Box<str>,
    /// Group of that kind when it is not the resource's.
    pub group: &'static str,
    /// Version of that kind when it is not the resource's.
    pub version: &'static str,
    /// What can be done with it.
    pub verbs: &'static [&'static str],
}

/// Switches per kind; see the table for their meaning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traits {
    /// Has a status subresource.
    pub status: bool,
    /// `metadata.generation` counts changes of the spec.
    pub generation: bool,
    /// DELETE answers the object.
    pub delete_returns_object: bool,
    /// PUT creates what is missing.
    pub create_on_update: bool,
    /// PUT must name a resourceVersion.
    pub conditional_update: bool,
    /// Dependents are orphaned by default.
    pub orphan_dependents: bool,
    /// A status given on create is kept.
    pub keeps_status: bool,
    /// Labels and annotations can be changed through the status subresource.
    pub open_status: bool,
}

/// How objects of this version differ from the stored ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// Not at all.
    None,
    /// autoscaling/v1 over autoscaling/v2.
    AutoscalingV1,
    /// events.k8s.io/v1 over v1.
    EventsV1,
}

/// All served resources.
pub struct Registry {
    resources: Vec<Arc<Resource>>,
    /// Sorted by group, version and plural.
    by_path: Vec<usize>,
    versions: Vec<usize>,
}

const TABLE: &str = include_str!("resources.txt");
const ALL: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const READ_WRITE: &[&str] = &["get", "patch", "update"];

impl Registry {
    /// The built-in resources.
    pub fn builtin() -> Registry {
        // The table is the same for every cluster of the process: read once, shared by all.
        static BUILTIN: LazyLock<Vec<Arc<Resource>>> = LazyLock::new(|| {
            let lines = TABLE.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty());
            lines.filter_map(parse_line).map(Arc::new).collect()
        });
        Registry::new(BUILTIN.clone())
    }

    /// The built-in resources of this registry with these custom ones. What is built in is not replaced.
    pub fn with_custom<'a>(&self, custom: impl Iterator<Item = &'a Arc<Resource>>) -> Registry {
        let mut resources: Vec<Arc<Resource>> =
            self.resources.iter().filter(|r| r.custom.is_none()).cloned().collect();
        let builtin = Registry::new(resources.clone());
        resources.extend(custom.filter(|r| builtin.find(&r.group, &r.version, &r.plural).is_none()).cloned());
        Registry::new(resources)
    }

    fn new(resources: Vec<Arc<Resource>>) -> Registry {
        let mut by_path: Vec<usize> = (0..resources.len()).collect();
        by_path.sort_by(|a, b| resources[*a].path().cmp(&resources[*b].path()));
        let versions = version_order(&resources);
        Registry { resources, by_path, versions }
    }

    /// Finds a resource by the words of its path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let wanted = (group, version, plural);
        // Of several the last one counts.
        let end = self.by_path.partition_point(|at| self.resources[*at].path() <= wanted);
        let found = &self.resources[*self.by_path.get(end.checked_sub(1)?)?];
        (found.path() == wanted).then_some(found)
    }

    /// All resources, in table order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.iter()
    }

    /// Group versions in the order of discovery: groups as first seen, versions as listed.
    pub fn group_versions(&self) -> Vec<(&str, &str)> {
        self.versions.iter().map(|at| &self.resources[*at]).map(|r| (&*r.group, &*r.version)).collect()
    }

    /// Whether the group is one of the server's own.
    pub fn has_builtin_group(&self, group: &str) -> bool {
        self.resources.iter().any(|r| &*r.group == group && r.custom.is_none())
    }
}

/// The first resource of every group version: groups as first seen, versions as listed. Several definitions may add
/// versions to one group, so those of custom groups are put in order of preference.
fn version_order(resources: &[Arc<Resource>]) -> Vec<usize> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut position: HashMap<&str, usize> = HashMap::new();
    let mut seen: HashSet<(&str, &str)> = HashSet::new();
    for (at, resource) in resources.iter().enumerate() {
        if seen.insert((&resource.group, &resource.version)) {
            let next = groups.len();
            let group = *position.entry(&resource.group).or_insert(next);
            if group == next {
                groups.push(Vec::new());
            }
            groups[group].push(at);
        }
    }
    for group in &mut groups {
        if group.iter().any(|at| resources[*at].custom.is_some()) {
            group.sort_by(|a, b| custom::version_order(&resources[*a].version, &resources[*b].version));
        }
    }
    groups.concat()
}

impl Resource {
    /// What paths call it: group, version and plural.
    fn path(&self) -> (&str, &str, &str) {
        (&self.group, &self.version, &self.plural)
    }

    /// Whether a stored object can be shown without conversion.
    pub fn shows_as_stored(&self, object: &Object) -> bool {
        self.conversion == Conversion::None
            && self.custom.as_ref().is_none_or(|custom| custom.is_verbatim(object.revision))
    }

    /// `deployments.apps`, or `pods` for the core group.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_string()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// `Deployment.apps`, or `Pod` for the core group.
    pub fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.to_string() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// The group that validation errors name. The real server forgets it for events.k8s.io.
    pub fn error_group(&self) -> &str {
        if self.conversion == Conversion::EventsV1 { "" } else { &self.group }
    }

    /// Whether the verb is offered on the resource itself.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| &**v == verb)
    }

    /// Finds a subresource.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| &*s.name == name)
    }

    /// The key in the store.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }
}

fn parse_line(line: &str) -> Option<Resource> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [api_version, plural, kind, scope, verbs, short, categories, subs, flags] = words[..] else {
        return None;
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let list = |s: &str| -> Vec<Box<str>> {
        s.split(',').filter(|w| *w != "-" && !w.is_empty()).map(Box::from).collect()
    };
    let verbs = match verbs {
        "*" => ALL.iter().copied().map(Box::from).collect(),
        "-c" => ALL.iter().copied().filter(|v| *v != "deletecollection").map(Box::from).collect(),
        only => list(&only[1..]),
    };
    let subresources: Vec<Subresource> = list(subs).iter().map(|s| subresource(s, kind)).collect();
    let flag = |name: &str| flags.split(',').any(|f| f == name);
    let (table, conversion) = match (group, version, plural) {
        ("events.k8s.io", _, "events") => ("events".to_owned(), Conversion::EventsV1),
        ("autoscaling", "v1", _) => (format!("{group}/{plural}"), Conversion::AutoscalingV1),
        ("", _, _) => (plural.to_owned(), Conversion::None),
        _ => (format!("{group}/{plural}"), Conversion::None),
    };
    Some(Resource {
        group: group.into(),
        version: version.into(),
        plural: plural.into(),
        singular: kind.to_lowercase().into(),
        kind: kind.into(),
        list_kind: format!("{kind}List").into(),
        api_version: api_version.into(),
        namespaced: scope == "N",
        verbs,
        short_names: list(short),
        categories: list(categories),
        traits: Traits {
            status: subresources.iter().any(|s| &*s.name == "status"),
            generation: flag("gen"),
            delete_returns_object: flag("obj"),
            create_on_update: flag("upsert"),
            conditional_update: flag("rv"),
            orphan_dependents: flag("orphan"),
            keeps_status: flag("keepstatus"),
            open_status: flag("open"),
        },
        subresources,
        table: table.into(),
        conversion,
        type_id: builtin::type_of(group, version, kind),
        rules: kinds::rules(group, version, plural),
        fields: kinds::fields::supported(group, plural),
        custom: None,
    })
}

fn subresource(name: &str, parent: &str) -> Subresource {
    const CONNECT: &[&str] = &["create", "get"];
    let (kind, group, version, verbs): (&str, _, _, &'static [&'static str]) = match name {
        "scale" => ("Scale", "autoscaling", "v1", READ_WRITE),
        "binding" => ("Binding", "", "", &["create"]),
        "eviction" => ("Eviction", "policy", "v1", &["create"]),
        "token" => ("TokenRequest", "authentication.k8s.io", "v1", &["create"]),
        "log" => (parent, "", "", &["get"]),
        "exec" => ("PodExecOptions", "", "", CONNECT),
        "attach" => ("PodAttachOptions", "", "", CONNECT),
        "portforward" => ("PodPortForwardOptions", "", "", CONNECT),
        "proxy" => (
            match parent {
                "Node" => "NodeProxyOptions",
                "Service" => "ServiceProxyOptions",
                _ => "PodProxyOptions",
            },
            "",
            "",
            &["create", "delete", "get", "patch", "update"],
        ),
        "finalize" => (parent, "", "", &["update"]),
        _ => (parent, "", "", READ_WRITE),
    };
    Subresource { name: name.into(), kind: kind.into(), group, version, verbs }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_resource_with_a_type() {
        let lines = TABLE.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty()).count();
        let registry = Registry::builtin();
        assert_eq!(registry.iter().count(), lines);
        for r in registry.iter() {
            assert!(r.type_id.is_some(), "{} {} has no type", r.api_version, r.kind);
        }
    }
}
