use proptest::prelude::*;

use super::*;
use crate::access::pki::Pki;

const NOW: Timestamp = Timestamp(1_790_000_000_000_000);

fn tokens() -> Tokens {
    Tokens::new(Pki::in_memory(&[], NOW).unwrap().service_account_key()).unwrap()
}

fn object(name: &str) -> ObjectRef {
    ObjectRef { name: name.into(), uid: format!("{name}-uid") }
}

fn robot(bound: Option<BoundObject>) -> Account {
    Account { namespace: "ns".into(), name: "robot".into(), uid: "u1".into(), bound }
}

fn issue(tokens: &Tokens, account: &Account) -> String {
    tokens.issue(account, &[], 600, "id-1", NOW).unwrap()
}

fn part(token: &str, index: usize) -> Value {
    serde_json::from_slice(&BASE64.decode(token.split('.').nth(index).unwrap()).unwrap()).unwrap()
}

fn with_part(token: &str, index: usize, value: &Value) -> String {
    let mut parts: Vec<String> = token.split('.').map(str::to_owned).collect();
    parts[index] = BASE64.encode(value.to_string());
    parts.join(".")
}

#[test]
fn the_claims_are_laid_out_as_kubernetes_does() {
    let bound = BoundObject::Pod(object("web-0"), Some(object("node-1")));
    let token = issue(&tokens(), &robot(Some(bound)));
    let claims = BASE64.decode(token.split('.').nth(1).unwrap()).unwrap();
    let expected = r#"{"aud":["https://kubernetes.default.svc"],"exp":1790000600,"iat":1790000000,"iss":"https://kubernetes.default.svc","jti":"id-1","kubernetes.io":{"namespace":"ns","node":{"name":"node-1","uid":"node-1-uid"},"pod":{"name":"web-0","uid":"web-0-uid"},"serviceaccount":{"name":"robot","uid":"u1"}},"nbf":1790000000,"sub":"system:serviceaccount:ns:robot"}"#;
    assert_eq!(String::from_utf8(claims).unwrap(), expected);
    assert_eq!(part(&token, 0)["alg"], "ES256");
}

#[test]
fn a_token_speaks_for_its_account() {
    let tokens = tokens();
    let account = robot(Some(BoundObject::Pod(object("web-0"), Some(object("node-1")))));
    let verified = tokens.verify(&issue(&tokens, &account), &[], NOW).unwrap();
    assert_eq!(verified.account, account);
    assert_eq!(verified.audiences, [ISSUER]);
    let user = verified.user;
    assert_eq!(user.username, "system:serviceaccount:ns:robot");
    assert_eq!(user.uid, "u1");
    assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]);
    assert_eq!(user.extra["authentication.kubernetes.io/credential-id"], ["JTI=id-1"]);
    assert_eq!(user.extra["authentication.kubernetes.io/pod-name"], ["web-0"]);
    assert_eq!(user.extra["authentication.kubernetes.io/pod-uid"], ["web-0-uid"]);
    assert_eq!(user.extra["authentication.kubernetes.io/node-name"], ["node-1"]);
    assert_eq!(user.extra["authentication.kubernetes.io/node-uid"], ["node-1-uid"]);
}

#[test]
fn every_binding_survives_the_way_through_a_token() {
    let tokens = tokens();
    for bound in [
        None,
        Some(BoundObject::Pod(object("p"), None)),
        Some(BoundObject::Secret(object("s"))),
        Some(BoundObject::Node(object("n"))),
    ] {
        let account = robot(bound);
        assert_eq!(tokens.verify(&issue(&tokens, &account), &[], NOW).unwrap().account, account);
    }
}

#[test]
fn a_token_is_good_in_its_time_only() {
    let tokens = tokens();
    let token = issue(&tokens, &robot(None));
    assert!(tokens.verify(&token, &[], NOW.plus_seconds(599)).is_ok());
    assert_eq!(tokens.verify(&token, &[], NOW.plus_seconds(600)), Err(TokenError::Expired));
    assert!(tokens.verify(&token, &[], NOW.plus_seconds(-60)).is_ok(), "clocks may be set back a little");
    assert_eq!(tokens.verify(&token, &[], NOW.plus_seconds(-61)), Err(TokenError::NotYetValid));
}

#[test]
fn a_token_for_others_is_refused_by_the_server_and_taken_by_them() {
    let tokens = tokens();
    let [vault, other] = ["vault".to_owned(), "other".to_owned()];
    let token = tokens.issue(&robot(None), std::slice::from_ref(&vault), 600, "id", NOW).unwrap();
    assert_eq!(tokens.verify(&token, &[], NOW), Err(TokenError::WrongAudience));
    assert_eq!(tokens.verify(&token, std::slice::from_ref(&other), NOW), Err(TokenError::WrongAudience));
    assert_eq!(tokens.verify(&token, &[other, vault.clone()], NOW).unwrap().audiences, [vault]);
}

#[test]
fn forged_tokens_are_refused() {
    let tokens = tokens();
    let good = issue(&tokens, &robot(None));
    let key_id = part(&good, 0)["kid"].clone();
    let mut claims = part(&good, 1);
    claims["sub"] = json!("system:serviceaccount:kube-system:admin");
    let foreign = issue(&self::tokens(), &robot(None));
    let unsigned = with_part(&good, 0, &json!({"alg": "none", "kid": key_id}));
    let mut forged = vec![
        with_part(&good, 1, &claims),
        foreign.clone(),
        with_part(&foreign, 0, &part(&good, 0)),
        unsigned.clone(),
        unsigned.rsplit_once('.').unwrap().0.to_owned() + ".",
        with_part(&good, 0, &json!({"alg": "RS256", "kid": key_id})),
        with_part(&good, 0, &json!({"alg": "HS256", "kid": key_id})),
        with_part(&good, 0, &json!({"alg": "ES256"})),
        with_part(&good, 0, &json!({"alg": "ES256", "kid": key_id, "crit": ["exp"]})),
        good.replace('.', ""),
        format!("{good}.{good}"),
        format!("{good}="),
        String::new(),
        "...".into(),
        "a".repeat(MAX_TOKEN_BYTES + 1),
        with_part(&good, 0, &json!("[".repeat(5_000))),
    ];
    forged.extend((0..good.len()).step_by(7).map(|cut| good[..cut].to_owned()));
    for token in forged {
        assert_eq!(tokens.verify(&token, &[], NOW), Err(TokenError::Invalid), "{token}");
    }
    assert!(tokens.verify(&good, &[], NOW).is_ok());
}

#[test]
fn remembered_tokens_still_expire() {
    let tokens = tokens();
    for n in 0..3 {
        let token = tokens.issue(&robot(None), &[], 600, &format!("id-{n}"), NOW).unwrap();
        tokens.verify(&token, &[], NOW).unwrap();
        assert_eq!(tokens.verify(&token, &[], NOW.plus_seconds(601)), Err(TokenError::Expired));
    }
    assert_eq!(tokens.known.lock().len(), 3);
}

#[test]
fn the_published_key_verifies_a_token() {
    let tokens = tokens();
    let token = issue(&tokens, &robot(None));
    let key = &tokens.jwks()["keys"][0];
    assert_eq!(key["kid"], part(&token, 0)["kid"]);
    let coordinate = |name: &str| BASE64.decode(key[name].as_str().unwrap()).unwrap();
    let point = [vec![4], coordinate("x"), coordinate("y")].concat();
    let (signed, signature) = token.rsplit_once('.').unwrap();
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
        .verify(signed.as_bytes(), &BASE64.decode(signature).unwrap())
        .unwrap();
    let config = openid_configuration("https://127.0.0.1:6443");
    assert_eq!(config["jwks_uri"], "https://127.0.0.1:6443/openid/v1/jwks");
}

proptest! {
    #[test]
    fn no_text_is_a_token(text in "[ -~]{0,200}", a in "[A-Za-z0-9_-]{0,40}", b in "[A-Za-z0-9_-]{0,40}") {
        let tokens = tokens();
        prop_assert!(tokens.verify(&text, &[], NOW).is_err());
        let jwt_like = format!("{a}.{b}.{a}");
        prop_assert!(tokens.verify(&jwt_like, &[], NOW).is_err());
    }
}
