//! Who is calling: certificates, tokens, and the keys behind them.

mod certificate;
pub mod encryption;
pub mod files;
mod impersonation;
mod peer;
pub mod pki;
mod static_tokens;
pub mod tokens;
mod user;

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use shoal_objects::Timestamp;

pub use impersonation::{Impersonated, Impersonation, WithoutUser, impersonation};
pub use peer::PeerCertificate;
pub use static_tokens::StaticTokens;
use tokens::{Account, TokenError, Tokens, Verified};
pub use user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, UserInfo};

/// Whether an account and the object its token is bound to still exist, with the same uids.
pub type AccountExists = Arc<dyn Fn(&Account) -> bool + Send + Sync>;

/// Credentials were shown and are not good: 401.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Unauthorized")]
pub struct Unauthenticated;

/// Finds out who is calling.
#[derive(Clone)]
pub struct Authenticator {
    tokens: Arc<Tokens>,
    static_tokens: Arc<StaticTokens>,
    account_exists: AccountExists,
}

impl Authenticator {
    /// Trusts ServiceAccount tokens while their account exists, and the given static tokens.
    pub fn new(
        tokens: Arc<Tokens>,
        static_tokens: StaticTokens,
        account_exists: AccountExists,
    ) -> Authenticator {
        Authenticator { tokens, static_tokens: Arc::new(static_tokens), account_exists }
    }

    /// The caller of a request: by bearer token, else by client certificate, else anonymous. A token or certificate
    /// that is not good is an error: who shows credentials wants to be that user and no other.
    pub fn authenticate(
        &self,
        headers: &HeaderMap,
        peer: Option<&PeerCertificate>,
        now: Timestamp,
    ) -> Result<UserInfo, Unauthenticated> {
        if let Some(token) = bearer_token(headers)? {
            return self.user_of_token(token, &[], now).map(|(user, _)| user).map_err(|_| Unauthenticated);
        }
        match peer {
            Some(peer) => peer.user(now).cloned().ok_or(Unauthenticated),
            None => Ok(UserInfo::anonymous()),
        }
    }

    /// Whom a token stands for and for which of `audiences` (none: the API server): the answer of a TokenReview.
    pub fn user_of_token(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<(UserInfo, Vec<String>), TokenError> {
        let server = [tokens::ISSUER.to_owned()];
        let audiences = if audiences.is_empty() { &server } else { audiences };
        if let Some(user) = self.static_tokens.user(token) {
            // A static token is for this server only.
            return match audiences.contains(&server[0]) {
                true => Ok((user.clone(), server.to_vec())),
                false => Err(TokenError::WrongAudience),
            };
        }
        let Verified { account, user, audiences } = self.tokens.verify(token, audiences, now)?;
        match (self.account_exists)(&account) {
            true => Ok((user, audiences)),
            false => Err(TokenError::Invalidated),
        }
    }
}

/// The token of `Authorization: Bearer TOKEN`. Other schemes are no credentials here, as in Kubernetes.
fn bearer_token(headers: &HeaderMap) -> Result<Option<&str>, Unauthenticated> {
    let Some(value) = headers.get(AUTHORIZATION) else { return Ok(None) };
    let value = value.to_str().map_err(|_| Unauthenticated)?.trim();
    let (scheme, rest) = value.split_once(' ').unwrap_or((value, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Ok(None);
    }
    match rest.trim() {
        "" => Err(Unauthenticated),
        token => Ok(Some(token)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::access::pki::Pki;

    const NOW: Timestamp = Timestamp(1_790_000_000_000_000);

    struct Door {
        pki: Pki,
        tokens: Arc<Tokens>,
        exists: Arc<AtomicBool>,
        authenticator: Authenticator,
    }

    fn door() -> Door {
        let pki = Pki::in_memory(&[], NOW).unwrap();
        let tokens = Arc::new(Tokens::new(pki.service_account_key()).unwrap());
        let exists = Arc::new(AtomicBool::new(true));
        let mut fixed = StaticTokens::default();
        fixed.add("sesame", UserInfo::authenticated("ali", &["forty"]));
        fixed.add("", UserInfo::authenticated("nobody", &["system:masters"]));
        let seen = Arc::clone(&exists);
        let account_exists: AccountExists = Arc::new(move |_| seen.load(Ordering::Relaxed));
        let authenticator = Authenticator::new(Arc::clone(&tokens), fixed, account_exists);
        Door { pki, tokens, exists, authenticator }
    }

    fn header(value: &str) -> HeaderMap {
        [(AUTHORIZATION, value.parse().unwrap())].into_iter().collect()
    }

    fn robot_token(door: &Door) -> String {
        let account = Account { namespace: "ns".into(), name: "robot".into(), uid: "u".into(), bound: None };
        door.tokens.issue(&account, &[], 600, "id", NOW).unwrap()
    }

    #[test]
    fn a_caller_is_known_by_token_then_by_certificate_else_anonymous() {
        let door = door();
        let identity = door.pki.issue_client("jane", "team-a", NOW).unwrap();
        let peer =
            PeerCertificate::from_verified(&certificate::certificate(&identity.certificate_pem).unwrap());
        let user = |headers: &HeaderMap, peer| door.authenticator.authenticate(headers, peer, NOW);
        assert_eq!(user(&HeaderMap::new(), None).unwrap(), UserInfo::anonymous());
        assert_eq!(user(&HeaderMap::new(), Some(&peer)).unwrap().username, "jane");
        assert_eq!(user(&header("Bearer sesame"), Some(&peer)).unwrap().username, "ali");
        let robot = robot_token(&door);
        for scheme in ["Bearer", "bearer", "BEARER"] {
            let found = user(&header(&format!("{scheme} {robot}")), None).unwrap();
            assert_eq!(found.username, "system:serviceaccount:ns:robot");
        }
        assert_eq!(user(&header("Basic YTpi"), None).unwrap(), UserInfo::anonymous());
    }

    #[test]
    fn bad_credentials_are_never_anonymous() {
        let door = door();
        let identity = door.pki.issue_client("jane", "team-a", NOW).unwrap();
        let peer =
            PeerCertificate::from_verified(&certificate::certificate(&identity.certificate_pem).unwrap());
        for value in ["Bearer wrong", "Bearer", "Bearer ", "bearer sesam", "Bearer sesame2", "Bearer a b"] {
            for peer in [None, Some(&peer)] {
                let outcome = door.authenticator.authenticate(&header(value), peer, NOW);
                assert_eq!(outcome, Err(Unauthenticated), "{value}");
            }
        }
        let late = NOW.plus_seconds(1_000 * 86_400);
        assert_eq!(
            door.authenticator.authenticate(&HeaderMap::new(), Some(&peer), late),
            Err(Unauthenticated)
        );
    }

    #[test]
    fn a_token_ends_with_its_account() {
        let door = door();
        let token = robot_token(&door);
        assert!(door.authenticator.user_of_token(&token, &[], NOW).is_ok());
        door.exists.store(false, Ordering::Relaxed);
        assert_eq!(door.authenticator.user_of_token(&token, &[], NOW), Err(TokenError::Invalidated));
        let headers = header(&format!("Bearer {token}"));
        assert_eq!(door.authenticator.authenticate(&headers, None, NOW), Err(Unauthenticated));
    }

    #[test]
    fn a_static_token_is_for_this_server_only() {
        let door = door();
        let (user, audiences) = door.authenticator.user_of_token("sesame", &[], NOW).unwrap();
        assert_eq!((user.username.as_str(), audiences), ("ali", vec![tokens::ISSUER.to_owned()]));
        let other = ["other".to_owned()];
        assert_eq!(door.authenticator.user_of_token("sesame", &other, NOW), Err(TokenError::WrongAudience));
    }
}
