//! `cargo xtask tidy`: what the compiler and clippy do not check about the shape of the tree.

mod arrows;
mod docs;
mod lexer;
mod requirements;
mod sources;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::workspace::Workspace;

/// Something to put right.
struct Problem {
    file: PathBuf,
    /// From 1; 0 when it concerns the whole file.
    line: usize,
    message: String,
}

impl Problem {
    fn at(file: &Path, line: usize, message: impl Into<String>) -> Self {
        Problem { file: file.to_path_buf(), line, message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(out, "{}: {}", self.file.display(), self.message),
            line => write!(out, "{}:{line}: {}", self.file.display(), self.message),
        }
    }
}

/// Prints every problem as `file:line: what`; true if there is none.
pub fn run() -> Result<bool> {
    let workspace = Workspace::load()?;
    let mut problems = arrows::check(&workspace)?;
    problems.extend(sources::check(&workspace)?);
    problems.extend(docs::check(&workspace)?);
    problems.extend(requirements::check(&workspace)?);
    problems.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    for problem in &mut problems {
        problem.file = workspace.relative(&problem.file).to_path_buf();
        println!("{problem}");
    }
    match problems.len() {
        0 => println!("tidy: nothing to complain about"),
        count => println!("tidy: {count} things to put right"),
    }
    Ok(problems.is_empty())
}

/// All files below a folder with this extension, in a fixed order. Build output and hidden folders are left out.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
