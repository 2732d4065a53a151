//! URLs: absolute ones, or paths that start with `/`.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;

use super::Row;
use crate::cel::budget::Budget;
use crate::cel::error::EvalError;
use crate::cel::eval::Evaluated;
use crate::cel::opaque::Opaque;
use crate::cel::value::{CelValue, Key, Str};

const PART: &[&str] = &["url.()string"];

pub const ROWS: &[Row] = &[
    ("url", &["(string)url"], url),
    ("isURL", &["(string)bool"], is_url),
    ("getScheme", PART, scheme),
    ("getHost", PART, host),
    ("getHostname", PART, hostname),
    ("getPort", PART, port),
    ("getEscapedPath", PART, path),
    ("getQuery", &["url.()map<string,list<string>>"], query),
];

/// The parts of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// As written.
    pub text: String,
    scheme: String,
    /// With port.
    host: String,
    path: String,
    query: String,
}

impl Url {
    /// Reads a URL.
    pub fn parse(text: &str) -> Option<Url> {
        if text.bytes().any(|b| b < 0x20 || b == 0x7f) {
            return None;
        }
        let (rest, _fragment) = text.split_once('#').unwrap_or((text, ""));
        let (scheme, rest) = match rest.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) => (scheme.to_ascii_lowercase(), rest),
            _ if rest.starts_with('/') => (String::new(), rest),
            _ => return None,
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.strip_prefix("//") {
            None => ("", rest),
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        };
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let fits = is_host(host) && is_escaped(path) && is_escaped(query);
        fits.then(|| Url {
            text: text.to_owned(),
            scheme,
            host: host.to_owned(),
            path: path.replace(' ', "%20"),
            query: query.to_owned(),
        })
    }

    /// The host without port and brackets, and the port.
    fn host_and_port(&self) -> (&str, &str) {
        if let Some(inside) = self.host.strip_prefix('[') {
            let (name, rest) = inside.split_once(']').unwrap_or((inside, ""));
            return (name, rest.strip_prefix(':').unwrap_or_default());
        }
        self.host.rsplit_once(':').unwrap_or((&self.host, ""))
    }
}

fn is_scheme(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

fn is_host(host: &str) -> bool {
    let port = match host.strip_prefix('[') {
        Some(inside) => match inside.split_once(']') {
            Some((_, "")) => "",
            Some((_, rest)) => match rest.strip_prefix(':') {
                Some(port) => port,
                None => return false,
            },
            None => return false,
        },
        None => host.rsplit_once(':').map_or("", |(_, port)| port),
    };
    let bad = |b: u8| matches!(b, b' ' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}');
    port.bytes().all(|b| b.is_ascii_digit()) && !host.bytes().any(bad)
}

/// Whether every `%` starts an escape.
fn is_escaped(text: &str) -> bool {
    text.split('%').skip(1).all(|after| after.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2)
}

const MISMATCH: EvalError = EvalError::NoSuchOverload;

fn parse_args(budget: &mut Budget, args: &[CelValue<'_>]) -> Result<Option<Url>, EvalError> {
    let [CelValue::String(text)] = args else { return Err(MISMATCH) };
    budget.charge(10)?;
    budget.charge_text(text.as_str().len())?;
    Ok(Url::parse(text.as_str()))
}

fn url<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let parsed = parse_args(budget, args)?;
    let invalid = EvalError::text("URL parse error during conversion from string");
    parsed.map(|url| CelValue::opaque(Opaque::Url(url))).ok_or(invalid)
}

fn is_url<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Bool(parse_args(budget, args)?.is_some()))
}

fn read<'b>(args: &'b [CelValue<'_>]) -> Result<&'b Url, EvalError> {
    match args {
        [CelValue::Opaque(opaque)] => match opaque.as_ref() {
            Opaque::Url(url) => Ok(url),
            _ => Err(MISMATCH),
        },
        _ => Err(MISMATCH),
    }
}

fn scheme<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::text(read(args)?.scheme.as_str()))
}

fn host<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::text(read(args)?.host.as_str()))
}

fn hostname<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::text(read(args)?.host_and_port().0))
}

fn port<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::text(read(args)?.host_and_port().1))
}

fn path<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::text(read(args)?.path.as_str()))
}

fn query<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let url = read(args)?;
    budget.charge(10 + 2 * url.query.len() as u64)?;
    let decode = |text: &str| {
        let spaced = text.replace('+', " ");
        percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
    };
    let mut found: BTreeMap<String, Vec<CelValue<'a>>> = BTreeMap::new();
    for pair in url.query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        found.entry(decode(key)).or_default().push(CelValue::text(decode(value)));
    }
    let entries = found.into_iter().map(|(key, values)| {
        let key = Key::String(Str::Shared(key.into()));
        (key, CelValue::list(values))
    });
    Ok(CelValue::map(entries.collect()))
}
