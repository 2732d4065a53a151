//! Which crate may use which: the table of ARCHITECTURE.md, checked against the manifests.

use std::path::Path;

use anyhow::Result;

use super::Problem;
use crate::workspace::{Dependency, Package, Workspace};

/// A crate's folder, the workspace crates that it may use, and outside crates that it must do without
/// (a name ending in `*` stands for all names that start so).
struct Rule {
    folder: &'static str,
    may_use: &'static [&'static str],
    never: &'static [&'static str],
}

const fn rule(
    folder: &'static str,
    may_use: &'static [&'static str],
    never: &'static [&'static str],
) -> Rule {
    Rule { folder, may_use, never }
}

/// Pure crates: no runtime, no client.
const NO_IO: &[&str] = &["tokio*", "hyper*", "kube*", "k8s-openapi"];
/// The client crates are slow to compile and would tempt the server to know its callers.
const NO_CLIENT: &[&str] = &["kube*", "k8s-openapi"];

/// `runtime`, `controllers`, `node` and the operators never see `apiserver` or `store`: they run unchanged on any
/// cluster. `testkit` is for tests and therefore in no list.
const RULES: &[Rule] = &[
    rule("objects", &[], NO_IO),
    rule("store", &["objects"], NO_CLIENT),
    rule("apiserver", &["objects", "store"], NO_CLIENT),
    rule("sharding", &[], NO_IO),
    rule("runtime", &["objects", "sharding"], &[]),
    rule("controllers", &["objects", "runtime", "sharding"], &[]),
    rule("node", &["objects", "runtime", "sharding"], &[]),
    rule("application", &["objects", "runtime", "sharding"], &[]),
    rule("etcd", &["runtime", "sharding"], &[]),
    rule("kubeocean", &["runtime", "sharding"], &[]),
    rule("console", &["runtime", "sharding"], &[]),
    rule("testkit", &["objects", "store", "apiserver"], &[]),
    rule(
        "shoal",
        &[
            "objects",
            "store",
            "apiserver",
            "sharding",
            "runtime",
            "controllers",
            "node",
            "application",
            "etcd",
            "kubeocean",
            "console",
        ],
        &[],
    ),
];

pub(super) fn check(workspace: &Workspace) -> Result<Vec<Problem>> {
    let crates = workspace.root.join("crates");
    let mut problems = Vec::new();
    for package in &workspace.packages {
        if package.folder().parent() != Some(crates.as_path()) {
            continue;
        }
        let manifest = &package.manifest_path;
        let folder = package.folder().file_name().unwrap_or_default().to_string_lossy();
        if package.name != package_name(&folder) {
            problems.push(Problem::at(manifest, 0, format!("must be called {}", package_name(&folder))));
        }
        let Some(rule) = RULES.iter().find(|rule| rule.folder == folder) else {
            let message = "is not in the table of arrows (xtask/src/tidy/arrows.rs): say what it may use";
            problems.push(Problem::at(manifest, 0, message));
            continue;
        };
        problems.extend(
            forbidden(package, rule)
                .map(|(name, message)| Problem::at(manifest, line_of(manifest, name), message)),
        );
    }
    Ok(problems)
}

fn forbidden<'a>(package: &'a Package, rule: &'a Rule) -> impl Iterator<Item = (&'a str, String)> {
    package.dependencies.iter().filter_map(|dependency| {
        let name = dependency.name.as_str();
        refusal(dependency, rule).map(|message| (name, message))
    })
}

fn refusal(dependency: &Dependency, rule: &Rule) -> Option<String> {
    let name = dependency.name.as_str();
    let for_tests = dependency.kind.as_deref() == Some("dev");
    let folder = name.strip_prefix("shoal-").unwrap_or(name);
    if name == "shoal" {
        return Some("nothing may use the binary crate shoal".to_owned());
    }
    if for_tests {
        return None;
    }
    if name == "shoal-testkit" {
        return Some("testkit is a dev-dependency only".to_owned());
    }
    if name.starts_with("shoal-") && !rule.may_use.contains(&folder) {
        return Some(format!("{} may not use {folder}; it may use: {:?}", rule.folder, rule.may_use));
    }
    let banned = rule.never.iter().find(|banned| match banned.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => **banned == name,
    });
    banned.map(|_| format!("{} must do without {name}", rule.folder))
}

fn package_name(folder: &str) -> String {
    if folder == "shoal" { folder.to_owned() } else { format!("shoal-{folder}") }
}

/// Where the manifest names the dependency.
fn line_of(manifest: &Path, name: &str) -> usize {
    let text = std::fs::read_to_string(manifest).unwrap_or_default();
    let names_it = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '=', '.']));
    text.lines().position(names_it).map_or(0, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::{RULES, refusal};
    use crate::workspace::Dependency;

    fn refused(folder: &str, name: &str, kind: Option<&str>) -> bool {
        let rule = RULES.iter().find(|rule| rule.folder == folder).unwrap();
        refusal(&Dependency { name: name.to_owned(), kind: kind.map(str::to_owned) }, rule).is_some()
    }

    #[test]
    fn what_runs_on_any_cluster_never_sees_the_server() {
        for folder in ["runtime", "controllers", "node", "application", "etcd", "kubeocean"] {
            assert!(refused(folder, "shoal-apiserver", None), "{folder}");
            assert!(refused(folder, "shoal-store", None), "{folder}");
        }
    }

    #[test]
    fn nothing_uses_the_binary() {
        assert!(RULES.iter().all(|rule| refused(rule.folder, "shoal", None)));
        assert!(refused("store", "shoal", Some("dev")));
    }

    #[test]
    fn pure_crates_have_no_runtime_and_no_client() {
        for folder in ["objects", "sharding"] {
            for name in ["tokio", "tokio-rustls", "kube", "kube-client", "k8s-openapi"] {
                assert!(refused(folder, name, None), "{folder} {name}");
            }
        }
        assert!(refused("apiserver", "kube", None));
        assert!(!refused("apiserver", "tokio", None));
    }

    #[test]
    fn the_testkit_is_for_tests() {
        assert!(refused("runtime", "shoal-testkit", None));
        assert!(!refused("runtime", "shoal-testkit", Some("dev")));
    }
}
