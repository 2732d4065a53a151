//! Which requests are for delegates, and what they are about.

use std::sync::Arc;

use http::Method;

use super::{Delegate, Delegates};
use crate::authorize::Attributes;
use crate::request::{Query, words};

/// Subresources that are open for as long as their users want.
const STREAMS: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// What a request to a group version that this server does not know is about, by the form of its path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// In the words of authorization; empty for documents about the group version.
    pub verb: &'static str,
    /// Namespace, empty at cluster scope.
    pub namespace: String,
    /// Plural resource.
    pub resource: String,
    /// Name, empty for collections.
    pub name: String,
    /// Subresource, empty for the object itself.
    pub subresource: String,
    /// It may stay open.
    pub is_long: bool,
}

/// Finds the delegate that answers a path below its group version, or that of its OpenAPI document.
pub fn route(
    delegates: &Delegates,
    method: &Method,
    path: &str,
    query: &Query,
) -> Option<(Arc<Delegate>, RequestInfo)> {
    let words = words(path)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["apis", group, version, ref rest @ ..] => {
            Some((delegates.find(group, version)?.clone(), request_info(method, rest, query)))
        }
        ["openapi", "v3", "apis", group, version] => {
            let delegate = delegates.find(group, version)?;
            // Without a document of its own there is none.
            delegate.discovered().open_api.as_ref()?;
            Some((delegate.clone(), RequestInfo::default()))
        }
        _ => None,
    }
}

pub(super) fn request_info(method: &Method, rest: &[&str], query: &Query) -> RequestInfo {
    let (watch_prefix, rest) = match rest {
        ["watch", tail @ ..] if !tail.is_empty() => (true, tail),
        _ => (false, rest),
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, tail @ ..] if !matches!(tail, [] | ["status"] | ["finalize"]) => {
            (*namespace, tail)
        }
        _ => ("", rest),
    };
    let [resource, rest @ ..] = rest else { return RequestInfo::default() };
    let name = rest.first().copied().unwrap_or_default();
    let subresource = rest.get(1).copied().unwrap_or_default();
    let is_collection = name.is_empty();
    let verb = match *method {
        Method::GET | Method::HEAD if watch_prefix => "watch",
        Method::GET | Method::HEAD if !is_collection => "get",
        Method::GET | Method::HEAD if query.flag("watch") => "watch",
        Method::GET | Method::HEAD => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if is_collection => "deletecollection",
        Method::DELETE => "delete",
        // Nobody is allowed a verb without a name, but the administrators.
        _ => "",
    };
    RequestInfo {
        verb,
        namespace: namespace.to_owned(),
        resource: (*resource).to_owned(),
        name: name.to_owned(),
        subresource: subresource.to_owned(),
        is_long: verb == "watch" || STREAMS.contains(&subresource),
    }
}

impl RequestInfo {
    /// What authorization is asked about.
    pub fn attributes(&self, group: &str, method: &Method, path: &str) -> Attributes {
        if self.resource.is_empty() {
            let verb = method.as_str().to_ascii_lowercase();
            return Attributes { verb, path: path.to_owned(), ..Attributes::default() };
        }
        Attributes {
            verb: self.verb.to_owned(),
            group: group.to_owned(),
            resource: self.resource.clone(),
            subresource: self.subresource.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            path: String::new(),
        }
    }
}
