//! What cargo knows about this workspace.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// The part of `cargo metadata --no-deps` that the tasks need.
#[derive(Deserialize)]
pub struct Workspace {
    /// Folder of the root manifest.
    #[serde(rename = "workspace_root")]
    pub root: PathBuf,
    /// Where cargo builds; tools and test servers live below it too.
    #[serde(rename = "target_directory")]
    pub target: PathBuf,
    /// The members.
    pub packages: Vec<Package>,
}

/// One member.
#[derive(Deserialize)]
pub struct Package {
    /// Name in its manifest.
    pub name: String,
    /// Its manifest.
    pub manifest_path: PathBuf,
    /// What it names as dependencies, of all sorts.
    pub dependencies: Vec<Dependency>,
    /// Libraries, binaries, tests, examples.
    pub targets: Vec<Target>,
}

/// One entry in a manifest's dependency tables.
#[derive(Deserialize)]
pub struct Dependency {
    /// Package name.
    pub name: String,
    /// None for a normal dependency, else "dev" or "build".
    pub kind: Option<String>,
}

/// One thing cargo builds.
#[derive(Deserialize)]
pub struct Target {
    /// Its root file.
    pub src_path: PathBuf,
}

/// How to build.
#[derive(Clone, Copy)]
pub enum Profile {
    /// Quick to build.
    Debug,
    /// Quick to run.
    Release,
}

impl Workspace {
    /// Asks cargo.
    pub fn load() -> Result<Self> {
        let output = cargo()
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .output()
            .context("running cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        serde_json::from_slice(&output.stdout).context("reading cargo metadata")
    }

    /// Builds a package's binary of the same name and says where it is.
    pub fn build(&self, package: &str, profile: Profile) -> Result<PathBuf> {
        let mut command = cargo();
        command.args(["build", "--package", package]);
        let folder = match profile {
            Profile::Debug => "debug",
            Profile::Release => {
                command.arg("--release");
                "release"
            }
        };
        if !command.status().with_context(|| format!("building {package}"))?.success() {
            bail!("{package} does not build");
        }
        Ok(self.target.join(folder).join(package))
    }

    /// A file's path as people write it: relative to the root.
    pub fn relative<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.root).unwrap_or(path)
    }
}

impl Package {
    /// The folder of the manifest.
    pub fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(Path::new("."))
    }
}

/// The cargo that runs this task.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // `cargo run` sets these for xtask; a build script of a child build would see the wrong package.
    for (key, _) in std::env::vars_os() {
        if key.to_str().is_some_and(|key| key.starts_with("CARGO_PKG_") || key.starts_with("CARGO_MANIFEST_"))
        {
            command.env_remove(key);
        }
    }
    command
}
