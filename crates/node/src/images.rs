//! Image references and the local commands that they stand for.
//!
//! Nothing is pulled: a table says which command of this machine an image is. Users extend it with a file:
//!
//! ```yaml
//! images:
//! - image: "registry.example/team/web:*"
//!   command: ["/opt/web/bin/web"]
//!   args: ["--listen", ":8080"]
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

/// Stands for this program in the table; [`crate::sandbox`] knows where it is inside a container.
pub const SELF: &str = "@shoal";

/// What an image is on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Which references: a name or a whole reference, `*` for any text; without a tag, any tag.
    pub image: String,
    /// What runs unless the container says otherwise (an image's entry point).
    #[serde(default)]
    pub command: Vec<String>,
    /// Arguments unless the container says otherwise (an image's command).
    #[serde(default)]
    pub args: Vec<String>,
    /// Commands that must be there although they are not started at once.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Variables of the image.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Where the command starts.
    #[serde(default, rename = "workingDir")]
    pub working_dir: Option<String>,
}

/// All known images; earlier entries come first.
#[derive(Clone, Debug, Default)]
pub struct ImageTable {
    images: Vec<Image>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableFile {
    #[serde(default)]
    images: Vec<Image>,
}

/// Why an image cannot be run here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// No entry fits.
    #[error(
        "image {image:?} is not in the node's image table: nothing is pulled, add an entry that names a local command (shoal up --images FILE)"
    )]
    Unknown {
        /// The reference.
        image: String,
    },
    /// The entry's command is not installed.
    #[error(
        "image {image:?} needs the command {command:?}, which is not in PATH: install it, or name another one in the image table (shoal up --images FILE)"
    )]
    Missing {
        /// The reference.
        image: String,
        /// What is missing.
        command: String,
    },
}

impl ImageTable {
    /// The table that every node has.
    pub fn built_in() -> ImageTable {
        let image = |image: &str, command: &[&str], args: &[&str]| Image {
            image: image.to_owned(),
            command: command.iter().map(ToString::to_string).collect(),
            args: args.iter().map(ToString::to_string).collect(),
            ..Image::default()
        };
        let shell = |name: &str| image(name, &[], &["sh"]);
        ImageTable {
            images: vec![
                image("shoal", &[SELF], &[]),
                image("echo", &[SELF, "image", "echo"], &[]),
                image("echoserver", &[SELF, "image", "echo"], &[]),
                image("http-echo", &[SELF, "image", "echo"], &[]),
                image("sleeper", &[SELF, "image", "sleeper"], &[]),
                image("pause", &[SELF, "image", "sleeper"], &[]),
                image("etcd", &["etcd"], &[]),
                Image { needs: vec!["python3".to_owned()], ..image("python", &[], &["python3"]) },
                image("nginx", &["nginx", "-g", "daemon off;"], &[]),
                image("redis", &["redis-server"], &[]),
                Image { needs: vec!["node".to_owned()], ..image("node", &["node"], &[]) },
                shell("busybox"),
                shell("alpine"),
                shell("bash"),
                shell("debian"),
                shell("ubuntu"),
            ],
        }
    }

    /// This table with the entries of a file before its own. Programs that the file names by a relative path are found from `folder`,
    /// where the file is; programs without any path, by `$PATH`.
    pub fn extended(mut self, yaml: &str, folder: &Path) -> Result<ImageTable, String> {
        let mut file: TableFile = serde_saphyr::from_str(yaml).map_err(|e| e.to_string())?;
        for image in &mut file.images {
            let program = image.command.first_mut().or(image.args.first_mut());
            for path in program.into_iter().chain(&mut image.needs).filter(|path| path.contains('/')) {
                *path = folder.join(path.trim_start_matches("./")).to_string_lossy().into_owned();
            }
        }
        self.images.splice(0..0, file.images);
        Ok(self)
    }

    /// What a reference stands for. `is_present` tells whether a command can be started.
    pub fn resolve(&self, reference: &str, is_present: &dyn Fn(&str) -> bool) -> Result<&Image, Unresolved> {
        let unknown = || Unresolved::Unknown { image: reference.to_owned() };
        let image = self.images.iter().find(|entry| fits(&entry.image, reference)).ok_or_else(unknown)?;
        let first = image.command.first().or(image.args.first());
        match first.into_iter().chain(&image.needs).find(|command| *command != SELF && !is_present(command)) {
            Some(command) => {
                Err(Unresolved::Missing { image: reference.to_owned(), command: command.clone() })
            }
            None => Ok(image),
        }
    }
}

/// Whether a pattern means a reference: as a whole, or its last part, with any tag if the pattern has none.
fn fits(pattern: &str, reference: &str) -> bool {
    let short = reference.rsplit('/').next().unwrap_or_default();
    let untagged = |text: &str| {
        let text = text.split('@').next().unwrap_or_default();
        match text.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => name.to_owned(),
            _ => text.to_owned(),
        }
    };
    let tagged = |text: &str| match text.rsplit('/').next().is_some_and(|last| last.contains([':', '@'])) {
        true => text.to_owned(),
        false => format!("{text}:latest"),
    };
    let has_tag = pattern.rsplit('/').next().is_some_and(|last| last.contains(':'));
    [reference, short].into_iter().any(|candidate| match has_tag {
        true => matches(pattern, &tagged(candidate)),
        false => matches(pattern, &untagged(candidate)),
    })
}

/// `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

/// Whether a command can be started: a path, or a name found in `path` (as `$PATH`).
pub fn find_command(command: &str, path: &str) -> bool {
    let is_there = |path: &Path| path.is_file();
    if command.contains('/') {
        return is_there(Path::new(command));
    }
    path.split(':').filter(|dir| !dir.is_empty()).any(|dir| is_there(&Path::new(dir).join(command)))
}

/// Command line of a container: what it says itself comes before what its image says, as for any runtime.
pub fn command_line(image: &Image, command: &[String], args: &[String]) -> Vec<String> {
    let entry = if command.is_empty() { &image.command } else { command };
    let rest: &[String] = match (args.is_empty(), command.is_empty()) {
        (false, _) => args,
        (true, true) => &image.args,
        (true, false) => &[],
    };
    entry.iter().chain(rest).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn references_are_found_by_name_whatever_registry_and_tag() {
        let table = ImageTable::built_in();
        let all = |_: &str| true;
        for reference in ["echo", "echo:1", "docker.io/library/echo:latest", "echo@sha256:00"] {
            assert_eq!(table.resolve(reference, &all).unwrap().command[2], "echo", "{reference}");
        }
        assert_eq!(table.resolve("registry.k8s.io/pause:3.10", &all).unwrap().command[2], "sleeper");
        assert_eq!(table.resolve("quay.io/coreos/etcd:v3.6.0", &all).unwrap().command, ["etcd"]);
        assert!(table.resolve("localhost:5000/other", &all).is_err());
    }

    #[test]
    fn a_missing_command_is_named() {
        let table = ImageTable::built_in();
        let error = table.resolve("etcd:3", &|_| false).unwrap_err();
        assert_eq!(error, Unresolved::Missing { image: "etcd:3".into(), command: "etcd".into() });
        assert!(error.to_string().contains("image table"));
        assert!(table.resolve("echo", &|_| false).is_ok());
    }

    #[test]
    fn entries_of_users_come_first() {
        let yaml = "images:\n- image: etcd:3.*\n  command: [my-etcd]\n";
        let table = ImageTable::built_in().extended(yaml, Path::new("/srv")).unwrap();
        assert_eq!(table.resolve("etcd:3.6", &|_| true).unwrap().command, ["my-etcd"]);
        assert_eq!(table.resolve("etcd:4", &|_| true).unwrap().command, ["etcd"]);
        assert!(ImageTable::built_in().extended("images: [{imag: x}]", Path::new("/")).is_err());
    }

    #[test]
    fn relative_programs_are_where_the_file_is() {
        let yaml = "images:\n- image: web\n  command: [./bin/web, ./data]\n  needs: [tools/git, /bin/sh, tar]\n- image: job\n  args: [../job]\n";
        let table = ImageTable::built_in().extended(yaml, Path::new("/srv")).unwrap();
        let web = table.resolve("web", &|_| true).unwrap();
        assert_eq!(web.command, ["/srv/bin/web", "./data"]);
        assert_eq!(web.needs, ["/srv/tools/git", "/bin/sh", "tar"]);
        assert_eq!(table.resolve("job", &|_| true).unwrap().args, ["/srv/../job"]);
    }

    #[test]
    fn stars_stand_for_any_text() {
        assert!(matches("a*c*e", "abcde"));
        assert!(matches("*", ""));
        assert!(!matches("a*b", "a"));
        assert!(!matches("ab*b", "ab"));
        assert!(!matches("a", "ab"));
    }

    #[test]
    fn a_containers_own_command_replaces_the_images() {
        let image = Image { command: strings(&["entry"]), args: strings(&["default"]), ..Image::default() };
        assert_eq!(command_line(&image, &[], &[]), ["entry", "default"]);
        assert_eq!(command_line(&image, &[], &strings(&["x"])), ["entry", "x"]);
        assert_eq!(command_line(&image, &strings(&["c"]), &[]), ["c"]);
        assert_eq!(command_line(&image, &strings(&["c"]), &strings(&["x"])), ["c", "x"]);
    }
}
