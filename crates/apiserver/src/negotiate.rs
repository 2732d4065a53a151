//! Which representation the client wants, and what its body is written in.

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};

use crate::status::Failure;

/// How a response is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Kubernetes protobuf.
    Protobuf,
}

/// What a response shows of the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// The objects themselves.
    Full,
    /// `Table` in this version of meta.k8s.io.
    Table(&'static str),
    /// `PartialObjectMetadata` in this version of meta.k8s.io, for one object or the events of a watch.
    Partial(&'static str),
    /// `PartialObjectMetadataList` in this version of meta.k8s.io, for a list.
    PartialList(&'static str),
}

/// The negotiated representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// How it is written.
    pub encoding: Encoding,
    /// What it shows.
    pub view: View,
}

impl Accepted {
    /// JSON of the objects themselves.
    pub fn is_plain(self) -> bool {
        self.encoding == Encoding::Json && self.view == View::Full
    }

    /// JSON, whatever it shows.
    pub fn is_json(self) -> bool {
        self.encoding == Encoding::Json
    }
}

/// Formats of request bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFormat {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Kubernetes protobuf.
    Protobuf,
}

/// Kinds of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Strategic merge.
    Strategic,
    /// Server-side apply.
    Apply,
}

const AVAILABLE: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf, \
     application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// One entry of an Accept header.
struct Range<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl Range<'_> {
    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(k, _)| *k == name).map(|(_, v)| *v)
    }
}

fn ranges(headers: &HeaderMap) -> Vec<Range<'_>> {
    let mut found: Vec<(Range<'_>, f32)> = Vec::new();
    for header in headers.get_all(ACCEPT) {
        for part in header.to_str().unwrap_or_default().split(',') {
            let mut words = part.split(';').map(str::trim);
            let media = words.next().unwrap_or_default();
            if media.is_empty() {
                continue;
            }
            let parameters: Vec<(&str, &str)> = words.filter_map(|w| w.split_once('=')).collect();
            let quality =
                parameters.iter().find(|(k, _)| *k == "q").map_or(1.0, |(_, v)| v.parse().unwrap_or(0.0));
            found.push((Range { media, parameters }, quality));
        }
    }
    // Stable: equal weights keep the client's order.
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    found.into_iter().filter(|(_, q)| *q > 0.0).map(|(r, _)| r).collect()
}

/// Chooses the representation of a resource response; `protobuf` tells whether the objects have such a form.
pub fn accept(headers: &HeaderMap, protobuf: bool) -> Result<Accepted, Failure> {
    let ranges = ranges(headers);
    if ranges.is_empty() {
        return Ok(Accepted { encoding: Encoding::Json, view: View::Full });
    }
    let mut unknown_view = false;
    for range in &ranges {
        let encoding = match range.media {
            "application/json" | "application/*" | "*/*" => Encoding::Json,
            "application/yaml" => Encoding::Yaml,
            // Tables have no such form; the metadata of objects has one whatever they are.
            "application/vnd.kubernetes.protobuf" => match view(range) {
                Some(View::Full) if protobuf => Encoding::Protobuf,
                Some(View::Partial(_) | View::PartialList(_)) => Encoding::Protobuf,
                _ => continue,
            },
            _ => continue,
        };
        match view(range) {
            Some(view) => return Ok(Accepted { encoding, view }),
            None => unknown_view = true,
        }
    }
    if unknown_view {
        let text = "only the following media types are accepted: application/json, application/yaml, \
                    application/vnd.kubernetes.protobuf";
        return Err(Failure::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", text));
    }
    Err(Failure::not_acceptable(AVAILABLE))
}

/// What the parameters `as`, `g` and `v` ask to be shown, if there is such a thing.
fn view(range: &Range<'_>) -> Option<View> {
    let Some(kind) = range.parameter("as") else { return Some(View::Full) };
    let version = match (range.parameter("g"), range.parameter("v")) {
        (Some("meta.k8s.io"), Some("v1")) => "v1",
        (Some("meta.k8s.io"), Some("v1beta1")) => "v1beta1",
        _ => return None,
    };
    match kind {
        "Table" => Some(View::Table(version)),
        "PartialObjectMetadata" => Some(View::Partial(version)),
        "PartialObjectMetadataList" => Some(View::PartialList(version)),
        _ => None,
    }
}

/// Whether aggregated discovery (v2) is asked for: `Some(true)`, plain: `Some(false)`, neither possible: `None`.
pub fn accept_discovery(headers: &HeaderMap) -> Option<bool> {
    let ranges = ranges(headers);
    if ranges.is_empty() {
        return Some(false);
    }
    for range in &ranges {
        match (range.media, range.parameter("as")) {
            ("application/json", Some("APIGroupDiscoveryList"))
                if range.parameter("g") == Some("apidiscovery.k8s.io")
                    && range.parameter("v") == Some("v2") =>
            {
                return Some(true);
            }
            ("application/json" | "application/*" | "*/*" | "application/yaml", None) => return Some(false),
            _ => {}
        }
    }
    None
}

/// Whether the Swagger 2 document is asked for in protobuf (`Some(true)`) or in JSON (`Some(false)`).
pub fn accept_swagger(headers: &HeaderMap) -> Option<bool> {
    ranges(headers).iter().find_map(|range| match range.media {
        // The name with the @ is the older one.
        "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
        | "application/com.github.proto-openapi.spec.v2.v1.0+protobuf" => Some(true),
        "application/json" | "application/*" | "*/*" => Some(false),
        _ => None,
    })
}

/// The media type of the body, without parameters.
fn content_type(headers: &HeaderMap) -> &str {
    let text = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim()
}

/// The format of an object body. No Content-Type means JSON, as on the real server.
pub fn body_format(headers: &HeaderMap) -> Result<BodyFormat, Failure> {
    match content_type(headers) {
        "" | "application/json" => Ok(BodyFormat::Json),
        "application/yaml" => Ok(BodyFormat::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(BodyFormat::Protobuf),
        _ => Err(Failure::unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

/// The kind of a patch body.
pub fn patch_kind(headers: &HeaderMap) -> Result<PatchKind, Failure> {
    match content_type(headers) {
        "application/json-patch+json" => Ok(PatchKind::Json),
        "application/merge-patch+json" => Ok(PatchKind::Merge),
        "application/strategic-merge-patch+json" => Ok(PatchKind::Strategic),
        "application/apply-patch+yaml" => Ok(PatchKind::Apply),
        _ => Err(Failure::unsupported_media_type("415: Unsupported Media Type").with_details()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_has_a_protobuf_form_even_of_custom_kinds() {
        let mut headers = HeaderMap::new();
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        headers.insert(ACCEPT, http::HeaderValue::from_static(metadata));
        let wanted = Accepted { encoding: Encoding::Protobuf, view: View::Partial("v1") };
        assert_eq!(accept(&headers, false).unwrap(), wanted);
        let table = "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json";
        headers.insert(ACCEPT, http::HeaderValue::from_static(table));
        assert!(accept(&headers, true).unwrap().is_plain());
    }

    fn accepted(header: &'static str) -> Result<View, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, http::HeaderValue::from_static(header));
        accept(&headers, false).map(|accepted| accepted.view)
    }

    #[test]
    fn the_first_known_view_is_taken() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,\
                       application/json";
        assert_eq!(accepted(kubectl).unwrap(), View::Table("v1"));
        let old = "application/json;as=Nonsense;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io";
        assert_eq!(accepted(old).unwrap(), View::Table("v1beta1"));
        assert_eq!(accepted("application/json;as=Table;v=v9;g=meta.k8s.io,*/*").unwrap(), View::Full);
    }

    #[test]
    fn an_unknown_view_is_refused_in_other_words_than_an_unknown_format() {
        let view = accepted("application/json;as=Nonsense;v=v1;g=meta.k8s.io").unwrap_err();
        assert!(view.message.starts_with("only the following"), "{}", view.message);
        let format = accepted("text/csv").unwrap_err();
        assert!(format.message.starts_with("406: Not Acceptable"), "{}", format.message);
    }
}
