//! Callers who want more than they may: forged credentials, borrowed names, roles that grant too much.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use ring::hmac;
use serde_json::{Value, json};
use shoal_apiserver::access::PeerCertificate;
use shoal_apiserver::access::pki::{Identity, Pki};
use shoal_objects::Clock;
use shoal_testkit::{Answer, Cluster, Http};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

/// A GET without any identity but the token.
async fn with_token(cluster: &Cluster, path: &str, token: &str) -> (u16, Value) {
    let request = Request::get(path).header("authorization", format!("Bearer {token}"));
    let answer = cluster.server().handle(request.body(Full::new(Bytes::new())).unwrap()).await;
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

fn encoded(value: &Value) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(value.to_string())
}

async fn token(http: &Http, account: &str, spec: Value) -> String {
    let answer = http.post(&format!("{ACCOUNTS}/{account}/token"), &json!({"spec": spec})).await;
    answer.json()["status"]["token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn forged_and_misused_tokens_are_nobodys() {
    let cluster = Cluster::start().await;
    let http = cluster.http();
    assert_eq!(http.post(ACCOUNTS, &json!({"metadata": {"name": "robot"}})).await.status, 201);
    let good = token(&http, "robot", json!({})).await;
    assert_eq!(with_token(&cluster, SECRETS, &good).await.0, 403, "known, without rights");
    let parts: Vec<&str> = good.split('.').collect();
    let read = |part: &str| -> Value {
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
    };
    let (header, mut claims) = (read(parts[0]), read(parts[1]));
    claims["sub"] = "system:serviceaccount:kube-system:admin".into();
    claims["kubernetes.io"]["namespace"] = "kube-system".into();
    let claims = encoded(&claims);

    let mut none = header.clone();
    none["alg"] = "none".into();
    let mut symmetric = header.clone();
    symmetric["alg"] = "HS256".into();
    // The public key, as anybody can fetch it, taken for a shared secret.
    let jwks = http.get("/openid/v1/jwks").await;
    let signed_text = format!("{}.{claims}", encoded(&symmetric));
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &jwks.body), signed_text.as_bytes());
    let stranger = Cluster::start().await;
    stranger.http().post(ACCOUNTS, &json!({"metadata": {"name": "robot"}})).await;
    let forged = [
        format!("{}.{claims}.", encoded(&none)),
        format!("{}.{claims}.{}", encoded(&none), parts[2]),
        format!("{signed_text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)),
        format!("{}.{claims}.{}", parts[0], parts[2]),
        token(&stranger.http(), "robot", json!({})).await,
        token(&http, "robot", json!({"audiences": ["somebody-else"]})).await,
        format!("{good}x"),
        "a".repeat(100_000),
        "..".to_owned(),
        "\u{7f}".to_owned(),
    ];
    for token in forged {
        let Ok(()) = http::HeaderValue::from_str(&format!("Bearer {token}")).map(|_| ()) else { continue };
        let (code, status) = with_token(&cluster, SECRETS, &token).await;
        assert_eq!((code, &status["reason"]), (401, &json!("Unauthorized")), "{token:.60}");
    }
    // A token ends with its account.
    assert_eq!(http.delete(&format!("{ACCOUNTS}/robot")).await.status, 200);
    assert_eq!(with_token(&cluster, SECRETS, &good).await.0, 401);
}

#[tokio::test(start_paused = true)]
async fn an_expired_token_is_nobodys() {
    let cluster = Cluster::builder().seed(1).start().await;
    let http = cluster.http();
    http.post(ACCOUNTS, &json!({"metadata": {"name": "robot"}})).await;
    let token = token(&http, "robot", json!({"expirationSeconds": 600})).await;
    assert_eq!(with_token(&cluster, SECRETS, &token).await.0, 403);
    tokio::time::advance(std::time::Duration::from_secs(700)).await;
    assert_eq!(with_token(&cluster, SECRETS, &token).await.0, 401);
}

/// A GET over a connection whose other end has shown this certificate.
async fn with_certificate(cluster: &Cluster, identity: &Identity) -> u16 {
    let pem = identity.certificate_pem.lines().filter(|line| !line.starts_with('-')).collect::<String>();
    let der = rustls_pki_types::CertificateDer::from(BASE64_STANDARD.decode(pem).unwrap());
    let request = Request::get(SECRETS).extension(PeerCertificate::from_verified(&der));
    let answer = cluster.server().handle(request.body(Full::new(Bytes::new())).unwrap()).await;
    answer.status().as_u16()
}

/// TLS refuses certificates of other authorities, self-signed ones included: `serve::tests`. What is left is time.
#[tokio::test]
async fn a_certificate_counts_in_its_time_only() {
    let cluster = Cluster::start().await;
    let now = Clock::system().now();
    let pki = Pki::in_memory(&[], now).unwrap();
    let identity = |at| pki.issue_client("admin", "system:masters", at).unwrap();
    assert_eq!(with_certificate(&cluster, &identity(now)).await, 200);
    for at in [now.plus_seconds(-20 * 365 * 86_400), now.plus_seconds(10 * 365 * 86_400)] {
        let code = with_certificate(&cluster, &identity(at)).await;
        assert!(code == 401 || code == 403, "{code}");
    }
    assert_eq!(with_certificate(&cluster, &pki.issue_client("jane", "people", now).unwrap()).await, 403);
}

#[tokio::test]
async fn nobody_acts_as_others_without_the_right_to_each_part() {
    let cluster = Cluster::start().await;
    let rules = json!([
        {"apiGroups": [""], "resources": ["users"], "resourceNames": ["jane"], "verbs": ["impersonate"]},
        {"apiGroups": [""], "resources": ["groups"], "resourceNames": ["readers"], "verbs": ["impersonate"]},
    ]);
    grant(&cluster.http(), "proxy", &rules).await;
    let proxy = cluster.http_as("proxy", &[]);
    let acting = |headers: &'static [(&'static str, &'static str)]| {
        let proxy = proxy.clone();
        async move { proxy.send("GET", "/apis", headers, "").await }
    };
    assert_eq!(acting(&[("impersonate-user", "jane")]).await.status, 200);
    assert_eq!(acting(&[("impersonate-user", "jane"), ("impersonate-group", "readers")]).await.status, 200);
    let refused: [&'static [(&'static str, &'static str)]; 9] = [
        &[("impersonate-user", "root")],
        &[("impersonate-user", "system:serviceaccount:kube-system:admin")],
        &[("impersonate-user", "jane"), ("impersonate-group", "system:masters")],
        &[
            ("impersonate-user", "jane"),
            ("impersonate-group", "readers"),
            ("impersonate-group", "system:masters"),
        ],
        &[("impersonate-user", "jane"), ("impersonate-uid", "1")],
        &[("impersonate-user", "jane"), ("impersonate-extra-scopes", "all")],
        &[("impersonate-group", "readers")],
        &[("impersonate-uid", "1")],
        &[("impersonate-extra-scopes", "all")],
    ];
    for headers in refused {
        let answer = acting(headers).await;
        assert!([403, 500].contains(&answer.status.as_u16()), "{headers:?} {}", answer.json());
        assert_eq!(answer.json()["kind"], "Status");
    }
    // Whom one acts as counts, not who one is.
    assert_eq!(proxy.send("GET", SECRETS, &[("impersonate-user", "jane")], "").await.status, 403);
}

/// Gives a user these rules in the whole cluster.
async fn grant(http: &Http, user: &str, rules: &Value) {
    let role = json!({"metadata": {"name": user}, "rules": rules});
    assert_eq!(http.post(&format!("{RBAC}/clusterroles"), &role).await.status, 201);
    let binding = json!({
        "metadata": {"name": user}, "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
    });
    assert_eq!(http.post(&format!("{RBAC}/clusterrolebindings"), &binding).await.status, 201);
}

fn binding(name: &str, kind: &str, role: &str) -> Value {
    json!({
        "metadata": {"name": name}, "subjects": [{"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
    })
}

#[tokio::test]
async fn nobody_grants_more_than_they_have() {
    let cluster = Cluster::start().await;
    let root = cluster.http();
    // Eve may write all that grants rights, and read ConfigMaps.
    let rules = json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"],
         "verbs": ["create", "get", "list", "update", "patch", "delete"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ]);
    grant(&root, "eve", &rules).await;
    let eve = cluster.http_as("eve", &[]);
    let clusterroles = format!("{RBAC}/clusterroles");
    let bindings = format!("{RBAC}/clusterrolebindings");
    let local = format!("{RBAC}/namespaces/default/rolebindings");
    let role = |name: &str, verbs: &[&str]| {
        let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs});
        json!({"metadata": {"name": name}, "rules": [rule]})
    };
    assert_eq!(eve.post(&clusterroles, &role("mine", &["get"])).await.status, 201);
    assert_eq!(eve.post(&bindings, &binding("mine", "ClusterRole", "mine")).await.status, 201);
    assert_eq!(root.post(&clusterroles, &role("strong", &["*"])).await.status, 201);

    let is_refused = |answer: Answer, code: u16| {
        let status = answer.json();
        assert_eq!((answer.status.as_u16(), &status["kind"]), (code, &json!("Status")), "{status}");
    };
    is_refused(eve.post(&clusterroles, &role("more", &["get", "delete"])).await, 403);
    let patch = json!({"rules": role("", &["*"])["rules"]});
    is_refused(eve.merge(&format!("{clusterroles}/mine"), &patch).await, 403);
    is_refused(eve.put(&format!("{clusterroles}/mine"), &role("mine", &["delete"])).await, 403);
    let applied = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "more"},
        "rules": role("", &["*"])["rules"]});
    let apply = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{clusterroles}/more?fieldManager=eve");
    is_refused(eve.send("PATCH", &path, &apply, applied.to_string()).await, 403);
    is_refused(eve.post(&bindings, &binding("b", "ClusterRole", "strong")).await, 403);
    is_refused(eve.post(&bindings, &binding("b", "ClusterRole", "cluster-admin")).await, 403);
    is_refused(eve.post(&local, &binding("b", "ClusterRole", "admin")).await, 403);
    // A role that somebody may make later could be anything.
    is_refused(eve.post(&bindings, &binding("b", "ClusterRole", "later")).await, 404);
    is_refused(eve.post(&local, &binding("b", "Role", "later")).await, 404);
    // Roles that gather others, and labels that have a role gathered.
    let mut gathering = role("gathering", &["get"]);
    gathering["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    is_refused(eve.post(&clusterroles, &gathering).await, 401);
    let rule = json!({"aggregationRule": gathering["aggregationRule"]});
    is_refused(eve.merge(&format!("{clusterroles}/mine"), &rule).await, 401);
    let label = json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}});
    is_refused(eve.merge(&format!("{clusterroles}/strong"), &label).await, 403);
    // More subjects for what somebody else has bound.
    assert_eq!(
        root.post(&bindings, &{
            let mut bound = binding("strong", "ClusterRole", "strong");
            bound["subjects"][0]["name"] = "admin".into();
            bound
        })
        .await
        .status,
        201
    );
    let subjects = json!({"subjects": binding("", "", "")["subjects"]});
    is_refused(eve.merge(&format!("{bindings}/strong"), &subjects).await, 403);
    // Finalizers grant nothing, and may be taken away to let an object go.
    let finalizers = json!({"metadata": {"finalizers": ["a.test/b"]}});
    assert_eq!(eve.merge(&format!("{clusterroles}/strong"), &finalizers).await.status, 200);
    assert_eq!(eve.get(SECRETS).await.status, 403);
    // With the right to bind it is allowed.
    let bind = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["bind"]}]);
    let more = json!({"metadata": {"name": "binder"}, "rules": bind});
    assert_eq!(root.post(&clusterroles, &more).await.status, 201);
    assert_eq!(root.post(&bindings, &binding("binder", "ClusterRole", "binder")).await.status, 201);
    assert_eq!(eve.post(&bindings, &binding("b", "ClusterRole", "strong")).await.status, 201);
}

#[tokio::test]
async fn a_token_of_an_account_needs_a_right_of_its_own() {
    let cluster = Cluster::start().await;
    let http = cluster.http();
    http.post(ACCOUNTS, &json!({"metadata": {"name": "robot"}})).await;
    let rules = json!([{"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["*"]}]);
    grant(&http, "eve", &rules).await;
    let eve = cluster.http_as("eve", &[]);
    assert_eq!(eve.get(ACCOUNTS).await.status, 200);
    assert_eq!(eve.post(&format!("{ACCOUNTS}/robot/token"), &json!({"spec": {}})).await.status, 403);
}

#[tokio::test]
async fn policies_show_their_writers_nothing_they_may_not_read() {
    let cluster = Cluster::start().await;
    let registration = "/apis/admissionregistration.k8s.io/v1";
    let rules = json!([
        {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ]);
    grant(&cluster.http(), "eve", &rules).await;
    let policy = |name: &str, kind: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "paramKind": {"apiVersion": "v1", "kind": kind}, "validations": [{"expression": "true"}],
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
            }]},
        }})
    };
    let binding = |name: &str| {
        let reference = json!({"name": "x", "namespace": "kube-system", "parameterNotFoundAction": "Deny"});
        json!({"metadata": {"name": name}, "spec": {"policyName": name, "paramRef": reference, "validationActions": ["Deny"]}})
    };
    let policies = format!("{registration}/validatingadmissionpolicies");
    let bindings = format!("{registration}/validatingadmissionpolicybindings");
    let eve = cluster.http_as("eve", &[]);
    assert_eq!(eve.post(&policies, &policy("maps", "ConfigMap")).await.status, 201);
    assert_eq!(eve.post(&bindings, &binding("maps")).await.status, 201);
    let refused = eve.post(&policies, &policy("secrets", "Secret")).await;
    assert_eq!(refused.status, 422);
    assert_eq!(refused.json()["details"]["causes"][0]["field"], "spec.paramKind");
    assert_eq!(cluster.http().post(&policies, &policy("secrets", "Secret")).await.status, 201);
    let refused = eve.post(&bindings, &binding("secrets")).await;
    assert_eq!(
        (refused.status.as_u16(), &refused.json()["details"]["causes"][0]["field"]),
        (422, &json!("spec.paramRef"))
    );
}

#[tokio::test]
async fn roles_that_gather_each_other_do_not_multiply() {
    let cluster = Cluster::start().await;
    let http = cluster.http();
    for i in 0..40 {
        let role = json!({
            "metadata": {"name": format!("r-{i}"), "labels": {"ring": "yes"}},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"ring": "yes"}}]},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [format!("m-{i}")], "verbs": ["get"]}],
        });
        assert_eq!(http.post(&format!("{RBAC}/clusterroles"), &role).await.status, 201);
    }
    assert_eq!(
        http.post(&format!("{RBAC}/clusterrolebindings"), &binding("b", "ClusterRole", "r-0")).await.status,
        201
    );
    assert_eq!(cluster.http_as("eve", &[]).get(SECRETS).await.status, 403);
}
