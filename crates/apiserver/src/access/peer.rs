//! A client certificate that TLS has verified, and the user it names.

use std::sync::Arc;

use ring::digest::{SHA256, digest};
use rustls_pki_types::CertificateDer;
use shoal_objects::Timestamp;
use x509_parser::x509::X509Name;

use super::certificate;
use super::user::{CREDENTIAL_ID, UserInfo, add_authenticated};

/// The attribute of a subject that carries the uid of a user.
const UID_ATTRIBUTE: &str = "1.3.6.1.4.1.57683.2";

/// The certificate of the other end of a connection, read once. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PeerCertificate(Arc<Peer>);

#[derive(Debug)]
struct Peer {
    /// `None`: the certificate names nobody.
    user: Option<UserInfo>,
    not_before: i64,
    not_after: i64,
}

impl PeerCertificate {
    /// Reads a certificate that TLS has verified against the authority of clients.
    pub fn from_verified(der: &CertificateDer<'_>) -> PeerCertificate {
        let peer = match certificate::fields(der) {
            Ok(fields) => Peer {
                user: user(fields.subject(), der),
                not_before: fields.validity().not_before.timestamp(),
                not_after: fields.validity().not_after.timestamp(),
            },
            Err(_) => Peer { user: None, not_before: 0, not_after: 0 },
        };
        PeerCertificate(Arc::new(peer))
    }

    /// The user (CN) with its groups (O). `None` if it names nobody or is out of its time: a connection may outlive
    /// the certificate.
    pub fn user(&self, now: Timestamp) -> Option<&UserInfo> {
        let in_time = self.0.not_before <= now.seconds() && now.seconds() <= self.0.not_after;
        self.0.user.as_ref().filter(|_| in_time)
    }
}

fn user(subject: &X509Name<'_>, der: &[u8]) -> Option<UserInfo> {
    let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| value.as_str().ok().map(str::to_owned);
    let username = subject.iter_common_name().last().and_then(text).filter(|name| !name.is_empty())?;
    let mut groups: Vec<String> = subject.iter_organization().filter_map(text).collect();
    add_authenticated(&mut groups);
    let uid =
        subject.iter_attributes().find(|a| a.attr_type().to_id_string() == UID_ATTRIBUTE).and_then(text);
    let fingerprint: String =
        digest(&SHA256, der).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let extra = [(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={fingerprint}")])].into();
    Some(UserInfo { username, uid: uid.unwrap_or_default(), groups, extra })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::pki::Pki;

    const NOW: Timestamp = Timestamp(1_790_000_000_000_000);

    #[test]
    fn the_administrator_is_a_master() {
        let pki = Pki::in_memory(&[], NOW).unwrap();
        let peer =
            PeerCertificate::from_verified(&certificate::certificate(&pki.admin().certificate_pem).unwrap());
        let user = peer.user(NOW).unwrap();
        assert_eq!(user.username, "kubernetes-admin");
        assert_eq!(user.groups, ["system:masters", "system:authenticated"]);
        assert!(user.extra[CREDENTIAL_ID][0].starts_with("X509SHA256="));
        assert_eq!(peer.user(NOW.plus_seconds(900 * 86_400)), None, "expired on an open connection");
    }

    #[test]
    fn a_damaged_certificate_is_survived() {
        let pki = Pki::in_memory(&[], NOW).unwrap();
        let good = certificate::certificate(&pki.admin().certificate_pem).unwrap();
        for at in 0..good.len() {
            for bits in [0x01, 0x80, 0xff] {
                let mut bad = good.to_vec();
                bad[at] ^= bits;
                let _ = PeerCertificate::from_verified(&CertificateDer::from(bad)).user(NOW);
            }
            let _ = PeerCertificate::from_verified(&CertificateDer::from(good[..at].to_vec())).user(NOW);
        }
    }

    #[test]
    fn a_certificate_without_a_name_and_rubbish_name_nobody() {
        let pki = Pki::in_memory(&[], NOW).unwrap();
        let nameless = pki.issue_client("", "system:masters", NOW).unwrap();
        let der = certificate::certificate(&nameless.certificate_pem).unwrap();
        assert_eq!(PeerCertificate::from_verified(&der).user(NOW), None);
        assert_eq!(PeerCertificate::from_verified(&CertificateDer::from(vec![0x30, 0x80])).user(NOW), None);
    }
}
