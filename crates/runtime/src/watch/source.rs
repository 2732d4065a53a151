//! What is watched: a kind, a scope, and the requests for it.

use std::fmt::Write as _;

use http::Request;
use http::header::{ACCEPT, ACCEPT_ENCODING};
use kube::api::ApiResource;
use kube::client::Body;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::fault::Fault;
use super::revision::Revision;

const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Which objects of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// Only this namespace.
    pub namespace: Option<String>,
    /// Only these labels, as in `app=web,tier!=db`.
    pub labels: Option<String>,
    /// Only these fields, as in `spec.nodeName=node-1`.
    pub fields: Option<String>,
    /// Only this part (KEP-5866). Servers that do not know it send everything.
    pub shard: Option<String>,
}

impl Scope {
    /// Every object of the kind.
    pub fn all() -> Scope {
        Scope::default()
    }

    /// The objects of one namespace.
    pub fn namespace(name: &str) -> Scope {
        Scope { namespace: Some(name.to_owned()), ..Scope::default() }
    }

    /// Only with these labels.
    #[must_use]
    pub fn labels(self, selector: &str) -> Scope {
        Scope { labels: Some(selector.to_owned()), ..self }
    }

    /// Only with these fields.
    #[must_use]
    pub fn fields(self, selector: &str) -> Scope {
        Scope { fields: Some(selector.to_owned()), ..self }
    }
}

/// A kind and a scope, and whether bodies are wanted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// The kind.
    pub resource: ApiResource,
    /// Which objects.
    pub scope: Scope,
    /// Only metadata is wanted.
    pub metadata_only: bool,
}

impl Source {
    /// The path of the collection.
    pub fn path(&self) -> String {
        let ApiResource { group, version, plural, .. } = &self.resource;
        let mut path =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        if let Some(namespace) = &self.scope.namespace {
            let _ = write!(path, "/namespaces/{}", utf8_percent_encode(namespace, QUERY));
        }
        path.push('/');
        path.push_str(plural);
        path
    }

    /// The request for one page of the newest list. `limit` 0 asks for all at once.
    pub fn list_request(&self, limit: u32, token: Option<&str>) -> Result<Request<Body>, Fault> {
        let mut query = self.selectors();
        if limit > 0 {
            query.push(("limit", limit.to_string()));
        }
        if let Some(token) = token {
            query.push(("continue", token.to_owned()));
        }
        self.request(&query, "PartialObjectMetadataList")
    }

    /// The request for a watch that goes on from a revision.
    pub fn watch_request(&self, from: &Revision, seconds: u64) -> Result<Request<Body>, Fault> {
        let mut query = self.watch_parameters(seconds);
        query.push(("resourceVersion", from.to_string()));
        self.request(&query, "PartialObjectMetadata")
    }

    /// The request for a watch that begins with the newest list.
    pub fn streamed_list_request(&self, seconds: u64) -> Result<Request<Body>, Fault> {
        let mut query = self.watch_parameters(seconds);
        query.push(("sendInitialEvents", "true".to_owned()));
        query.push(("resourceVersionMatch", "NotOlderThan".to_owned()));
        self.request(&query, "PartialObjectMetadata")
    }

    fn watch_parameters(&self, seconds: u64) -> Vec<(&'static str, String)> {
        let mut query = self.selectors();
        query.push(("watch", "true".to_owned()));
        query.push(("allowWatchBookmarks", "true".to_owned()));
        query.push(("timeoutSeconds", seconds.to_string()));
        query
    }

    fn selectors(&self) -> Vec<(&'static str, String)> {
        let Scope { labels, fields, shard, .. } = &self.scope;
        [("labelSelector", labels), ("fieldSelector", fields), ("shardSelector", shard)]
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.clone()?)))
            .collect()
    }

    fn request(&self, query: &[(&str, String)], metadata: &str) -> Result<Request<Body>, Fault> {
        let mut uri = self.path();
        for (index, (name, value)) in query.iter().enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            let _ = write!(uri, "{mark}{name}={}", utf8_percent_encode(value, QUERY));
        }
        // The one place that says which encoding is wanted.
        let accept = if self.metadata_only {
            format!("application/json;as={metadata};g=meta.k8s.io;v=v1,application/json")
        } else {
            "application/json".to_owned()
        };
        Request::get(uri)
            .header(ACCEPT, accept)
            // Servers may compress each event for itself, which decoders of whole bodies do not understand.
            .header(ACCEPT_ENCODING, "identity")
            .body(Body::empty())
            .map_err(|_| Fault::Malformed("the name of the kind or namespace makes no path"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(scope: Scope) -> Source {
        let resource = ApiResource {
            group: "apps".into(),
            version: "v1".into(),
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            plural: "deployments".into(),
        };
        Source { resource, scope, metadata_only: false }
    }

    #[test]
    fn scopes_become_paths_and_parameters() {
        let request =
            source(Scope::namespace("a/b").labels("app in (x,y)")).list_request(500, Some("t=")).unwrap();
        let expected = "/apis/apps/v1/namespaces/a%2Fb/deployments?labelSelector=app%20in%20%28x%2Cy%29&limit=500&continue=t%3D";
        assert_eq!(request.uri(), expected);
        let request = source(Scope::all()).watch_request(&Revision::Number(7), 290).unwrap();
        let expected = "/apis/apps/v1/deployments?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&resourceVersion=7";
        assert_eq!(request.uri(), expected);
    }

    #[test]
    fn metadata_is_asked_for_in_the_form_of_list_or_watch() {
        let source = Source { metadata_only: true, ..source(Scope::all()) };
        let accept = |request: &Request<Body>| request.headers()[ACCEPT].to_str().unwrap().to_owned();
        assert!(accept(&source.list_request(0, None).unwrap()).contains("as=PartialObjectMetadataList;"));
        assert!(accept(&source.streamed_list_request(9).unwrap()).contains("as=PartialObjectMetadata;"));
    }
}
