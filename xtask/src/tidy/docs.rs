//! Markdown: links that lead somewhere, and an ARCHITECTURE.md that names every crate.

use std::path::Path;

use anyhow::{Context, Result};

use super::{Problem, files};
use crate::workspace::Workspace;

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const ARCHITECTURE_LINES: usize = 500;

pub(super) fn check(workspace: &Workspace) -> Result<Vec<Problem>> {
    let mut problems = architecture(workspace)?;
    for file in files(&workspace.root, "md")? {
        let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        for (line, target) in links(&text) {
            if let Some(message) = broken(&file, &text, &target) {
                problems.push(Problem::at(&file, line, message));
            }
        }
    }
    Ok(problems)
}

fn architecture(workspace: &Workspace) -> Result<Vec<Problem>> {
    let file = workspace.root.join(ARCHITECTURE);
    let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let mut problems = Vec::new();
    let lines = text.lines().count();
    if lines > ARCHITECTURE_LINES {
        let message = format!("{lines} lines, at most {ARCHITECTURE_LINES}: details belong into module docs");
        problems.push(Problem::at(&file, 0, message));
    }
    for package in &workspace.packages {
        let folder = workspace.relative(package.folder()).display().to_string();
        if !text.contains(&format!("`{folder}`")) {
            problems.push(Problem::at(&file, 0, format!("does not name the crate `{folder}`")));
        }
    }
    Ok(problems)
}

/// Targets of inline links with their lines; what stands in code is not a link.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced || line.starts_with("    ") {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for part in prose.split("](").skip(1) {
            if let Some((target, _)) = part.split_once(')') {
                found.push((index + 1, target.to_owned()));
            }
        }
    }
    found
}

fn broken(file: &Path, text: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    if path.is_empty() {
        return lacks_heading(text, heading).then(|| format!("no heading #{heading} in this file"));
    }
    let linked = file.parent().unwrap_or(Path::new(".")).join(path);
    if !linked.exists() {
        return Some(format!("link to {path}, which does not exist"));
    }
    let other = std::fs::read_to_string(linked).ok()?;
    lacks_heading(&other, heading).then(|| format!("no heading #{heading} in {path}"))
}

fn lacks_heading(text: &str, wanted: &str) -> bool {
    !wanted.is_empty()
        && !text.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line) == wanted)
}

/// How hosts that render Markdown name a heading in a link.
fn anchor(heading: &str) -> String {
    let title = heading.trim_start_matches('#').trim().to_lowercase();
    title
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{broken, links};

    #[test]
    fn links_are_found_outside_code_only() {
        let text = "see [a](x.md) and [b](y.md#z)\n`[c](no.md)`\n```\n[d](no.md)\n```\n    [e](no.md)\n";
        assert_eq!(links(text), [(1, "x.md".to_owned()), (1, "y.md#z".to_owned())]);
    }

    #[test]
    fn a_link_must_lead_to_a_file_or_a_heading() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("x.md");
        let text = "# The test ladder\n";
        assert!(broken(&file, text, "Cargo.toml").is_none());
        assert!(broken(&file, text, "#the-test-ladder").is_none());
        assert!(broken(&file, text, "https://example.com/x").is_none());
        assert!(broken(&file, text, "missing.md").is_some());
        assert!(broken(&file, text, "#no-such").is_some());
    }
}
