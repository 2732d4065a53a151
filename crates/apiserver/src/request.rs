//! From method, path and query to what the client wants.

use std::sync::Arc;

use http::Method;
use percent_encoding::percent_decode_str;

use crate::registry::{Registry, Resource};
use crate::status::Failure;

/// What a path means.
pub enum Route {
    /// `/api`, `/apis`, `/apis/GROUP`, `/apis/GROUP/VERSION`
    Discovery(Discovery),
    /// `/openapi/...`
    OpenApi(String),
    /// `/healthz`, `/livez`, `/readyz` and what is below
    Health(String),
    /// `/version`
    Version,
    /// `/metrics`
    Metrics,
    /// `/.well-known/openid-configuration`
    OpenIdConfiguration,
    /// `/openid/v1/jwks`
    Jwks,
    /// A resource or one of its objects.
    Resource(Target),
    /// A path below a served group version that names nothing.
    NoSuchResource,
    /// Anything else.
    Nothing,
}

/// Which discovery document.
pub enum Discovery {
    /// `/api`
    Core,
    /// `/apis`
    Groups,
    /// `/apis/GROUP`
    Group(String),
    /// `/api/v1`, `/apis/GROUP/VERSION`
    Version(String, String),
}

/// The object or collection a request is about.
pub struct Target {
    /// The resource.
    pub resource: Arc<Resource>,
    /// Namespace, empty for cluster scope or all namespaces.
    pub namespace: String,
    /// Object name, empty for the collection.
    pub name: String,
    /// Subresource, empty for the object itself.
    pub subresource: String,
    /// The old `/watch/` prefix was used.
    pub watch_prefix: bool,
}

/// Query parameters, decoded, in order.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

/// The words of a path, decoded; `None` if it cannot be the path of anything.
pub fn words(path: &str) -> Option<Vec<String>> {
    let raw: Vec<&str> = path.split('/').skip(1).collect();
    let mut words: Vec<String> = Vec::with_capacity(raw.len());
    for (i, word) in raw.iter().enumerate() {
        if word.is_empty() && i + 1 == raw.len() {
            continue; // a trailing slash
        }
        let decoded = percent_decode_str(word).decode_utf8().ok()?;
        // A decoded slash or a dot segment would name another object than the one that was authorised.
        if decoded.is_empty() || decoded == "." || decoded == ".." || decoded.contains(['/', '\0']) {
            return None;
        }
        words.push(decoded.into_owned());
    }
    Some(words)
}

/// Reads the path against the registry.
pub fn route(registry: &Registry, path: &str) -> Route {
    let Some(words) = words(path) else { return Route::Nothing };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["api"] => Route::Discovery(Discovery::Core),
        ["apis"] => Route::Discovery(Discovery::Groups),
        ["api", version] => version_discovery(registry, "", version),
        ["apis", group] => Route::Discovery(Discovery::Group(group.to_owned())),
        ["apis", group, version] => version_discovery(registry, group, version),
        ["api", version, ref rest @ ..] => resource(registry, "", version, rest),
        ["apis", group, version, ref rest @ ..] => resource(registry, group, version, rest),
        ["openapi", ref rest @ ..] => Route::OpenApi(rest.join("/")),
        ["healthz" | "livez" | "readyz", ..] => Route::Health(words.join("/")),
        ["version"] => Route::Version,
        ["metrics"] => Route::Metrics,
        [".well-known", "openid-configuration"] => Route::OpenIdConfiguration,
        ["openid", "v1", "jwks"] => Route::Jwks,
        _ => Route::Nothing,
    }
}

fn version_discovery(registry: &Registry, group: &str, version: &str) -> Route {
    if registry.group_versions().contains(&(group, version)) {
        return Route::Discovery(Discovery::Version(group.to_owned(), version.to_owned()));
    }
    unknown(registry, group)
}

/// The real server answers a Status below groups that are built in and plain text elsewhere.
fn unknown(registry: &Registry, group: &str) -> Route {
    if registry.has_builtin_group(group) { Route::NoSuchResource } else { Route::Nothing }
}

fn resource(registry: &Registry, group: &str, version: &str, rest: &[&str]) -> Route {
    let (watch_prefix, rest) = match rest {
        ["watch", tail @ ..] if !tail.is_empty() => (true, tail),
        _ => (false, rest),
    };
    let target = |plural: &str, namespace: &str, name: &str, subresource: &[&str]| {
        let Some(found) = registry.find(group, version, plural) else { return unknown(registry, group) };
        if !found.namespaced && !namespace.is_empty() {
            return unknown(registry, group);
        }
        // Objects are addressed within their namespace only.
        if found.namespaced && namespace.is_empty() && !name.is_empty() {
            return unknown(registry, group);
        }
        Route::Resource(Target {
            resource: found.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: subresource.join("/"),
            watch_prefix,
        })
    };
    match *rest {
        ["namespaces", name] => target("namespaces", "", name, &[]),
        ["namespaces", name, sub @ ("status" | "finalize")] => target("namespaces", "", name, &[sub]),
        ["namespaces", namespace, plural] => target(plural, namespace, "", &[]),
        ["namespaces", namespace, plural, name, ref sub @ ..] => target(plural, namespace, name, sub),
        [plural] => target(plural, "", "", &[]),
        [plural, name, ref sub @ ..] => target(plural, "", name, sub),
        [] => unknown(registry, group),
    }
}

/// What is to be done, in the words of authorization and metrics.
pub fn verb(method: &Method, target: &Target, query: &Query) -> Result<&'static str, Failure> {
    let collection = target.name.is_empty();
    Ok(match *method {
        Method::GET if collection && (target.watch_prefix || query.flag("watch")) => "watch",
        Method::GET if collection => "list",
        Method::GET => "get",
        Method::POST if collection || !target.subresource.is_empty() => "create",
        Method::PUT if !collection => "update",
        Method::PATCH if !collection => "patch",
        Method::DELETE if collection => "deletecollection",
        Method::DELETE => "delete",
        _ => return Err(Failure::method_not_allowed()),
    })
}

impl Query {
    /// Decodes `a=b&c=d`.
    pub fn parse(text: Option<&str>) -> Query {
        let decode = |s: &str| {
            let plus = s.replace('+', " ");
            percent_decode_str(&plus).decode_utf8_lossy().into_owned()
        };
        let pairs = text.unwrap_or_default().split('&').filter(|p| !p.is_empty());
        Query(
            pairs
                .map(|p| match p.split_once('=') {
                    Some((k, v)) => (decode(k), decode(v)),
                    None => (decode(p), String::new()),
                })
                .collect(),
        )
    }

    /// All parameters.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// The first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
    }

    /// All values of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(k, _)| k == name).map(|(_, v)| v.as_str())
    }

    /// A boolean: present and neither `0` nor `false`.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|v| v != "0" && !v.eq_ignore_ascii_case("false"))
    }

    /// A whole number; text that is none is refused in the words of the real server.
    pub fn number(&self, name: &str) -> Result<Option<i64>, Failure> {
        match self.get(name) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                Failure::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
            }),
        }
    }
}
