//! A client with nothing but the rights of an account, and a record of what it asks for.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use shoal_testkit::Cluster;
use tokio::time::Instant;
use tower::ServiceExt as _;

use crate::asked::Asked;

/// Kinds are installed by programs that may; under the manifests' roles they may not, and do without.
const OPTIONAL: &str = "PATCH /apis/apiextensions.k8s.io/v1/customresourcedefinitions/";

/// What was asked for, by all clients of an account.
#[derive(Default)]
pub struct Record {
    asked: Mutex<BTreeSet<Asked>>,
    refused: Mutex<Vec<String>>,
    interfered: AtomicBool,
}

impl Record {
    /// What was asked for.
    pub fn asked(&self) -> BTreeSet<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// The first request that was refused for lack of a right.
    pub fn refused(&self) -> Option<String> {
        self.refused.lock().unwrap().first().cloned()
    }

    /// Waits for something about what is found there. Ends early, with what was refused, once something is.
    pub async fn until(
        &self,
        cluster: &Cluster,
        path: &str,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = cluster.http().get(path).await.json();
            if let Some(refused) = self.refused() {
                return Err(format!("refused: {refused}"));
            }
            if holds(&found) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("still not {what}: {found}"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Simulated time that a step of a story may take.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A client with a token of this account. Before the first patch of `contested` somebody else is faster: what was read is old then, and
/// is read again.
pub async fn client(
    cluster: &Cluster,
    account: (&str, &str),
    contested: &str,
    record: &Arc<Record>,
) -> Client {
    let (namespace, name) = account;
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86_400}});
    let answer = cluster.http().post(&path, &request).await;
    assert_eq!(answer.status, 201, "{}", answer.json());
    let bearer = format!("Bearer {}", answer.json()["status"]["token"].as_str().unwrap());
    let (server, record, admin) = (cluster.server().clone(), record.clone(), cluster.http());
    let contested: Arc<str> = contested.into();
    let service = tower::service_fn(move |mut request: Request<Body>| {
        request.headers_mut().insert(AUTHORIZATION, bearer.parse().unwrap());
        let (server, record, admin, contested) =
            (server.clone(), record.clone(), admin.clone(), contested.clone());
        async move {
            let (head, body) = request.into_parts();
            let (method, uri) = (head.method.clone(), head.uri.clone());
            let body = body.collect_bytes().await.unwrap();
            let is_contested = method == Method::PATCH && uri.path() == &*contested;
            if is_contested && !record.interfered.swap(true, Ordering::Relaxed) {
                admin.merge(&contested, &json!({"metadata": {"annotations": {"touched": "yes"}}})).await;
            }
            let owners = Asked::of_owners(&body);
            let response = server.oneshot(Request::from_parts(head, Body::from(body))).await?;
            let what = format!("{method} {}", uri.path());
            if response.status() == StatusCode::FORBIDDEN {
                let (head, body) = response.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                // Admission says no in the same way, for other reasons.
                let said = String::from_utf8_lossy(&body);
                let lacks_right = said.contains(" cannot ") || said.contains(" attempting to grant ");
                if lacks_right && !what.starts_with(OPTIONAL) {
                    record.refused.lock().unwrap().push(what);
                }
                return Ok::<_, Infallible>(Response::from_parts(head, shoal_apiserver::Body::Full(body)));
            }
            let mut asked = record.asked.lock().unwrap();
            if let Some(wanted) = Asked::of(&method, &uri) {
                if method == Method::PATCH && response.status() == StatusCode::CREATED {
                    // What an apply makes, its writer must be allowed to create.
                    asked.insert(Asked { verb: "create".to_owned(), ..wanted.clone() });
                }
                asked.insert(wanted);
                asked.extend(owners);
            }
            drop(asked);
            Ok(response)
        }
    });
    Client::new(service, namespace)
}
