//! `pods/NAME/proxy` and `services/NAME/proxy`: HTTP to a program of the cluster.
//!
//! A name may say how and where: `https:web:443`, `web:http`, `web`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::header::{CONNECTION, HOST, HeaderValue, LOCATION, UPGRADE};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use hyper::upgrade::OnUpgrade;
use serde_json::Value;

use crate::aggregate::passing;
use crate::backend::{
    Backend, Port, Trust, Unresolved, client_config, exchange, exchange_plain, resolve_port,
};
use crate::handlers::{Call, served};
use crate::kinds::access::{int_at, list_at, part, str_at};
use crate::response::Reply;
use crate::status::{Failure, Outcome};

/// How long a program may take to begin its answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// What a name says: scheme, name and port; an empty port is any.
fn parse(id: &str) -> Option<(&str, &str, &str)> {
    let parts: Vec<&str> = id.split(':').collect();
    let (scheme, name, port) = match parts.as_slice() {
        [name] => ("http", *name, ""),
        [name, port] => ("http", *name, *port),
        [scheme, name, port] => (*scheme, *name, *port),
        _ => return None,
    };
    let known = matches!(scheme, "http" | "https" | "");
    (known && !name.is_empty()).then_some((if scheme == "https" { "https" } else { "http" }, name, port))
}

/// Passes a request on to a pod or to a pod of a Service.
pub async fn handle(call: &Call<'_>) -> Outcome<Reply> {
    let is_pod = &*call.target.resource.plural == "pods";
    let kind = if is_pod { "pod" } else { "service" };
    let (scheme, name, port) = parse(&call.target.name)
        .ok_or_else(|| Failure::bad_request(format!("invalid {kind} request {:?}", call.target.name)))?;
    let backend = if is_pod { pod(call, name, port).await? } else { service(call, name, port).await? };
    let request = outgoing(call)?;
    let upgrade = passing::wanted_upgrade(call.headers).is_some();
    let exchanged = async {
        match scheme {
            // Nobody says which authority to trust, so the programs of the cluster are taken at their word.
            "https" => {
                let tls = client_config(Trust::Anyone, None)?;
                exchange(&backend, &format!("{name}.{}.svc", call.target.namespace), tls, request).await
            }
            _ => exchange_plain(&backend, request).await,
        }
    };
    let answered = tokio::time::timeout(ANSWER_TIMEOUT, exchanged).await;
    let (mut response, connection) = answered
        .unwrap_or_else(|_| Err("no answer in time".to_owned()))
        .map_err(|why| Failure::unavailable(&format!("error trying to reach service: {why}")))?;
    if upgrade && response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let client = call.parts.and_then(|parts| parts.extensions.get::<OnUpgrade>().cloned());
        return passing::switch(response, connection, client);
    }
    // Where the program sends its clients is below this path.
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    if let Some(location) = location.filter(|l| l.starts_with('/') && !l.starts_with("//"))
        && let Ok(value) = HeaderValue::from_str(&format!("{}{location}", prefix(call)))
    {
        response.headers_mut().insert(LOCATION, value);
    }
    Ok(passing::pass(response, connection, None, true))
}

fn prefix(call: &Call<'_>) -> String {
    let target = &call.target;
    format!("/api/v1/namespaces/{}/{}/{}/proxy", target.namespace, target.resource.plural, target.name)
}

/// The request as the program gets it: without the client's credentials.
fn outgoing(call: &Call<'_>) -> Outcome<Request<Full<bytes::Bytes>>> {
    let bad = |e: &dyn std::fmt::Display| Failure::bad_request(format!("passing the request on: {e}"));
    let path = match call.parts {
        // As the client wrote it: what is escaped stays so, and a last slash matters.
        Some(parts) => {
            let rest = parts.uri.path().splitn(9, '/').nth(8).unwrap_or_default();
            let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
            format!("/{rest}{query}")
        }
        None => format!("/{}", call.target.subresource.split_once('/').unwrap_or_default().1),
    };
    let mut request = Request::new(Full::new(call.body.clone()));
    *request.method_mut() = call.parts.map_or(Method::GET, |parts| parts.method.clone());
    *request.uri_mut() = path.parse().map_err(|e| bad(&e))?;
    let mut headers = passing::passed_headers(call.headers);
    let host = call.headers.get(HOST).cloned();
    headers.insert(HOST, host.unwrap_or(HeaderValue::from_static("localhost")));
    if let Some(protocol) = passing::wanted_upgrade(call.headers) {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    *request.headers_mut() = headers;
    Ok(request)
}

async fn service(call: &Call<'_>, name: &str, port: &str) -> Outcome<Backend> {
    let port = port.parse().map_or(Port::Name(port), Port::Number);
    let found = resolve_port(call.server, &call.target.namespace, name, port).await;
    found.map_err(|unresolved| match (unresolved, port) {
        (Unresolved::NoService, _) => Failure::not_found(&call.target.resource, name),
        (Unresolved::NoPort, Port::Number(number)) => {
            Failure::unavailable(&format!("no service port {number} found for service {name:?}"))
        }
        (Unresolved::Unreadable(why), _) => Failure::internal(why),
        _ => Failure::unavailable(&format!("no endpoints available for service {name:?}")),
    })
}

async fn pod(call: &Call<'_>, name: &str, port: &str) -> Outcome<Backend> {
    let resource = &call.target.resource;
    let stored = call.server.store.get(&resource.table, &resource.key(&call.target.namespace, name)).await;
    let pod = served(resource, &*stored.ok_or_else(|| Failure::not_found(resource, name))?)?;
    let number = match port {
        "" => first_port(&pod).unwrap_or(80),
        text => text
            .parse()
            .map_err(|_| Failure::bad_request(format!("invalid pod request {:?}", call.target.name)))?,
    };
    let ip = str_at(part(&pod, "status"), "podIP").parse().ok().filter(is_allowed);
    let ip: IpAddr = ip.ok_or_else(|| Failure::bad_request("address not allowed"))?;
    Ok(Backend::Addresses(vec![SocketAddr::new((call.server.reach)(ip), number)]))
}

/// Whether a pod can have an address: who writes a pod's status must not lead the server to itself.
fn is_allowed(ip: &IpAddr) -> bool {
    let ip = ip.to_canonical();
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || is_link_local)
}

/// The first port that a container names.
fn first_port(pod: &Value) -> Option<u16> {
    let containers = list_at(part(pod, "spec"), "containers").iter();
    let mut ports = containers.filter_map(|container| list_at(container, "ports").first());
    ports.next().and_then(|port| u16::try_from(int_at(port, "containerPort")?).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_how_and_where() {
        assert_eq!(parse("web"), Some(("http", "web", "")));
        assert_eq!(parse("web:http"), Some(("http", "web", "http")));
        assert_eq!(parse("https:web:443"), Some(("https", "web", "443")));
        assert_eq!(parse("https:web:"), Some(("https", "web", "")));
        for odd in ["", ":80", "ftp:web:21", "a:b:c:d"] {
            assert_eq!(parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn the_server_is_not_led_to_itself() {
        let allowed = |ip: &str| is_allowed(&ip.parse().unwrap());
        assert!(allowed("10.128.0.1") && allowed("fd00::1"));
        for ip in ["127.0.0.1", "::1", "0.0.0.0", "169.254.169.254", "fe80::1", "224.0.0.1"] {
            assert!(!allowed(ip), "{ip}");
        }
    }
}
