//! Secrets on disk can be read with the key only, and the log of requests shows none of them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod process;

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use process::{Cluster, fails, get, post};
use serde_json::json;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const PLAINTEXT: &str = "correct-horse-battery-staple";

fn arguments(data: &Path) -> [&str; 5] {
    ["up", "--port", "0", "--data-dir", data.to_str().unwrap()]
}

fn create_secret(cluster: &Cluster, name: &str) {
    let secret = json!({"metadata": {"name": name}, "stringData": {"password": PLAINTEXT}});
    let answer = post(Path::new(&cluster.kubeconfig()), SECRETS, &secret).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

fn has_secret(cluster: &Cluster, name: &str) -> bool {
    let answer = get(Path::new(&cluster.kubeconfig()), &format!("{SECRETS}/{name}")).unwrap();
    answer.contains(&BASE64_STANDARD.encode(PLAINTEXT))
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn appears(dir: &Path, text: &str) -> Option<PathBuf> {
    files(dir)
        .into_iter()
        .find(|path| std::fs::read(path).unwrap().windows(text.len()).any(|window| window == text.as_bytes()))
}

#[test]
fn a_secret_appears_in_no_file_and_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path();
    let log = data.join("audit.log");
    let mut with_log = arguments(data).to_vec();
    with_log.extend(["--audit-log", log.to_str().unwrap(), "--audit-level", "request"]);
    let mut cluster = Cluster::start(&with_log);
    create_secret(&cluster, "a");
    assert_eq!(cluster.stop(), Some(0));
    assert!(std::fs::read_to_string(&log).unwrap().contains("\"resource\":\"secrets\""));
    for text in [PLAINTEXT, &BASE64_STANDARD.encode(PLAINTEXT)] {
        assert_eq!(appears(data, text), None);
    }
    let mut cluster = Cluster::start(&arguments(data));
    assert!(has_secret(&cluster, "a"));
    assert_eq!(cluster.stop(), Some(0));
}

#[test]
fn a_wrong_or_missing_key_is_refused_and_a_new_one_can_be_put_in_front() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path();
    let mut cluster = Cluster::start(&arguments(data));
    create_secret(&cluster, "a");
    assert_eq!(cluster.stop(), Some(0));
    let path = data.join("pki/encryption.key");
    let old = std::fs::read_to_string(&path).unwrap();
    let new = format!("{}\n", BASE64_STANDARD.encode([7; 32]));

    std::fs::remove_file(&path).unwrap();
    assert!(fails(&arguments(data)).contains("pki/encryption.key is missing"));
    assert!(!path.exists(), "no key is made that could open nothing");
    std::fs::write(&path, &new).unwrap();
    assert!(fails(&arguments(data)).contains("a key that is not in"));

    std::fs::write(&path, format!("{new}{old}")).unwrap();
    let mut cluster = Cluster::start(&arguments(data));
    assert!(has_secret(&cluster, "a"));
    create_secret(&cluster, "b");
    assert_eq!(cluster.stop(), Some(0));
    let mut cluster = Cluster::start(&arguments(data));
    assert!(has_secret(&cluster, "a") && has_secret(&cluster, "b"));
    assert_eq!(cluster.stop(), Some(0));
}
