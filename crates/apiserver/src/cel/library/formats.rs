//! Named formats of texts: `format.dns1123Label().validate(self.name)`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use shoal_objects::names;

use super::Row;
use super::url::Url;
use crate::cel::budget::Budget;
use crate::cel::error::EvalError;
use crate::cel::eval::Evaluated;
use crate::cel::opaque::Opaque;
use crate::cel::time;
use crate::cel::value::CelValue;

const FORMAT: &[&str] = &["()format"];

pub const ROWS: &[Row] = &[
    ("format.named", &["(string)optional<format>"], named),
    ("format.dns1123Label", FORMAT, |_, _| constant("dns1123Label")),
    ("format.dns1123Subdomain", FORMAT, |_, _| constant("dns1123Subdomain")),
    ("format.dns1035Label", FORMAT, |_, _| constant("dns1035Label")),
    ("format.qualifiedName", FORMAT, |_, _| constant("qualifiedName")),
    ("format.dns1123LabelPrefix", FORMAT, |_, _| constant("dns1123LabelPrefix")),
    ("format.dns1123SubdomainPrefix", FORMAT, |_, _| constant("dns1123SubdomainPrefix")),
    ("format.dns1035LabelPrefix", FORMAT, |_, _| constant("dns1035LabelPrefix")),
    ("format.labelValue", FORMAT, |_, _| constant("labelValue")),
    ("format.uri", FORMAT, |_, _| constant("uri")),
    ("format.uuid", FORMAT, |_, _| constant("uuid")),
    ("format.byte", FORMAT, |_, _| constant("byte")),
    ("format.date", FORMAT, |_, _| constant("date")),
    ("format.datetime", FORMAT, |_, _| constant("datetime")),
    ("validate", &["format.(string)optional<list<string>>"], validate),
];

const NAMES: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

fn constant<'a>(name: &'static str) -> Evaluated<'a> {
    Ok(CelValue::opaque(Opaque::Format(name)))
}

fn named<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [CelValue::String(name)] = args else { return Err(EvalError::NoSuchOverload) };
    match NAMES.iter().find(|known| **known == name.as_str()) {
        Some(known) => Ok(constant(known)?.some()),
        None => Ok(CelValue::Optional(None)),
    }
}

/// A prefix may end with a dash, which the name generated from it then does not.
fn without_dash(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(head) if !head.is_empty() => format!("{head}a"),
        _ => text.to_owned(),
    }
}

fn complaints(format: &str, text: &str) -> Vec<String> {
    let unless = |fits: bool, complaint: &str| if fits { Vec::new() } else { vec![complaint.to_owned()] };
    match format {
        "dns1123Label" => names::dns1123_label(text),
        "dns1123Subdomain" => names::dns1123_subdomain(text),
        "dns1035Label" => names::dns1035_label(text),
        "dns1123LabelPrefix" => names::dns1123_label(&without_dash(text)),
        "dns1123SubdomainPrefix" => names::dns1123_subdomain(&without_dash(text)),
        "dns1035LabelPrefix" => names::dns1035_label(&without_dash(text)),
        "qualifiedName" => names::qualified_name(text),
        "labelValue" => names::label_value(text),
        "uri" => unless(Url::parse(text).is_some(), "invalid URI for request"),
        "uuid" => unless(is_uuid(text), "does not match the UUID format"),
        "byte" => unless(STANDARD.decode(text).is_ok(), "invalid base64"),
        "date" => unless(text.len() == 10 && time::parse_date(text).is_some(), "invalid date"),
        "datetime" => unless(time::parse_timestamp(text).is_some(), "invalid datetime"),
        _ => Vec::new(),
    }
}

fn is_uuid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let lengths =
        parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12]) || (parts.len() == 1 && text.len() == 32);
    lengths && parts.iter().all(|part| part.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn validate<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let [CelValue::Opaque(opaque), CelValue::String(text)] = args else {
        return Err(EvalError::NoSuchOverload);
    };
    let Opaque::Format(format) = opaque.as_ref() else { return Err(EvalError::NoSuchOverload) };
    budget.charge(20)?;
    budget.charge_text(text.as_str().len() * 4)?;
    let complaints = complaints(format, text.as_str());
    if complaints.is_empty() {
        return Ok(CelValue::Optional(None));
    }
    Ok(CelValue::list(complaints.into_iter().map(CelValue::text).collect()).some())
}
