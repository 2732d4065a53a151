//! Whom the server trusts when it calls, and as whom it calls.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use crate::access::pki::Identity;

/// Which certificates of back ends are good.
#[derive(Clone, Copy, Debug)]
pub enum Trust<'a> {
    /// Those of the authorities in this bundle: PEM in base64, as objects carry it. Nobody else is trusted.
    Bundle(&'a str),
    /// Any, for objects that say so.
    Anyone,
}

/// TLS towards a back end, with a client certificate if one is given.
pub fn client_config(trust: Trust<'_>, identity: Option<&Identity>) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("tls: {e}"))?;
    let config = match trust {
        Trust::Bundle(bundle) => config.with_root_certificates(roots(bundle)?),
        Trust::Anyone => {
            config.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        }
    };
    let config = match identity {
        None => config.with_no_client_auth(),
        Some(identity) => {
            let unusable = |e: &dyn std::fmt::Debug| format!("tls: the client certificate: {e:?}");
            let certificate = CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes());
            let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes());
            let (certificate, key) = (certificate.map_err(|e| unusable(&e))?, key.map_err(|e| unusable(&e))?);
            config.with_client_auth_cert(vec![certificate], key).map_err(|e| unusable(&e))?
        }
    };
    Ok(Arc::new(config))
}

fn roots(bundle: &str) -> Result<RootCertStore, String> {
    if bundle.is_empty() {
        return Err("tls: caBundle is empty: this server trusts no other authorities".to_owned());
    }
    let pem = BASE64_STANDARD.decode(bundle).map_err(|e| format!("tls: caBundle is not base64: {e}"))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|e| format!("tls: caBundle is not PEM: {e:?}"))?;
        roots.add(certificate).map_err(|e| format!("tls: caBundle: {e}"))?;
    }
    Ok(roots)
}

/// Takes any certificate; its owner must still prove to have the key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
