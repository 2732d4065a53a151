//! A Kubernetes client for the API server of this process, without a socket.

use http::header::{HeaderValue, USER_AGENT};
use kube::Client;
use shoal_apiserver::Server;
use shoal_apiserver::access::UserInfo;
use tower::ServiceExt as _;

/// A client of the user `name`, who may do everything. The name is also what fields are owned by, where nothing else is
/// said.
pub fn client(server: &Server, name: &'static str) -> Client {
    let user = UserInfo::authenticated(&format!("system:{name}"), &["system:masters"]);
    let service = server.clone().map_request(move |mut request: http::Request<kube::client::Body>| {
        request.extensions_mut().insert(user.clone());
        request.headers_mut().entry(USER_AGENT).or_insert(HeaderValue::from_static(name));
        request
    });
    Client::new(service, "default")
}
