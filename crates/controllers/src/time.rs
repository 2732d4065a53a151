//! The injected clock, in the form that API types use.

use k8s_openapi::jiff::Timestamp;
use shoal_objects::clock::Clock;

/// The time now.
pub fn now(clock: &Clock) -> Timestamp {
    Timestamp::from_microsecond(clock.now().0).unwrap_or_default()
}
