//! What the tests of several kinds share.

use shoal_objects::Errors;

/// `field reason` of everything a check finds.
pub fn causes(check: impl FnOnce(&mut Errors)) -> Vec<String> {
    let mut errors = Errors::new();
    check(&mut errors);
    errors.0.iter().map(|e| format!("{} {}", e.field, e.reason.as_str())).collect()
}
