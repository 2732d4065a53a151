//! What a client of the group wants, and how it wants to see it. Pure.

use http::header::ACCEPT;
use http::{HeaderMap, Method, Request, StatusCode};
use serde_json::{Value, json};
use shoal_objects::selector::{FieldSelector, LabelSelector};

use super::{GROUP, VERSION};
use crate::kubelet_api::Query;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// What there is.
    Discovery,
    /// The OpenAPI document.
    OpenApi,
    /// Nodes: all, or one.
    Nodes(Option<String>),
    /// Pods: of all namespaces or one, all or one.
    Pods(Option<String>, Option<String>),
}

/// How objects are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As they are.
    Plain,
    /// As rows for people.
    Table(Rows),
    /// Their metadata only.
    Metadata,
}

/// What each row of a table has beside its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// The object's metadata.
    Metadata,
    /// The whole object.
    Object,
    /// Nothing.
    None,
}

/// A request that was understood.
#[derive(Clone, Debug)]
pub struct Asked {
    /// What.
    pub wanted: Wanted,
    /// How it is shown.
    pub form: Form,
    /// Which by label.
    pub labels: LabelSelector,
    /// Which by `metadata.name` and `metadata.namespace`.
    pub fields: FieldSelector,
}

/// A refusal: the code and the Status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub StatusCode, pub Value);

impl Refused {
    /// A refusal in the API's words.
    pub fn new(code: StatusCode, reason: &str, message: &str) -> Refused {
        Refused(
            code,
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": message, "reason": reason, "code": code.as_u16(),
            }),
        )
    }

    /// There are no figures under this name.
    pub fn not_found(kind: &str, name: &str) -> Refused {
        let message = format!("{kind}.{GROUP} {name:?} not found");
        let mut refused = Refused::new(StatusCode::NOT_FOUND, "NotFound", &message);
        refused.1["details"] = json!({"name": name, "group": GROUP, "kind": kind});
        refused
    }
}

/// Understands a request.
pub fn read<B>(request: &Request<B>) -> Result<Asked, Refused> {
    let unknown = || {
        let message = "the server could not find the requested resource";
        Refused::new(StatusCode::NOT_FOUND, "NotFound", message)
    };
    let root = format!("/apis/{GROUP}/{VERSION}");
    let path = request.uri().path().trim_end_matches('/');
    let wanted = match path.strip_prefix(&root) {
        Some("") => Wanted::Discovery,
        Some(rest) => wanted(rest).ok_or_else(unknown)?,
        None if path == format!("/openapi/v3{root}") => Wanted::OpenApi,
        None => return Err(unknown()),
    };
    let query = Query::of(request.uri());
    if !matches!(*request.method(), Method::GET | Method::HEAD) || query.is_set(&["watch"]) {
        let message = "the server does not allow this method on the requested resource";
        return Err(Refused::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message));
    }
    let bad = |message: String| Refused::new(StatusCode::BAD_REQUEST, "BadRequest", &message);
    let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or_default()).map_err(bad)?;
    let fields = FieldSelector::parse(query.get("fieldSelector").unwrap_or_default()).map_err(bad)?;
    let rows = match query.get("includeObject") {
        Some("Object") => Rows::Object,
        Some("None") => Rows::None,
        _ => Rows::Metadata,
    };
    Ok(Asked { wanted, form: form(request.headers(), rows)?, labels, fields })
}

fn wanted(rest: &str) -> Option<Wanted> {
    let words: Vec<&str> = rest.strip_prefix('/')?.split('/').collect();
    let own = |word: &str| Some(word.to_owned());
    match words.as_slice() {
        ["nodes"] => Some(Wanted::Nodes(None)),
        ["nodes", name] => Some(Wanted::Nodes(own(name))),
        ["pods"] => Some(Wanted::Pods(None, None)),
        ["namespaces", namespace, "pods"] => Some(Wanted::Pods(own(namespace), None)),
        ["namespaces", namespace, "pods", name] => Some(Wanted::Pods(own(namespace), own(name))),
        _ => None,
    }
}

/// The first of the client's wishes that can be met.
fn form(headers: &HeaderMap, rows: Rows) -> Result<Form, Refused> {
    let mut wishes: Vec<String> = Vec::new();
    for value in headers.get_all(ACCEPT) {
        let text = String::from_utf8_lossy(value.as_bytes());
        wishes.extend(text.split(',').map(|wish| wish.replace(' ', "")).filter(|wish| !wish.is_empty()));
    }
    if wishes.is_empty() {
        return Ok(Form::Plain);
    }
    let met = wishes.iter().find_map(|wish| {
        let (kind, parameters) = wish.split_once(';').unwrap_or((wish, ""));
        if !matches!(kind, "application/json" | "application/*" | "*/*") {
            return None;
        }
        let value =
            |name: &str| parameters.split(';').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        match value("as") {
            None => Some(Form::Plain),
            Some("Table") if value("v") == Some("v1") => Some(Form::Table(rows)),
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") if value("v") == Some("v1") => {
                Some(Form::Metadata)
            }
            Some(_) => None,
        }
    });
    met.ok_or_else(|| {
        let message = "only the following media types are accepted: application/json";
        Refused::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(path: &str, accept: &str) -> Result<Asked, u16> {
        let request = Request::get(format!("/apis/metrics.k8s.io/v1beta1{path}")).header("accept", accept);
        read(&request.body(()).unwrap()).map_err(|refused| refused.0.as_u16())
    }

    #[test]
    fn paths_say_what_is_wanted() {
        let wanted = |path: &str| asked(path, "").map(|asked| asked.wanted);
        assert_eq!(wanted(""), Ok(Wanted::Discovery));
        assert_eq!(wanted("/nodes/a"), Ok(Wanted::Nodes(Some("a".to_owned()))));
        assert_eq!(wanted("/pods?labelSelector=a%3Db"), Ok(Wanted::Pods(None, None)));
        let one = Wanted::Pods(Some("n".to_owned()), Some("p".to_owned()));
        assert_eq!(wanted("/namespaces/n/pods/p"), Ok(one));
        assert_eq!(wanted("/namespaces/n/nodes"), Err(404));
        assert_eq!(wanted("/pods?watch=1"), Err(405));
        assert_eq!(wanted("/pods?labelSelector=a%3D%3D%3D"), Err(400));
        let post = Request::post("/apis/metrics.k8s.io/v1beta1/pods").body(()).unwrap();
        assert_eq!(read(&post).unwrap_err().0, StatusCode::METHOD_NOT_ALLOWED);
    }

    #[test]
    fn the_first_form_that_there_is_is_taken() {
        let form = |accept: &str| asked("/pods?includeObject=None", accept).map(|asked| asked.form);
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io, application/json";
        assert_eq!(form(kubectl), Ok(Form::Table(Rows::None)));
        assert_eq!(form("application/vnd.kubernetes.protobuf,application/json"), Ok(Form::Plain));
        assert_eq!(form("application/json;as=Table;v=v1beta1;g=meta.k8s.io,*/*;q=0.1"), Ok(Form::Plain));
        assert_eq!(form("application/vnd.kubernetes.protobuf"), Err(406));
    }
}
