//! Bearer tokens fixed in advance, each for one user.

use ring::digest::{SHA256, digest};

use super::user::UserInfo;

/// Tokens and the users they stand for. Only hashes of the tokens are kept.
#[derive(Default)]
pub struct StaticTokens(Vec<([u8; 32], UserInfo)>);

impl StaticTokens {
    /// Lets `token` stand for `user`. An empty token stands for nobody.
    pub fn add(&mut self, token: &str, user: UserInfo) {
        if !token.is_empty() {
            self.0.push((hash(token), user));
        }
    }

    /// The user of a token. Takes the same time for a wrong token, however much of it is right.
    pub fn user(&self, token: &str) -> Option<&UserInfo> {
        let wanted = hash(token);
        let mut found = None;
        for (known, user) in &self.0 {
            let difference = known.iter().zip(&wanted).fold(0, |all, (a, b)| all | (a ^ b));
            if difference == 0 {
                found = Some(user);
            }
        }
        found
    }
}

fn hash(token: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    hash
}
