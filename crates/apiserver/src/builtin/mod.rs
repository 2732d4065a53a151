//! The types of the built-in kinds, read from the generated table.

#[cfg(test)]
pub(crate) mod random;
mod table;

use std::collections::HashMap;
use std::sync::LazyLock;

use shoal_objects::schema::{TypeId, Types};

static TABLE: LazyLock<table::Table> = LazyLock::new(|| {
    let table = table::read(include_str!("types.txt"));
    for line in &table.problems {
        tracing::error!(line, "the table of built-in types is damaged");
    }
    table
});

static DESCRIPTIONS: LazyLock<Descriptions> =
    LazyLock::new(|| Descriptions::read(include_str!("descriptions.txt")));

/// All types of Kubernetes 1.36.
pub fn types() -> &'static Types {
    &TABLE.types
}

/// The type of a built-in kind. Options that every group shares (`DeleteOptions`, `WatchEvent`) are found in all of them.
pub fn type_of(group: &str, version: &str, kind: &str) -> Option<TypeId> {
    let (group, version) = match kind {
        "DeleteOptions" | "WatchEvent" => ("", "v1"),
        _ => (group, version),
    };
    TABLE.kinds.get(kind)?.iter().find(|k| k.group == group && k.version == version).map(|k| k.id)
}

/// Group, version and kind of every type that has them.
pub fn kinds() -> impl Iterator<Item = (&'static str, &'static str, &'static str, TypeId)> {
    TABLE.kinds.iter().flat_map(|(kind, all)| all.iter().map(move |k| (k.group, k.version, *kind, k.id)))
}

/// What types and fields are for. Only read when somebody asks for OpenAPI.
pub fn descriptions() -> &'static Descriptions {
    &DESCRIPTIONS
}

/// Texts by type and field.
#[derive(Debug)]
pub struct Descriptions {
    texts: HashMap<&'static str, Box<str>>,
}

impl Descriptions {
    fn read(text: &'static str) -> Descriptions {
        let mut texts = HashMap::new();
        let mut current = "";
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            match line.strip_prefix(' ') {
                Some(name) => {
                    texts.insert(name, unescape(current));
                }
                None => current = line,
            }
        }
        Descriptions { texts }
    }

    /// What the type is.
    pub fn of_type(&self, type_name: &str) -> Option<&str> {
        self.texts.get(type_name).map(|text| &**text)
    }

    /// What the field of the type is.
    pub fn of_field(&self, type_name: &str, field: &str) -> Option<&str> {
        self.of_type(&format!("{type_name}.{field}"))
    }
}

fn unescape(text: &str) -> Box<str> {
    if !text.contains('\\') {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.next() == Some('n') => out.push('\n'),
            other => out.push(other),
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use shoal_objects::schema::{Empty, Field, ListType, Shape};

    use super::*;

    fn field(kind: &str, name: &str) -> &'static Field {
        let id = types().find(kind).expect(kind);
        types().get(id).field(name).expect(name)
    }

    #[test]
    fn every_line_of_the_table_is_understood() {
        assert_eq!(TABLE.problems, Vec::<String>::new());
        assert!(types().iter().count() > 700);
        assert!(kinds().count() > 180);
    }

    #[test]
    fn a_kind_is_found_by_group_and_version() {
        let id = type_of("apps", "v1", "Deployment").expect("Deployment");
        assert_eq!(&*types().get(id).name, "io.k8s.api.apps.v1.Deployment");
        assert!(type_of("apps", "v1beta1", "Deployment").is_none());
        assert_eq!(type_of("batch", "v1", "DeleteOptions"), type_of("", "v1", "DeleteOptions"));
    }

    #[test]
    fn list_keys_and_patch_strategies_are_read() {
        let ports = field("io.k8s.api.core.v1.Container", "ports");
        assert_eq!(ports.list, ListType::Map(vec!["containerPort".into(), "protocol".into()]));
        assert_eq!(ports.patch.merge_key.as_deref(), Some("containerPort"));
        let strategy = field("io.k8s.api.apps.v1.DeploymentSpec", "strategy");
        assert!(strategy.patch.retain_keys && !strategy.patch.merge);
        let volumes = field("io.k8s.api.core.v1.PodSpec", "volumes");
        assert!(volumes.patch.retain_keys && volumes.patch.merge);
    }

    #[test]
    fn embedded_messages_have_a_path() {
        let empty_dir = field("io.k8s.api.core.v1.Volume", "emptyDir");
        assert_eq!((empty_dir.tag, empty_dir.embedded.as_slice()), (2, [2].as_slice()));
        let groups = field("io.k8s.api.admissionregistration.v1.NamedRuleWithOperations", "apiGroups");
        assert_eq!((groups.tag, groups.embedded.as_slice()), (1, [2, 2].as_slice()));
        let verbs = field("io.k8s.apimachinery.pkg.apis.meta.v1.APIResource", "verbs");
        assert_eq!((verbs.tag, verbs.embedded.as_slice()), (1, [4].as_slice()));
    }

    #[test]
    fn go_knows_which_empty_fields_are_written() {
        assert_eq!(field("io.k8s.api.core.v1.PodSpec", "hostNetwork").empty, Empty::Omitted);
        assert_eq!(field("io.k8s.api.apps.v1.DeploymentSpec", "replicas").empty, Empty::Kept);
        assert_eq!(field("io.k8s.api.core.v1.Container", "resources").empty, Empty::Zero);
        assert_eq!(field("io.k8s.api.rbac.v1.Role", "rules").empty, Empty::Null);
    }

    #[test]
    fn schemas_of_custom_resources_refer_to_themselves() {
        let items =
            field("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps", "items");
        let Shape::ObjectOr(id, other) = &items.shape else { unreachable!("{items:?}") };
        assert_eq!(**other, Shape::List(Box::new(Shape::Object(*id))));
    }

    #[test]
    fn descriptions_are_found_by_type_and_field() {
        let texts = descriptions();
        assert_eq!(texts.of_type("io.k8s.api.core.v1.PodSpec"), Some("PodSpec is a description of a pod."));
        assert!(
            texts
                .of_field("io.k8s.api.core.v1.PodSpec", "containers")
                .is_some_and(|t| t.contains("containers"))
        );
        assert_eq!(texts.of_field("io.k8s.api.core.v1.PodSpec", "nothing"), None);
    }
}
