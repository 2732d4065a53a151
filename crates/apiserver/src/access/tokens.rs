//! ServiceAccount tokens: JWTs signed with ECDSA P-256, with the claims of Kubernetes.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use shoal_objects::Timestamp;

use super::user::{AUTHENTICATED, CREDENTIAL_ID, UserInfo};

/// Who issues the tokens; also the audience of the API server itself.
pub const ISSUER: &str = "https://kubernetes.default.svc";

/// What stands before the point of a P-256 public key in its standard (SubjectPublicKeyInfo) form.
const P256_KEY_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// Longer tokens are not looked at.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// Tokens whose signature is known to be good. Checking one costs more than the rest of a small request.
const REMEMBERED_TOKENS: usize = 4096;
/// The clock may have been set back since the token was issued.
const LEEWAY_SECONDS: i64 = 60;

/// Names one object by name and uid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectRef {
    /// Its name.
    pub name: String,
    /// Its uid, which is never used again.
    pub uid: String,
}

/// The object whose deletion ends a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoundObject {
    /// A Pod of the account's namespace, and the node it was bound to when the token was issued.
    Pod(ObjectRef, Option<ObjectRef>),
    /// A Secret of the account's namespace.
    Secret(ObjectRef),
    /// A Node.
    Node(ObjectRef),
}

/// Whom a token speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The namespace of the ServiceAccount.
    pub namespace: String,
    /// The name of the ServiceAccount.
    pub name: String,
    /// The uid of the ServiceAccount.
    pub uid: String,
    /// The object the token is bound to.
    pub bound: Option<BoundObject>,
}

/// A token that is good as far as the token itself can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Whom it speaks for; that they still exist is to be checked.
    pub account: Account,
    /// The caller.
    pub user: UserInfo,
    /// Those of the wanted audiences that the token is for.
    pub audiences: Vec<String>,
}

/// Why a token is refused. The words are those of `status.error` of a TokenReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not one of our tokens: no JWT, another issuer, algorithm or key.
    #[error("invalid bearer token")]
    Invalid,
    /// Its time is over.
    #[error("[invalid bearer token, service account token has expired]")]
    Expired,
    /// Its time has not come.
    #[error("[invalid bearer token, service account token is not valid yet]")]
    NotYetValid,
    /// It is for others.
    #[error("[invalid bearer token, token audiences are invalid for the target audiences]")]
    WrongAudience,
    /// The account, or the object it is bound to, does not exist any more.
    #[error("[invalid bearer token, service account token has been invalidated]")]
    Invalidated,
}

/// A key that does not sign, or randomness that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot sign ServiceAccount tokens with this key; use an ECDSA P-256 key in PKCS #8 form")]
pub struct SigningError;

#[derive(Serialize, Deserialize)]
struct Header<'a> {
    alg: &'a str,
    kid: &'a str,
    #[serde(skip_serializing)]
    crit: Option<Value>,
}

/// Fields in the order in which Kubernetes writes them.
#[derive(Serialize, Deserialize)]
struct Claims {
    aud: Vec<String>,
    exp: i64,
    iat: i64,
    iss: String,
    jti: String,
    #[serde(rename = "kubernetes.io")]
    kubernetes: KubernetesClaim,
    nbf: i64,
    sub: String,
}

#[derive(Serialize, Deserialize)]
struct KubernetesClaim {
    namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<ObjectRef>,
    serviceaccount: ObjectRef,
}

/// Issues and verifies ServiceAccount tokens.
pub struct Tokens {
    key: EcdsaKeyPair,
    random: SystemRandom,
    key_id: String,
    known: Mutex<HashMap<[u8; 32], Arc<Claims>>>,
}

/// A new P-256 key (PKCS #8) to sign tokens with.
pub fn new_signing_key() -> Result<Vec<u8>, SigningError> {
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
    key.map(|key| key.as_ref().to_vec()).map_err(|_| SigningError)
}

impl Tokens {
    /// Signs with this P-256 key (PKCS #8).
    pub fn new(pkcs8: &[u8]) -> Result<Tokens, SigningError> {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random)
            .map_err(|_| SigningError)?;
        let public = [&P256_KEY_PREFIX, key.public_key().as_ref()].concat();
        let key_id = BASE64.encode(digest(&SHA256, &public));
        Ok(Tokens { key, random, key_id, known: Mutex::default() })
    }

    /// A token for `account` that is good for `seconds`. No audiences means the API server. `id` (a uid) is told
    /// in audit events.
    pub fn issue(
        &self,
        account: &Account,
        audiences: &[String],
        seconds: i64,
        id: &str,
        now: Timestamp,
    ) -> Result<String, SigningError> {
        let header = Header { alg: "ES256", kid: &self.key_id, crit: None };
        let claims = claims(account, audiences, seconds, id, now);
        let mut token = BASE64.encode(serde_json::to_vec(&header).map_err(|_| SigningError)?);
        token.push('.');
        BASE64.encode_string(serde_json::to_vec(&claims).map_err(|_| SigningError)?, &mut token);
        let signature = self.key.sign(&self.random, token.as_bytes()).map_err(|_| SigningError)?;
        token.push('.');
        BASE64.encode_string(signature, &mut token);
        Ok(token)
    }

    /// Whom a token speaks for, if it is ours, in its time, and for one of `audiences` (none: for the API server).
    pub fn verify(&self, token: &str, audiences: &[String], now: Timestamp) -> Result<Verified, TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::Invalid);
        }
        let claims = self.signed_claims(token)?;
        let now = now.seconds();
        if claims.iss != ISSUER {
            return Err(TokenError::Invalid);
        }
        if claims.exp <= now {
            return Err(TokenError::Expired);
        }
        if claims.nbf.max(claims.iat) > now.saturating_add(LEEWAY_SECONDS) {
            return Err(TokenError::NotYetValid);
        }
        let wanted = |audience: &&String| match audiences {
            [] => *audience == ISSUER,
            some => some.contains(audience),
        };
        let audiences: Vec<String> = claims.aud.iter().filter(wanted).cloned().collect();
        if audiences.is_empty() {
            return Err(TokenError::WrongAudience);
        }
        let account = account(&claims.kubernetes);
        let user = user(&account, &claims.jti);
        match user.username == claims.sub {
            true => Ok(Verified { account, user, audiences }),
            false => Err(TokenError::Invalid),
        }
    }

    /// The claims behind a good signature. Whether it is good does not change with time, so it is checked once.
    fn signed_claims(&self, token: &str) -> Result<Arc<Claims>, TokenError> {
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        if let Some(claims) = self.known.lock().get(&fingerprint) {
            return Ok(Arc::clone(claims));
        }
        let claims = Arc::new(self.check_signature(token).ok_or(TokenError::Invalid)?);
        let mut known = self.known.lock();
        if known.len() >= REMEMBERED_TOKENS {
            known.clear();
        }
        known.insert(fingerprint, Arc::clone(&claims));
        Ok(claims)
    }

    fn check_signature(&self, token: &str) -> Option<Claims> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        let header = BASE64.decode(header).ok()?;
        let header: Header<'_> = serde_json::from_slice(&header).ok()?;
        if header.alg != "ES256" || header.kid != self.key_id || header.crit.is_some() {
            return None;
        }
        let signature = BASE64.decode(signature).ok()?;
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref());
        key.verify(signed.as_bytes(), &signature).ok()?;
        serde_json::from_slice(&BASE64.decode(payload).ok()?).ok()
    }

    /// The public key for verifiers elsewhere: the document at `/openid/v1/jwks`.
    pub fn jwks(&self) -> Value {
        // An uncompressed point: one byte, then two coordinates of 32.
        let point = self.key.public_key().as_ref();
        let coordinate = |from: usize, to: usize| BASE64.encode(point.get(from..to).unwrap_or_default());
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256",
            "x": coordinate(1, 33), "y": coordinate(33, 65),
        }]})
    }
}

/// The document at `/.well-known/openid-configuration`; `server` is the address clients use, as `https://HOST:PORT`.
pub fn openid_configuration(server: &str) -> Value {
    json!({
        "issuer": ISSUER,
        "jwks_uri": format!("{server}/openid/v1/jwks"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    })
}

/// The user name of a ServiceAccount.
pub fn service_account_username(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

fn claims(account: &Account, audiences: &[String], seconds: i64, id: &str, now: Timestamp) -> Claims {
    let Account { namespace, name, uid, bound } = account;
    let (mut node, mut pod, mut secret) = (None, None, None);
    match bound.clone() {
        Some(BoundObject::Pod(p, n)) => (pod, node) = (Some(p), n),
        Some(BoundObject::Secret(s)) => secret = Some(s),
        Some(BoundObject::Node(n)) => node = Some(n),
        None => {}
    }
    let now = now.seconds();
    Claims {
        aud: if audiences.is_empty() { vec![ISSUER.into()] } else { audiences.to_vec() },
        exp: now.saturating_add(seconds),
        iat: now,
        iss: ISSUER.into(),
        jti: id.to_owned(),
        kubernetes: KubernetesClaim {
            namespace: namespace.clone(),
            node,
            pod,
            secret,
            serviceaccount: ObjectRef { name: name.clone(), uid: uid.clone() },
        },
        nbf: now,
        sub: service_account_username(namespace, name),
    }
}

fn account(claim: &KubernetesClaim) -> Account {
    let KubernetesClaim { namespace, node, pod, secret, serviceaccount } = claim;
    let bound = match (pod.clone(), secret.clone(), node.clone()) {
        (Some(pod), _, node) => Some(BoundObject::Pod(pod, node)),
        (None, Some(secret), _) => Some(BoundObject::Secret(secret)),
        (None, None, Some(node)) => Some(BoundObject::Node(node)),
        (None, None, None) => None,
    };
    Account {
        namespace: namespace.clone(),
        name: serviceaccount.name.clone(),
        uid: serviceaccount.uid.clone(),
        bound,
    }
}

fn user(account: &Account, id: &str) -> UserInfo {
    let mut extra = vec![(CREDENTIAL_ID, format!("JTI={id}"))];
    let (pod, node) = match &account.bound {
        Some(BoundObject::Pod(pod, node)) => (Some(pod), node.as_ref()),
        Some(BoundObject::Node(node)) => (None, Some(node)),
        Some(BoundObject::Secret(_)) | None => (None, None),
    };
    if let Some(pod) = pod {
        extra.push(("authentication.kubernetes.io/pod-name", pod.name.clone()));
        extra.push(("authentication.kubernetes.io/pod-uid", pod.uid.clone()));
    }
    if let Some(node) = node {
        extra.push(("authentication.kubernetes.io/node-name", node.name.clone()));
        extra.push(("authentication.kubernetes.io/node-uid", node.uid.clone()));
    }
    UserInfo {
        username: service_account_username(&account.namespace, &account.name),
        uid: account.uid.clone(),
        groups: vec![
            "system:serviceaccounts".into(),
            format!("system:serviceaccounts:{}", account.namespace),
            AUTHENTICATED.into(),
        ],
        extra: extra.into_iter().map(|(key, value)| (key.to_owned(), vec![value])).collect(),
    }
}

#[cfg(test)]
#[path = "tokens_tests.rs"]
mod tests;
