//! Field errors: what is wrong with an object, where, and in the words Kubernetes users know.

use std::fmt;

use serde_json::Value;

/// Where in an object a value stands. Lives on the stack and is only formatted when there is something to say.
#[derive(Clone, Copy)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    segment: Segment<'a>,
}

#[derive(Clone, Copy)]
enum Segment<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

/// Why a value is refused; the names are the `reason` of a Status cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A value that must be given is missing.
    Required,
    /// The value breaks a rule.
    Invalid,
    /// The value is not one of a closed set.
    NotSupported,
    /// The value may occur once only.
    Duplicate,
    /// The field may not be set or changed here.
    Forbidden,
    /// The text is too long.
    TooLong,
    /// The list has too many items.
    TooMany,
    /// The value names something that does not exist.
    NotFound,
    /// The value has the wrong JSON type.
    TypeInvalid,
    /// The server could not decide.
    Internal,
}

/// One thing that is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Dotted path, `spec.containers[0].name`.
    pub field: String,
    /// The kind of error.
    pub reason: Reason,
    /// Text such as `Invalid value: "x": must be …`, without the field.
    pub message: String,
}

/// Everything that is wrong with an object, in the order found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors(pub Vec<FieldError>);

impl<'a> Path<'a> {
    /// A path of one field.
    pub const fn new(field: &'a str) -> Path<'a> {
        Path { parent: None, segment: Segment::Field(field) }
    }

    /// `self.field`
    pub const fn child(&'a self, field: &'a str) -> Path<'a> {
        Path { parent: Some(self), segment: Segment::Field(field) }
    }

    /// `self[index]`
    pub const fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), segment: Segment::Index(index) }
    }

    /// `self[key]`, for maps whose keys are data
    pub const fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), segment: Segment::Key(key) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.segment {
            Segment::Field(name) if self.parent.is_some() => write!(f, ".{name}"),
            Segment::Field(name) => f.write_str(name),
            Segment::Index(index) => write!(f, "[{index}]"),
            Segment::Key(key) => write!(f, "[{key}]"),
        }
    }
}

impl Reason {
    /// The `reason` of a Status cause.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Required => "FieldValueRequired",
            Reason::Invalid => "FieldValueInvalid",
            Reason::NotSupported => "FieldValueNotSupported",
            Reason::Duplicate => "FieldValueDuplicate",
            Reason::Forbidden => "FieldValueForbidden",
            Reason::TooLong => "FieldValueTooLong",
            Reason::TooMany => "FieldValueTooMany",
            Reason::NotFound => "FieldValueNotFound",
            Reason::TypeInvalid => "FieldValueTypeInvalid",
            Reason::Internal => "InternalError",
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl Errors {
    /// No errors.
    pub fn new() -> Errors {
        Errors::default()
    }

    /// Adds an error about a field whose path is already text.
    pub fn push_at(&mut self, field: String, reason: Reason, message: impl Into<String>) {
        self.0.push(FieldError { field, reason, message: message.into() });
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an error with a ready message.
    pub fn push(&mut self, path: &Path<'_>, reason: Reason, message: impl Into<String>) {
        self.0.push(FieldError { field: path.to_string(), reason, message: message.into() });
    }

    /// `Required value` or `Required value: detail`.
    pub fn required(&mut self, path: &Path<'_>, detail: &str) {
        let message =
            if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        self.push(path, Reason::Required, message);
    }

    /// `Invalid value: <json>: detail`.
    pub fn invalid(&mut self, path: &Path<'_>, value: &Value, detail: &str) {
        self.push(path, Reason::Invalid, format!("Invalid value: {value}: {detail}"));
    }

    /// `Invalid value: "text": detail`.
    pub fn invalid_str(&mut self, path: &Path<'_>, value: &str, detail: &str) {
        self.push(path, Reason::Invalid, format!("Invalid value: {value:?}: {detail}"));
    }

    /// `Unsupported value: "x": supported values: "a", "b"`.
    pub fn not_supported(&mut self, path: &Path<'_>, value: &str, supported: &[&str]) {
        let list: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        let message = format!("Unsupported value: {value:?}: supported values: {}", list.join(", "));
        self.push(path, Reason::NotSupported, message);
    }

    /// `Duplicate value: <json>`.
    pub fn duplicate(&mut self, path: &Path<'_>, value: &Value) {
        self.push(path, Reason::Duplicate, format!("Duplicate value: {value}"));
    }

    /// `Forbidden: detail`.
    pub fn forbidden(&mut self, path: &Path<'_>, detail: &str) {
        self.push(path, Reason::Forbidden, format!("Forbidden: {detail}"));
    }

    /// `Too long: may not be more than N bytes`.
    pub fn too_long(&mut self, path: &Path<'_>, max: usize) {
        self.push(path, Reason::TooLong, format!("Too long: may not be more than {max} bytes"));
    }

    /// `Too many: N: must have at most M items`.
    pub fn too_many(&mut self, path: &Path<'_>, actual: usize, max: usize) {
        let items = if max == 1 { "item" } else { "items" };
        self.push(path, Reason::TooMany, format!("Too many: {actual}: must have at most {max} {items}"));
    }

    /// `Not found: "x"`.
    pub fn not_found(&mut self, path: &Path<'_>, value: &str) {
        self.push(path, Reason::NotFound, format!("Not found: {value:?}"));
    }
}

impl fmt::Display for Errors {
    /// One error as it is; several in brackets, comma separated, equal texts once.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut texts: Vec<String> = Vec::with_capacity(self.0.len());
        for error in &self.0 {
            let text = error.to_string();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        match texts.as_slice() {
            [one] => f.write_str(one),
            several => write!(f, "[{}]", several.join(", ")),
        }
    }
}
