//! The keys and certificates of a cluster: made on first start, kept in one directory, loaded later.
//!
//! | file | what |
//! | --- | --- |
//! | `ca.crt`, `ca.key` | the certificate authority of server and clients |
//! | `apiserver.crt`, `apiserver.key` | what the server shows |
//! | `admin.crt`, `admin.key` | a client certificate of group `system:masters` |
//! | `front-proxy-ca.crt`, `front-proxy-ca.key` | the authority of those who may speak for others |
//! | `front-proxy-client.crt`, `front-proxy-client.key` | what the server shows to extension API servers |
//! | `sa.key` | signs ServiceAccount tokens |

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::KeyPair;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use shoal_objects::Timestamp;

pub use super::certificate::Identity;
use super::certificate::{self, Problem, Purpose};
use super::files::{self, FileError};

/// Names under which every API server is known; more can be given.
const SERVER_NAMES: [&str; 8] = [
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "10.96.0.1",
];
/// Names of authorities: of their certificates and, for the second, of its files.
const CA: &str = "shoal-ca";
const FRONT_PROXY_CA: &str = "front-proxy-ca";
/// The name under which extension API servers know this server.
pub const FRONT_PROXY_CLIENT: &str = "front-proxy-client";
const FRONT_PROXY: Purpose<'static> = Purpose::Client { user: FRONT_PROXY_CLIENT, group: "" };
const ADMIN: Purpose<'static> = Purpose::Client { user: "kubernetes-admin", group: "system:masters" };

/// All keys and certificates of one cluster.
pub struct Pki {
    ca_pem: String,
    ca_key: KeyPair,
    server: Identity,
    admin: Identity,
    front_proxy: FrontProxy,
    front_proxy_ca_key: KeyPair,
    service_account_key: KeyPair,
}

/// What the server needs to call extension API servers for its users, and what those need to believe it.
#[derive(Clone)]
pub struct FrontProxy {
    /// The certificate of the authority of clients.
    pub client_ca_pem: String,
    /// The certificate of the authority that signs `identity`.
    pub request_header_ca_pem: String,
    /// What the server shows.
    pub identity: Identity,
}

/// Why there are no keys and certificates; one line with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// The file system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file is there but is not what it should be.
    #[error("{} {problem}; {remedy}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: Problem,
        /// What to do.
        remedy: String,
    },
    /// A key or certificate could not be made.
    #[error("cannot create a certificate: {0}; check the names it is for")]
    Create(#[from] rcgen::Error),
}

impl Pki {
    /// New keys that live as long as this value.
    pub fn in_memory(more_names: &[String], now: Timestamp) -> Result<Pki, PkiError> {
        let ca_key = certificate::generate_key()?;
        let ca_pem = certificate::issue_authority(CA, &ca_key, now)?;
        let names = server_names(more_names);
        let server = new_identity(&ca_pem, &ca_key, &Purpose::Server(&names), now)?;
        let admin = new_identity(&ca_pem, &ca_key, &ADMIN, now)?;
        let (front_proxy, front_proxy_ca_key) = new_front_proxy(&ca_pem, now)?;
        let service_account_key = certificate::generate_key()?;
        Ok(Pki { ca_pem, ca_key, server, admin, front_proxy, front_proxy_ca_key, service_account_key })
    }

    /// The keys in `dir`; made if the directory does not exist. The server's certificate is renewed when it is about
    /// to expire or lacks one of the names, the administrator's when it is about to expire.
    pub fn open(dir: &Path, more_names: &[String], now: Timestamp) -> Result<Pki, PkiError> {
        if !dir.join("ca.crt").exists() && !dir.join("ca.key").exists() {
            let pki = Pki::in_memory(more_names, now)?;
            pki.save(dir)?;
            return Ok(pki);
        }
        let (ca_pem, ca_key) = load_authority(dir, "ca", CA, now)?;
        let names = server_names(more_names);
        let server = load_or_renew(dir, "apiserver", &ca_pem, &ca_key, &Purpose::Server(&names), now)?;
        let admin = load_or_renew(dir, "admin", &ca_pem, &ca_key, &ADMIN, now)?;
        let (front_proxy, front_proxy_ca_key) = open_front_proxy(dir, &ca_pem, now)?;
        let service_account_key = load_or_create_signing_key(dir)?;
        Ok(Pki { ca_pem, ca_key, server, admin, front_proxy, front_proxy_ca_key, service_account_key })
    }

    /// A client certificate for `user` in `group`.
    pub fn issue_client(&self, user: &str, group: &str, now: Timestamp) -> Result<Identity, PkiError> {
        Ok(new_identity(&self.ca_pem, &self.ca_key, &Purpose::Client { user, group }, now)?)
    }

    /// A certificate for a server of the cluster, say a node's agent, that is known by these names.
    pub fn issue_server(&self, names: &[String], now: Timestamp) -> Result<Identity, PkiError> {
        Ok(new_identity(&self.ca_pem, &self.ca_key, &Purpose::Server(names), now)?)
    }

    /// The authority's certificate as PEM: what clients trust.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The administrator's client certificate (group `system:masters`).
    pub fn admin(&self) -> &Identity {
        &self.admin
    }

    /// How the server calls extension API servers.
    pub fn front_proxy(&self) -> &FrontProxy {
        &self.front_proxy
    }

    /// The key that signs ServiceAccount tokens, as PKCS #8 DER.
    pub fn service_account_key(&self) -> &[u8] {
        self.service_account_key.serialized_der()
    }

    /// What TLS needs: the authority, the server's certificate and its key.
    pub(crate) fn for_tls(&self) -> Result<Trust, Problem> {
        Ok(Trust {
            ca: certificate::certificate(&self.ca_pem)?,
            server: certificate::certificate(&self.server.certificate_pem)?,
            key: certificate::private_key(&self.server.key_pem)?,
        })
    }

    /// Writes the authority last: a start that was cut off begins anew.
    fn save(&self, dir: &Path) -> Result<(), FileError> {
        files::create_private_dir(dir)?;
        files::write_durably(
            dir,
            &[
                ("sa.key", self.service_account_key.serialize_pem().as_bytes()),
                ("admin.crt", self.admin.certificate_pem.as_bytes()),
                ("admin.key", self.admin.key_pem.as_bytes()),
                ("apiserver.crt", self.server.certificate_pem.as_bytes()),
                ("apiserver.key", self.server.key_pem.as_bytes()),
                ("front-proxy-client.crt", self.front_proxy.identity.certificate_pem.as_bytes()),
                ("front-proxy-client.key", self.front_proxy.identity.key_pem.as_bytes()),
                ("front-proxy-ca.key", self.front_proxy_ca_key.serialize_pem().as_bytes()),
                ("front-proxy-ca.crt", self.front_proxy.request_header_ca_pem.as_bytes()),
                ("ca.key", self.ca_key.serialize_pem().as_bytes()),
                ("ca.crt", self.ca_pem.as_bytes()),
            ],
        )
    }
}

pub(crate) struct Trust {
    pub ca: CertificateDer<'static>,
    pub server: CertificateDer<'static>,
    pub key: PrivateKeyDer<'static>,
}

fn server_names(more: &[String]) -> Vec<String> {
    let mut names: Vec<String> = SERVER_NAMES.iter().map(ToString::to_string).collect();
    for name in more {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn new_identity(
    ca_pem: &str,
    ca_key: &KeyPair,
    purpose: &Purpose<'_>,
    now: Timestamp,
) -> Result<Identity, rcgen::Error> {
    let key = certificate::generate_key()?;
    let certificate_pem = certificate::issue_leaf(ca_pem, ca_key, &key, purpose, now)?;
    Ok(Identity { certificate_pem, key_pem: key.serialize_pem() })
}

fn new_front_proxy(client_ca_pem: &str, now: Timestamp) -> Result<(FrontProxy, KeyPair), rcgen::Error> {
    let ca_key = certificate::generate_key()?;
    let request_header_ca_pem = certificate::issue_authority(FRONT_PROXY_CA, &ca_key, now)?;
    let identity = new_identity(&request_header_ca_pem, &ca_key, &FRONT_PROXY, now)?;
    Ok((FrontProxy { client_ca_pem: client_ca_pem.to_owned(), request_header_ca_pem, identity }, ca_key))
}

/// Directories of older versions have no such files: they are made.
fn open_front_proxy(
    dir: &Path,
    client_ca_pem: &str,
    now: Timestamp,
) -> Result<(FrontProxy, KeyPair), PkiError> {
    let (crt, key) = (format!("{FRONT_PROXY_CA}.crt"), format!("{FRONT_PROXY_CA}.key"));
    if !dir.join(&crt).exists() && !dir.join(&key).exists() {
        let ca_key = certificate::generate_key()?;
        let ca_pem = certificate::issue_authority(FRONT_PROXY_CA, &ca_key, now)?;
        // What a lost authority has signed is of no use.
        for old in [format!("{FRONT_PROXY_CLIENT}.crt"), format!("{FRONT_PROXY_CLIENT}.key")] {
            let _ = fs::remove_file(dir.join(old));
        }
        files::write_durably(dir, &[(&key, ca_key.serialize_pem().as_bytes()), (&crt, ca_pem.as_bytes())])?;
    }
    let (ca_pem, ca_key) = load_authority(dir, FRONT_PROXY_CA, FRONT_PROXY_CA, now)?;
    let identity = load_or_renew(dir, FRONT_PROXY_CLIENT, &ca_pem, &ca_key, &FRONT_PROXY, now)?;
    let client_ca_pem = client_ca_pem.to_owned();
    Ok((FrontProxy { client_ca_pem, request_header_ca_pem: ca_pem, identity }, ca_key))
}

fn load_authority(
    dir: &Path,
    file: &str,
    common_name: &str,
    now: Timestamp,
) -> Result<(String, KeyPair), PkiError> {
    let (crt_name, key_name) = (format!("{file}.crt"), format!("{file}.key"));
    let (crt, key) = (dir.join(&crt_name), dir.join(&key_name));
    let unusable = |path: &Path, problem| {
        let remedy = format!(
            "restore it from a backup, or delete {} to start with new keys (old kubeconfig files and tokens stop working)",
            dir.display()
        );
        PkiError::Unusable { path: path.to_owned(), problem, remedy }
    };
    let key_pem = files::read_if_there(&key)?.ok_or_else(|| unusable(&key, "is missing"))?;
    let ca_key = certificate::parse_key(&key_pem).map_err(|p| unusable(&key, p))?;
    let Some(ca_pem) = files::read_if_there(&crt)? else {
        // Same key and name: whoever trusts the lost certificate trusts this one's signatures as well.
        let ca_pem = certificate::issue_authority(common_name, &ca_key, now)?;
        files::write_durably(dir, &[(&crt_name, ca_pem.as_bytes())])?;
        return Ok((ca_pem, ca_key));
    };
    let der = certificate::certificate(&ca_pem).map_err(|p| unusable(&crt, p))?;
    let fields = certificate::fields(&der).map_err(|p| unusable(&crt, p))?;
    if !certificate::belongs_to(&ca_key, &fields) {
        return Err(unusable(&key, "is not the key of its certificate"));
    }
    if !fields.is_ca() {
        return Err(unusable(&crt, "is not the certificate of an authority"));
    }
    if fields.validity().not_after.timestamp() <= now.seconds() {
        return Err(unusable(&crt, "has expired"));
    }
    Ok((ca_pem, ca_key))
}

fn load_or_renew(
    dir: &Path,
    name: &str,
    ca_pem: &str,
    ca_key: &KeyPair,
    purpose: &Purpose<'_>,
    now: Timestamp,
) -> Result<Identity, PkiError> {
    let (crt_name, key_name) = (format!("{name}.crt"), format!("{name}.key"));
    let (crt, key_file) = (dir.join(&crt_name), dir.join(&key_name));
    let unusable = |path: &Path, problem| {
        let remedy =
            format!("delete {name}.crt and {name}.key beside it, new ones are made at the next start");
        PkiError::Unusable { path: path.to_owned(), problem, remedy }
    };
    let (old, key_pem) = (files::read_if_there(&crt)?, files::read_if_there(&key_file)?);
    let Some(key_pem) = key_pem else {
        // Without the key the certificate is of no use; it goes first so that a cut leaves no mismatching pair.
        if old.is_some() {
            fs::remove_file(&crt).map_err(|e| FileError::new("remove", &crt, e))?;
        }
        let identity = new_identity(ca_pem, ca_key, purpose, now)?;
        let pair = [
            (key_name.as_str(), identity.key_pem.as_bytes()),
            (&crt_name, identity.certificate_pem.as_bytes()),
        ];
        files::write_durably(dir, &pair)?;
        return Ok(identity);
    };
    let key = certificate::parse_key(&key_pem).map_err(|p| unusable(&key_file, p))?;
    if let Some(certificate_pem) = old {
        let der = certificate::certificate(&certificate_pem).map_err(|p| unusable(&crt, p))?;
        let fields = certificate::fields(&der).map_err(|p| unusable(&crt, p))?;
        let ca = certificate::certificate(ca_pem).map_err(|p| unusable(&crt, p))?;
        let ca = certificate::fields(&ca).map_err(|p| unusable(&crt, p))?;
        if fields.verify_signature(Some(ca.public_key())).is_err() {
            return Err(unusable(&crt, "was not signed by the authority beside it"));
        }
        if !certificate::belongs_to(&key, &fields) {
            return Err(unusable(&key_file, "is not the key of its certificate"));
        }
        let named = match purpose {
            Purpose::Server(names) => certificate::covers(&fields, names),
            Purpose::Client { .. } => true,
        };
        if named && certificate::is_fresh(&fields, now) {
            return Ok(Identity { certificate_pem, key_pem });
        }
    }
    // The key stays: only one file changes, so the pair is never torn.
    let certificate_pem = certificate::issue_leaf(ca_pem, ca_key, &key, purpose, now)?;
    files::write_durably(dir, &[(&crt_name, certificate_pem.as_bytes())])?;
    Ok(Identity { certificate_pem, key_pem })
}

fn load_or_create_signing_key(dir: &Path) -> Result<KeyPair, PkiError> {
    let path = &dir.join("sa.key");
    let unusable = |problem| PkiError::Unusable {
        path: path.to_owned(),
        problem,
        remedy: "restore it from a backup, or delete it (ServiceAccount tokens issued before stop working)"
            .into(),
    };
    let Some(pem) = files::read_if_there(path)? else {
        let key = certificate::generate_key()?;
        files::write_durably(dir, &[("sa.key", key.serialize_pem().as_bytes())])?;
        return Ok(key);
    };
    let key = certificate::parse_key(&pem).map_err(unusable)?;
    match key.is_compatible(&rcgen::PKCS_ECDSA_P256_SHA256) {
        true => Ok(key),
        false => Err(unusable("is not an ECDSA P-256 key")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const NOW: Timestamp = Timestamp(1_790_000_000_000_000);
    const DAY: i64 = 86_400;

    fn server_serial(dir: &Path) -> Vec<u8> {
        let pem = fs::read_to_string(dir.join("apiserver.crt")).unwrap();
        certificate::fields(&certificate::certificate(&pem).unwrap()).unwrap().raw_serial().to_vec()
    }

    #[test]
    fn a_second_start_loads_what_the_first_made() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("pki");
        let first = Pki::open(&dir, &[], NOW).unwrap();
        let second = Pki::open(&dir, &[], NOW).unwrap();
        assert_eq!(first.ca_pem(), second.ca_pem());
        assert_eq!(first.admin().key_pem, second.admin().key_pem);
        assert_eq!(first.server.certificate_pem, second.server.certificate_pem);
        assert_eq!(first.service_account_key(), second.service_account_key());
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        for file in fs::read_dir(&dir).unwrap() {
            assert_eq!(file.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn the_server_certificate_is_renewed_for_a_new_name_and_before_it_expires() {
        let dir = tempfile::tempdir().unwrap();
        let ca = Pki::open(dir.path(), &[], NOW).unwrap().ca_pem().to_owned();
        let first = server_serial(dir.path());
        let names = ["host.example".to_owned(), "192.0.2.7".to_owned(), "2001:db8::1".to_owned()];
        Pki::open(dir.path(), &names, NOW).unwrap();
        let renamed = server_serial(dir.path());
        assert_ne!(first, renamed);
        Pki::open(dir.path(), &names, NOW).unwrap();
        assert_eq!(renamed, server_serial(dir.path()), "nothing is missing, nothing is issued");
        Pki::open(dir.path(), &names, NOW.plus_seconds(789 * DAY)).unwrap();
        assert_eq!(renamed, server_serial(dir.path()));
        let late = Pki::open(dir.path(), &names, NOW.plus_seconds(791 * DAY)).unwrap();
        assert_ne!(renamed, server_serial(dir.path()));
        assert_eq!(late.ca_pem(), ca, "the authority stays");
    }

    #[test]
    fn a_deleted_leaf_or_signing_key_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        Pki::open(dir.path(), &[], NOW).unwrap();
        for file in
            ["apiserver.crt", "apiserver.key", "admin.crt", "admin.key", "front-proxy-client.crt", "sa.key"]
        {
            fs::remove_file(dir.path().join(file)).unwrap();
            Pki::open(dir.path(), &[], NOW).unwrap();
            assert!(dir.path().join(file).exists(), "{file}");
        }
    }

    #[test]
    fn a_corrupt_or_foreign_file_is_named_with_its_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        Pki::open(dir.path(), &[], NOW).unwrap();
        Pki::open(other.path(), &[], NOW).unwrap();
        for file in ["ca.crt", "ca.key", "apiserver.crt", "apiserver.key", "admin.crt", "admin.key", "sa.key"]
        {
            let path = dir.path().join(file);
            let good = fs::read(&path).unwrap();
            let half = good[..good.len() / 2].to_vec();
            for bad in [b"rubbish".to_vec(), Vec::new(), half, fs::read(other.path().join(file)).unwrap()] {
                fs::write(&path, &bad).unwrap();
                let outcome = Pki::open(dir.path(), &[], NOW);
                if file == "sa.key" && bad.starts_with(b"-----BEGIN") && bad.len() == good.len() {
                    outcome.map(|_| ()).unwrap();
                    continue;
                }
                let text = outcome.map(|_| ()).unwrap_err().to_string();
                assert!(text.contains(';') && text.contains("delete") && !text.contains('\n'), "{text}");
                assert!(text.contains(file.split('.').next().unwrap()), "{file}: {text}");
                assert!(!text.contains("BEGIN"), "no key material in messages");
            }
            fs::write(&path, &good).unwrap();
        }
        fs::remove_file(dir.path().join("ca.key")).unwrap();
        let text = Pki::open(dir.path(), &[], NOW).map(|_| ()).unwrap_err().to_string();
        assert!(text.contains("ca.key is missing; restore it"), "{text}");
    }

    #[test]
    fn a_cut_first_start_is_completed_or_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        Pki::open(dir.path(), &[], NOW).unwrap();
        for lost in ["ca.crt", "ca.key"] {
            let crt = dir.path().join("ca.crt");
            fs::remove_file(&crt).unwrap();
            if lost == "ca.key" {
                fs::remove_file(dir.path().join(lost)).unwrap();
            }
            Pki::open(dir.path(), &[], NOW).unwrap();
            Pki::open(dir.path(), &[], NOW).unwrap();
        }
    }
}
