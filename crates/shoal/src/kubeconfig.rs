//! The kubeconfig file that lets kubectl and everybody else in.

use std::path::Path;

use anyhow::bail;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;
use shoal_apiserver::access::files;
use shoal_apiserver::access::pki::Pki;

/// The name of the cluster, the user and the context.
const NAME: &str = "shoal";

/// Writes the file for the administrator of the cluster at `server`. A file with anything but our own entries is left
/// alone.
pub fn write(path: &Path, server: &str, pki: &Pki) -> anyhow::Result<()> {
    let foreign = match files::read_if_there(path)? {
        Some(content) => foreign_entries(&content),
        None => Some(Vec::new()),
    };
    match foreign.as_deref() {
        Some([]) => {}
        Some(names) => bail!(
            "{} has entries of other clusters ({}); choose another file with --kubeconfig FILE",
            path.display(),
            names.join(", ")
        ),
        None => bail!(
            "{} is there and is not a kubeconfig; move it away or choose another file with --kubeconfig FILE",
            path.display()
        ),
    }
    if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("")) {
        files::create_private_dir(parent)?;
    }
    files::write_private(path, render(server, pki).as_bytes())?;
    Ok(())
}

fn render(server: &str, pki: &Pki) -> String {
    let ca = BASE64.encode(pki.ca_pem());
    let certificate = BASE64.encode(&pki.admin().certificate_pem);
    let key = BASE64.encode(&pki.admin().key_pem);
    format!(
        "# Written by `shoal up` at every start.
apiVersion: v1
kind: Config
clusters:
- name: {NAME}
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: {NAME}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: {NAME}
  context:
    cluster: {NAME}
    user: {NAME}
current-context: {NAME}
"
    )
}

/// The names of entries that are not ours; `None` if this is no kubeconfig.
fn foreign_entries(content: &str) -> Option<Vec<String>> {
    if content.trim().is_empty() {
        return Some(Vec::new());
    }
    let config: Value = serde_saphyr::from_str(content).ok()?;
    if config.get("kind").is_some_and(|kind| kind != "Config") || !config.is_object() {
        return None;
    }
    let mut names = Vec::new();
    for section in ["contexts", "clusters", "users"] {
        for entry in config.get(section).and_then(Value::as_array).into_iter().flatten() {
            let name = entry.get("name").and_then(Value::as_str)?;
            if name != NAME && !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use shoal_objects::Clock;

    use super::*;

    #[test]
    fn our_own_file_is_replaced_and_others_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/kubeconfig");
        let pki = Pki::in_memory(&[], Clock::system().now()).unwrap();
        write(&path, "https://127.0.0.1:1", &pki).unwrap();
        write(&path, "https://127.0.0.1:2", &pki).unwrap();
        let content = std::fs::read_to_string(&path).unwrap();
        assert!(content.contains("server: https://127.0.0.1:2\n"));

        for (other, words) in [
            ("contexts:\n- name: prod\n- name: shoal\n", "other clusters (prod)"),
            ("clusters: [{name: a}]\nusers: [{name: b}]\n", "other clusters (a, b)"),
            ("kind: Pod\n", "is not a kubeconfig"),
            ("just words", "is not a kubeconfig"),
            ("{", "is not a kubeconfig"),
        ] {
            std::fs::write(&path, other).unwrap();
            let error = write(&path, "https://127.0.0.1:3", &pki).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("--kubeconfig FILE"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), other);
        }
        std::fs::write(&path, "\n").unwrap();
        write(&path, "https://127.0.0.1:4", &pki).unwrap();
    }
}
