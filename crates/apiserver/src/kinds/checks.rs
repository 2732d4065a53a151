//! Checks that many kinds make: names, labels, numbers, addresses, immutability.

use std::net::IpAddr;

use shoal_objects::{Errors, Path, Value, names};

use super::access::{entries_at, field, int_at, is_set, list_at, str_at};

/// What is said of a field that may not change.
pub const FIELD_IMMUTABLE: &str = "field is immutable";

/// `Invalid value` once for every message about a text.
pub fn messages(errors: &mut Errors, path: &Path<'_>, value: &str, found: Vec<String>) {
    for message in found {
        errors.invalid_str(path, value, &message);
    }
}

/// A key of a ConfigMap or Secret.
pub fn config_map_key(errors: &mut Errors, path: &Path<'_>, value: &str) {
    messages(errors, path, value, names::config_map_key(value));
}

/// A qualified name, `example.com/MyName`.
pub fn qualified_name(errors: &mut Errors, path: &Path<'_>, value: &str) {
    messages(errors, path, value, names::qualified_name(value));
}

/// An RFC 1123 subdomain.
pub fn dns_subdomain(errors: &mut Errors, path: &Path<'_>, value: &str) {
    messages(errors, path, value, names::dns1123_subdomain(value));
}

/// An RFC 1123 label.
pub fn dns_label(errors: &mut Errors, path: &Path<'_>, value: &str) {
    messages(errors, path, value, names::dns1123_label(value));
}

/// A name that can stand in a URL path.
pub fn path_segment(errors: &mut Errors, path: &Path<'_>, value: &str) {
    messages(errors, path, value, names::path_segment_name(value));
}

/// A finalizer of a built-in kind.
pub fn finalizer(errors: &mut Errors, path: &Path<'_>, value: &str) {
    messages(errors, path, value, names::qualified_name(value));
    messages(errors, path, value, names::finalizer_name(value));
}

/// The labels at this path: keys and values, all complaints at the path itself.
pub fn labels(errors: &mut Errors, path: &Path<'_>, labels: &Value) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        qualified_name(errors, path, key);
        let text = value.as_str().unwrap_or_default();
        messages(errors, path, text, names::label_value(text));
    }
}

/// A LabelSelector.
pub fn label_selector(errors: &mut Errors, path: &Path<'_>, selector: &Value) {
    if let Some(wanted) = field(selector, "matchLabels") {
        labels(errors, &path.child("matchLabels"), wanted);
    }
    let expressions = path.child("matchExpressions");
    for (i, requirement) in list_at(selector, "matchExpressions").iter().enumerate() {
        selector_requirement(errors, &expressions.index(i), requirement);
    }
}

fn selector_requirement(errors: &mut Errors, path: &Path<'_>, requirement: &Value) {
    let values = path.child("values");
    match str_at(requirement, "operator") {
        "In" | "NotIn" => {
            if !is_set(requirement, "values") {
                errors.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
            }
        }
        "Exists" | "DoesNotExist" => {
            if is_set(requirement, "values") {
                errors.forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
            }
        }
        operator => errors.invalid_str(&path.child("operator"), operator, "not a valid selector operator"),
    }
    let key = str_at(requirement, "key");
    qualified_name(errors, &path.child("key"), key);
    for (i, value) in list_at(requirement, "values").iter().enumerate() {
        let text = value.as_str().unwrap_or_default();
        messages(errors, &values.index(i), text, names::label_value(text));
    }
}

/// Required, and one of a closed set.
pub fn one_of(errors: &mut Errors, path: &Path<'_>, value: &str, allowed: &[&str]) {
    if value.is_empty() {
        errors.required(path, "");
    } else if !allowed.contains(&value) {
        errors.not_supported(path, value, allowed);
    }
}

/// Zero or more.
pub fn non_negative(errors: &mut Errors, path: &Path<'_>, value: i64) {
    if value < 0 {
        errors.invalid(path, &value.into(), "must be greater than or equal to 0");
    }
}

/// A port's number.
pub fn port_number(errors: &mut Errors, path: &Path<'_>, port: i64) {
    for message in names::port_number(port) {
        errors.invalid(path, &port.into(), &message);
    }
}

/// A port's number or name (IntOrString).
pub fn port_number_or_name(errors: &mut Errors, path: &Path<'_>, port: Option<&Value>) {
    match port {
        Some(Value::String(name)) => messages(errors, path, name, names::port_name(name)),
        Some(number) => port_number(errors, path, number.as_i64().unwrap_or_default()),
        None => port_number(errors, path, 0),
    }
}

/// TCP, UDP or SCTP.
pub fn protocol(errors: &mut Errors, path: &Path<'_>, value: &str) {
    one_of(errors, path, value, &["SCTP", "TCP", "UDP"]);
}

/// An IP address of an older field. Says whether it was one.
pub fn ip(errors: &mut Errors, path: &Path<'_>, value: &str) -> bool {
    let found = names::ip_address_strict(value);
    let valid = found.is_empty();
    messages(errors, path, value, found);
    valid
}

/// An IP address that others may be sent to.
pub fn non_special_ip(errors: &mut Errors, path: &Path<'_>, value: &str) {
    let Some(ip) = names::parse_ip(value) else {
        errors.invalid_str(path, value, "must be a valid IP address");
        return;
    };
    if ip.is_unspecified() {
        errors.invalid_str(path, value, &format!("may not be unspecified ({value})"));
    }
    if ip.is_loopback() {
        errors.invalid_str(path, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let (unicast, multicast) = match ip {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.segments()[0] & 0xffc0 == 0xfe80, v6.segments()[0] & 0xff0f == 0xff02),
    };
    if unicast {
        errors.invalid_str(path, value, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if multicast {
        let detail = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";
        errors.invalid_str(path, value, detail);
    }
}

/// Address and prefix length of a CIDR block.
pub fn parse_cidr(value: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = value.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    if bits.is_empty() || !bits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let bits: u8 = bits.parse().ok()?;
    (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, bits))
}

/// A CIDR block.
pub fn cidr(errors: &mut Errors, path: &Path<'_>, value: &str) {
    if parse_cidr(value).is_none() {
        let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        errors.invalid_str(path, value, detail);
    }
}

/// `field is immutable` when the two differ.
pub fn immutable(errors: &mut Errors, path: &Path<'_>, new: Option<&Value>, old: Option<&Value>) {
    if new != old {
        errors.invalid(path, new.unwrap_or(&Value::Null), FIELD_IMMUTABLE);
    }
}

/// Whether a map holds the same in both; an empty one is as good as none.
pub fn same_map(new: &Value, old: &Value, name: &str) -> bool {
    entries_at(new, name).eq(entries_at(old, name))
}

/// A required object reference of a webhook, a conversion or an aggregated API: a service of the cluster.
pub fn service_reference(errors: &mut Errors, path: &Path<'_>, service: &Value) {
    for name in ["namespace", "name"] {
        if !is_set(service, name) {
            errors.required(&path.child(name), &format!("service {name} is required"));
        }
    }
    let url_path = str_at(service, "path");
    if !url_path.is_empty() {
        webhook_path(errors, &path.child("path"), url_path);
    }
    if let Some(port) = int_at(service, "port") {
        for message in names::port_number(port) {
            errors.invalid(&path.child("port"), &port.into(), &format!("port is not valid: {message}"));
        }
    }
}

fn webhook_path(errors: &mut Errors, path: &Path<'_>, value: &str) {
    if value == "/" {
        return;
    }
    let Some(rest) = value.strip_prefix('/') else {
        errors.invalid_str(path, value, "must start with a '/'");
        return;
    };
    for (i, step) in rest.trim_end_matches('/').split('/').enumerate() {
        if step.is_empty() {
            errors.invalid_str(path, value, &format!("segment[{i}] may not be empty"));
            continue;
        }
        for message in names::dns1123_subdomain(step) {
            errors.invalid_str(path, value, &format!("segment[{i}]: {message}"));
        }
    }
}

/// `field reason` of everything a check finds, for tests.
#[cfg(test)]
pub fn causes(check: impl FnOnce(&mut Errors)) -> Vec<String> {
    let mut errors = Errors::new();
    check(&mut errors);
    errors.0.iter().map(|e| format!("{} {}", e.field, e.reason.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn blocks_have_an_address_and_a_length_that_fits() {
        assert!(parse_cidr("10.0.0.0/24").is_some());
        assert!(parse_cidr("2001:db8::/64").is_some());
        for bad in ["", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8", "x/8", "10.0.0.0/", "::/129", "10.0.0.0/8/8"] {
            assert!(parse_cidr(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn special_addresses_are_told_apart() {
        for (ip, expected) in
            [("10.0.0.1", 0), ("127.0.0.1", 1), ("0.0.0.0", 1), ("fe80::1", 1), ("224.0.0.1", 1), ("x", 1)]
        {
            assert_eq!(causes(|e| non_special_ip(e, &Path::new("ip"), ip)).len(), expected, "{ip}");
        }
    }

    #[test]
    fn a_selector_needs_values_where_they_mean_something() {
        let selector = json!({"matchExpressions": [
            {"key": "a", "operator": "In"},
            {"key": "a", "operator": "Exists", "values": ["x"]},
            {"key": "b", "operator": "Like"},
        ]});
        assert_eq!(
            causes(|e| label_selector(e, &Path::new("s"), &selector)),
            [
                "s.matchExpressions[0].values FieldValueRequired",
                "s.matchExpressions[1].values FieldValueForbidden",
                "s.matchExpressions[2].operator FieldValueInvalid"
            ]
        );
    }
}
