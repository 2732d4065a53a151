//! Spans of time as short text.

use serde_json::Value;
use shoal_objects::Timestamp;

/// Time since a timestamp; `<unknown>` without one.
pub fn since(timestamp: Option<&Value>, now: Timestamp) -> String {
    match timestamp.and_then(micros) {
        Some(then) => spell(now.0.saturating_sub(then) / 1_000_000),
        None => "<unknown>".to_owned(),
    }
}

/// A timestamp in microseconds since the epoch.
pub fn micros(timestamp: &Value) -> Option<i64> {
    let parsed: jiff::Timestamp = timestamp.as_str()?.parse().ok()?;
    Some(parsed.as_microsecond())
}

/// `45s`, `5m`, `3h25m`, `2d4h`, `400d`, `3y12d`: as exact as a glance needs. A clock that is a second off is forgiven.
pub fn spell(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let pair = |a: i64, unit: &str, b: i64, small: &str| {
        if b == 0 { format!("{a}{unit}") } else { format!("{a}{unit}{b}{small}") }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => pair(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ages_are_as_exact_as_a_glance_needs() {
        let cases = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (12_300, "3h25m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (187_200, "2d4h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (64_108_800, "2y12d"),
            (252_288_000, "8y"),
        ];
        for (seconds, text) in cases {
            assert_eq!(spell(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn what_is_no_timestamp_is_unknown() {
        for bad in [json!(null), json!(7), json!(""), json!("yesterday")] {
            assert_eq!(since(Some(&bad), Timestamp(0)), "<unknown>", "{bad}");
        }
        let micro = json!("1970-01-01T00:00:01.500000Z");
        assert_eq!(since(Some(&micro), Timestamp(5_000_000)), "3s");
        assert_eq!(since(Some(&micro), Timestamp(1_000_000)), "0s", "half a second ahead");
    }
}
