//! `docs/requirements.md`: every row is there, and the tests it names exist.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

use super::Problem;
use crate::workspace::Workspace;

const FILE: &str = "docs/requirements.md";

/// The rows: a section's prefix and how many it has, numbered from 1. S0 to S4 are the founding documents,
/// E is the embedded cluster.
const SECTIONS: &[(&str, usize)] = &[("S0", 17), ("S1", 12), ("S2", 11), ("S3", 9), ("S4", 7), ("E", 14)];

pub(super) fn check(workspace: &Workspace) -> Result<Vec<Problem>> {
    let file = workspace.root.join(FILE);
    let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    Ok(problems(&text, &|path| std::fs::read_to_string(workspace.root.join(path)).ok())
        .into_iter()
        .map(|(line, message)| Problem::at(&file, line, message))
        .collect())
}

fn problems(text: &str, read: &dyn Fn(&Path) -> Option<String>) -> Vec<(usize, String)> {
    let mut problems = Vec::new();
    let mut seen = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [id, _, tests, status] = cells[..] else { continue };
        if !is_row(id) {
            continue;
        }
        let number = index + 1;
        if let Some(first) = seen.insert(id.to_owned(), number) {
            problems.push((number, format!("{id} is already in line {first}")));
        }
        let tests: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        problems.extend(tests.iter().filter_map(|test| missing(test, read)).map(|message| (number, message)));
        match (status, tests.is_empty()) {
            ("open", true) | ("part" | "done", false) => {}
            ("open", false) => problems.push((number, format!("{id} has tests: its status is part or done"))),
            ("part" | "done", true) => problems.push((number, format!("{id} is {status} but names no test"))),
            _ => problems
                .push((number, format!("the status of {id} must be open, part or done, not {status:?}"))),
        }
    }
    for (prefix, count) in SECTIONS {
        for number in 1..=*count {
            let id = format!("{prefix}.{number}");
            if !seen.contains_key(&id) {
                problems.push((0, format!("{id} is missing")));
            }
        }
    }
    problems
}

fn is_row(id: &str) -> bool {
    id.split_once('.').is_some_and(|(prefix, number)| {
        SECTIONS.iter().any(|(known, _)| *known == prefix) && number.parse::<usize>().is_ok()
    })
}

/// A test is `path/to/file.rs::name_of_the_test`, or a file of its own such as a scenario.
fn missing(test: &str, read: &dyn Fn(&Path) -> Option<String>) -> Option<String> {
    let (path, function) = test.split_once("::").unwrap_or((test, ""));
    let Some(source) = read(Path::new(path)) else {
        return Some(format!("names a test in {path}, which does not exist"));
    };
    let there = function.is_empty() || source.contains(&format!("fn {function}("));
    (!there).then(|| format!("{path} has no test {function}"))
}

#[cfg(test)]
mod tests {
    use super::{SECTIONS, problems};

    fn document(change: &str, to: &str) -> String {
        let rows =
            SECTIONS.iter().flat_map(|(prefix, count)| (1..=*count).map(move |n| format!("{prefix}.{n}")));
        let lines: String = rows.map(|id| format!("| {id} | words | – | open |\n")).collect();
        lines.replace(change, to)
    }

    fn messages(text: &str) -> Vec<String> {
        let read = |path: &std::path::Path| (path.ends_with("t.rs")).then(|| "fn it_holds() {}".to_owned());
        problems(text, &read).into_iter().map(|(_, message)| message).collect()
    }

    #[test]
    fn a_complete_list_is_fine() {
        assert!(messages(&document("", "")).is_empty());
        assert!(
            messages(&document("| S1.4 | words | – | open |", "| S1.4 | w | `a/t.rs::it_holds` | done |"))
                .is_empty()
        );
    }

    #[test]
    fn a_missing_row_is_told() {
        assert_eq!(messages(&document("| S2.3 |", "| x |")), ["S2.3 is missing"]);
    }

    #[test]
    fn tests_must_exist() {
        let row = "| S1.4 | words | – | open |";
        assert_eq!(
            messages(&document(row, "| S1.4 | w | `a/t.rs::gone` | part |")),
            ["a/t.rs has no test gone"]
        );
        assert_eq!(messages(&document(row, "| S1.4 | w | `b.rs::x` | part |")).len(), 1);
        assert_eq!(messages(&document(row, "| S1.4 | w | – | done |")), ["S1.4 is done but names no test"]);
    }
}
