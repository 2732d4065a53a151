//! ControllerRevision.

use shoal_objects::{Errors, Path, Value};

use super::Rules;
use super::access::{field, int_at};
use super::checks;

/// The rules of ControllerRevision.
pub const RULES: Rules = Rules { validate, validate_update, ..Rules::NONE };

fn validate(revision: &Value, errors: &mut Errors) {
    if field(revision, "data").is_none() {
        errors.required(&Path::new("data"), "data is mandatory");
    }
    if let Some(number) = int_at(revision, "revision").filter(|n| *n < 0) {
        errors.invalid(&Path::new("revision"), &Value::from(number), checks::NOT_NEGATIVE);
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    if field(new, "data") != field(old, "data") {
        errors.invalid(&Path::new("data"), new.get("data").unwrap_or(&Value::Null), checks::IMMUTABLE);
    }
}
