//! Rust files: size, module docs, names, and that every one of them belongs to a crate.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::lexer::code_only;
use super::{Problem, files};
use crate::workspace::Workspace;

const MAX_CODE_LINES: usize = 800;
/// Names that say nothing about what is inside.
const VAGUE: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc"];
/// Code that must not stay, and why.
const UNFINISHED: &[(&str, &str)] = &[
    ("#[ignore", "tests are never ignored: repair it, or make it part of `xtask soak`"),
    ("todo!(", "finish it, or return an error that says what is missing"),
    ("unimplemented!(", "finish it, or return an error that says what is missing"),
];

pub(super) fn check(workspace: &Workspace) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for package in &workspace.packages {
        let mut reached = BTreeSet::new();
        for target in &package.targets {
            reach(&target.src_path, true, &mut reached)?;
        }
        for file in files(package.folder(), "rs")? {
            // A folder of its own workspace below this one answers for itself.
            if owner(&file, package.folder()) != package.folder() {
                continue;
            }
            let text = read(&file)?;
            if !reached.contains(&file) {
                problems.push(Problem::at(&file, 0, "belongs to no crate: no `mod` names it"));
            }
            problems.extend(check_file(&file, &text));
        }
    }
    Ok(problems)
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}

/// The nearest folder above a file that has a manifest.
fn owner<'a>(file: &'a Path, fallback: &'a Path) -> &'a Path {
    file.ancestors().skip(1).find(|folder| folder.join("Cargo.toml").exists()).unwrap_or(fallback)
}

/// Adds the file and all modules below it. A root's modules lie beside it, another file's in a folder of its name.
fn reach(file: &Path, root: bool, reached: &mut BTreeSet<PathBuf>) -> Result<()> {
    if !reached.insert(file.to_path_buf()) || !file.exists() {
        return Ok(());
    }
    let text = read(file)?;
    let beside = file.parent().unwrap_or(Path::new("."));
    let folder =
        if root || file.ends_with("mod.rs") { beside.to_path_buf() } else { file.with_extension("") };
    for line in code_only(&text).lines() {
        if let Some(name) = declared_module(line) {
            let plain = folder.join(format!("{name}.rs"));
            let module = if plain.exists() { plain } else { folder.join(name).join("mod.rs") };
            reach(&module, false, reached)?;
        }
    }
    for line in text.lines() {
        let included =
            line.trim().strip_prefix("include!(\"").or_else(|| line.trim().strip_prefix("#[path = \""));
        if let Some(name) = included.and_then(|rest| rest.split('"').next()) {
            reach(&beside.join(name), false, reached)?;
        }
    }
    Ok(())
}

/// The name in `pub(crate) mod name;`.
fn declared_module(line: &str) -> Option<&str> {
    let (before, after) = line.trim().rsplit_once("mod ")?;
    let visible = before.is_empty() || before.ends_with(' ');
    after.strip_suffix(';').map(str::trim).filter(|name| visible && !name.contains(' '))
}

fn check_file(file: &Path, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let code = code_only(text);
    for (index, line) in code.lines().enumerate() {
        for (word, remedy) in UNFINISHED {
            if line.contains(word) {
                let word = word.trim_end_matches('(');
                problems.push(Problem::at(file, index + 1, format!("`{word}`: {remedy}")));
            }
        }
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let folder = file.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let name = if stem == "mod" { &folder } else { &stem };
    if VAGUE.contains(&name.as_ref()) {
        problems.push(Problem::at(
            file,
            0,
            format!("`{name}` says nothing: name the module after what it is about"),
        ));
    }
    let for_tests = stem == "tests"
        || stem.ends_with("_tests")
        || file.components().any(|part| part.as_os_str() == "tests");
    if !for_tests && !has_module_doc(text) {
        problems.push(Problem::at(file, 1, "no module doc: start with `//!` and say what lives here"));
    }
    let generated = text.lines().take(10).any(|line| line.contains("@generated"));
    let lines = code_lines(&code);
    if !for_tests && !generated && lines > MAX_CODE_LINES {
        let message = format!("{lines} lines of code, at most {MAX_CODE_LINES}: split it by what it does");
        problems.push(Problem::at(file, 0, message));
    }
    problems
}

fn has_module_doc(text: &str) -> bool {
    text.lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with("#!"))
        .is_some_and(|line| line.starts_with("//!"))
}

/// Lines with code, up to the tests at the end of the file.
fn code_lines(code: &str) -> usize {
    let tests = code.find("\n#[cfg(test)]\nmod ").unwrap_or(code.len());
    code[..tests].lines().filter(|line| !line.trim().is_empty()).count()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{check_file, code_lines, declared_module};

    fn messages(path: &str, text: &str) -> Vec<String> {
        check_file(Path::new(path), text).into_iter().map(|problem| problem.to_string()).collect()
    }

    #[test]
    fn a_tidy_file_has_nothing_to_complain_about() {
        assert!(messages("crates/store/src/journal.rs", "#![allow(x)]\n//! Doc.\nfn f() {}\n").is_empty());
    }

    #[test]
    fn each_fault_is_told_with_its_line() {
        let found = messages("crates/store/src/utils.rs", "fn f() {\n    todo!()\n}\n#[ignore]\nfn g() {}\n");
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].starts_with("crates/store/src/utils.rs:2: `todo!`"), "{found:?}");
        assert!(found[1].contains(":4: `#[ignore`"), "{found:?}");
    }

    #[test]
    fn words_in_strings_and_comments_are_no_fault() {
        assert!(messages("a.rs", "//! Never todo!().\nconst A: &str = \"#[ignore]\";\n").is_empty());
    }

    #[test]
    fn comments_blank_lines_and_tests_are_not_counted() {
        let text = super::code_only(
            "//! Doc.\n\nfn f() {}\n// why\nfn g() {}\n\n#[cfg(test)]\nmod tests {\n fn t() {}\n}\n",
        );
        assert_eq!(code_lines(&text), 2);
    }

    #[test]
    fn long_files_are_refused_unless_generated() {
        let long = "fn f() {}\n".repeat(801);
        assert_eq!(messages("a.rs", &format!("//! Doc.\n{long}")).len(), 1);
        assert!(messages("a.rs", &format!("//! Doc. @generated\n{long}")).is_empty());
    }

    #[test]
    fn module_declarations_are_found() {
        assert_eq!(declared_module("mod a;"), Some("a"));
        assert_eq!(declared_module("    pub(crate) mod a;"), Some("a"));
        assert_eq!(declared_module("mod a {"), None);
        assert_eq!(declared_module("let x = mod_y;"), None);
    }
}
