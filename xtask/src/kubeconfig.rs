//! The kubeconfig that `shoal up` writes, as far as a client needs it.

use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;

/// How to reach a server and who we are; PEM bytes.
pub struct Access {
    /// `https://HOST:PORT`.
    pub server: String,
    /// Whom to trust.
    pub authority: Vec<u8>,
    /// Our certificate chain.
    pub certificate: Vec<u8>,
    /// Its private key.
    pub key: Vec<u8>,
}

#[derive(Deserialize)]
struct Config {
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: Cluster,
}

#[derive(Deserialize)]
struct Cluster {
    server: String,
    #[serde(rename = "certificate-authority-data")]
    authority: String,
}

#[derive(Deserialize)]
struct NamedUser {
    user: User,
}

#[derive(Deserialize)]
struct User {
    #[serde(rename = "client-certificate-data")]
    certificate: String,
    #[serde(rename = "client-key-data")]
    key: String,
}

/// Reads the file's first cluster and user: ours has one of each.
pub fn read(path: &Path) -> Result<Access> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let config: Config =
        serde_saphyr::from_str(&text).with_context(|| format!("{} is not a kubeconfig", path.display()))?;
    let cluster = config.clusters.into_iter().next().context("the kubeconfig names no cluster")?.cluster;
    let user = config.users.into_iter().next().context("the kubeconfig names no user")?.user;
    Ok(Access {
        server: cluster.server,
        authority: decode(&cluster.authority)?,
        certificate: decode(&user.certificate)?,
        key: decode(&user.key)?,
    })
}

/// The same content as JSON, which is YAML too: readers without a YAML parser need no kubectl to convert it.
pub fn to_json(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let value: Value = serde_saphyr::from_str(&text)?;
    Ok(serde_json::to_string_pretty(&value)?)
}

fn decode(text: &str) -> Result<Vec<u8>> {
    STANDARD.decode(text.trim()).context("a field of the kubeconfig is not base64")
}
