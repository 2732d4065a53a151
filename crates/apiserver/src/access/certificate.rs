//! Issuing and reading X.509 certificates.

use std::net::IpAddr;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SerialNumber,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use shoal_objects::Timestamp;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

const DAY: i64 = 86_400;
const CA_DAYS: i64 = 3_650;
/// Some platforms refuse server certificates that live longer than 825 days.
const LEAF_DAYS: i64 = 820;
/// Clocks of clients may be behind ours.
const BACKDATED_SECONDS: i64 = 3_600;
/// The last second that a certificate can express.
const LAST_SECOND: i64 = 253_402_300_799;

/// A certificate with its private key, both as PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate_pem: String,
    /// The private key (PKCS #8).
    pub key_pem: String,
}

/// What a leaf certificate is for.
pub(super) enum Purpose<'a> {
    /// A server that is known by these DNS names and IP addresses.
    Server(&'a [String]),
    /// A client: the user and its group (rcgen keeps one attribute of a type, so one group).
    Client { user: &'a str, group: &'a str },
}

/// A new P-256 key.
pub(super) fn generate_key() -> Result<KeyPair, rcgen::Error> {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)
}

/// A new certificate authority.
pub(super) fn issue_authority(
    common_name: &str,
    key: &KeyPair,
    now: Timestamp,
) -> Result<String, rcgen::Error> {
    let mut params = valid_for(CA_DAYS, now)?;
    params.distinguished_name = name(common_name, None);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    Ok(params.self_signed(key)?.pem())
}

/// A certificate for `key`, signed by the authority.
pub(super) fn issue_leaf(
    ca_pem: &str,
    ca_key: &KeyPair,
    key: &KeyPair,
    purpose: &Purpose<'_>,
    now: Timestamp,
) -> Result<String, rcgen::Error> {
    let mut params = valid_for(LEAF_DAYS, now)?;
    match purpose {
        Purpose::Server(names) => {
            params.subject_alt_names = CertificateParams::new(names.to_vec())?.subject_alt_names;
            params.distinguished_name = name("kube-apiserver", None);
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        }
        Purpose::Client { user, group } => {
            params.distinguished_name = name(user, Some(*group).filter(|group| !group.is_empty()));
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        }
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.use_authority_key_identifier_extension = true;
    let issuer = Issuer::from_ca_cert_pem(ca_pem, ca_key)?;
    Ok(params.signed_by(key, &issuer)?.pem())
}

fn name(common_name: &str, organisation: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(organisation) = organisation {
        name.push(DnType::OrganizationName, organisation);
    }
    name.push(DnType::CommonName, common_name);
    name
}

fn valid_for(days: i64, now: Timestamp) -> Result<CertificateParams, rcgen::Error> {
    let moment = |seconds: i64| {
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds.clamp(0, LAST_SECOND).unsigned_abs())
    };
    let mut params = CertificateParams::default();
    params.not_before = moment(now.seconds().saturating_sub(BACKDATED_SECONDS));
    params.not_after = moment(now.seconds().saturating_add(days * DAY));
    // Derived from the key by default: a re-issued certificate would repeat the serial number of its predecessor.
    let mut serial = [0; 16];
    SystemRandom::new().fill(&mut serial).map_err(|_| rcgen::Error::RingUnspecified)?;
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(params)
}

/// What is wrong with a key or a certificate that was read from a file.
pub(super) type Problem = &'static str;

/// Reads the key of a certificate.
pub(super) fn parse_key(pem: &str) -> Result<KeyPair, Problem> {
    KeyPair::from_pem(pem).map_err(|_| "is not a private key in PEM form")
}

/// Reads a private key for TLS.
pub(super) fn private_key(pem: &str) -> Result<PrivateKeyDer<'static>, Problem> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| "is not a private key in PEM form")
}

/// Reads a certificate.
pub(super) fn certificate(pem: &str) -> Result<CertificateDer<'static>, Problem> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| "is not a certificate in PEM form")
}

/// Whether `key` belongs to `certificate`.
pub(super) fn belongs_to(key: &KeyPair, certificate: &X509Certificate<'_>) -> bool {
    certificate.public_key().subject_public_key.data.as_ref() == key.public_key_raw()
}

/// Reads the fields of a certificate.
pub(super) fn fields<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, Problem> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        _ => Err("is not an X.509 certificate"),
    }
}

/// Whether `certificate` names every one of `names` (DNS names or IP addresses).
pub(super) fn covers(certificate: &X509Certificate<'_>, names: &[String]) -> bool {
    let Ok(Some(alternatives)) = certificate.subject_alternative_name() else { return false };
    let alternatives = &alternatives.value.general_names;
    names.iter().all(|name| match name.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => {
            alternatives.iter().any(|a| matches!(a, GeneralName::IPAddress(b) if *b == ip.octets()))
        }
        Ok(IpAddr::V6(ip)) => {
            alternatives.iter().any(|a| matches!(a, GeneralName::IPAddress(b) if *b == ip.octets()))
        }
        Err(_) => alternatives.iter().any(|a| matches!(a, GeneralName::DNSName(b) if b == name)),
    })
}

/// Whether the certificate is still good for 30 days.
pub(super) fn is_fresh(certificate: &X509Certificate<'_>, now: Timestamp) -> bool {
    let validity = certificate.validity();
    validity.not_before.timestamp() <= now.seconds()
        && validity.not_after.timestamp() > now.seconds().saturating_add(30 * DAY)
}
