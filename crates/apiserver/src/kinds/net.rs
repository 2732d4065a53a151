//! Ports, addresses and address blocks.

use std::net::IpAddr;

use shoal_objects::{Errors, Path, Value, names};

use super::access::{int_at, is_set, str_at};
use super::checks;

/// The protocols of a port.
pub const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// A port's number or name (IntOrString).
pub fn port_number_or_name(errors: &mut Errors, path: &Path<'_>, port: Option<&Value>) {
    match port {
        Some(Value::String(name)) => checks::text(errors, path, name, names::port_name(name)),
        Some(number) => port_number(errors, path, number.as_i64().unwrap_or_default()),
        None => port_number(errors, path, 0),
    }
}

/// A port's number.
pub fn port_number(errors: &mut Errors, path: &Path<'_>, port: i64) {
    checks::number(errors, path, port, names::port_number(port));
}

/// An IP address of an older field. Says whether it was one.
pub fn ip(errors: &mut Errors, path: &Path<'_>, value: &str) -> bool {
    let found = names::ip_address_strict(value);
    let valid = found.is_empty();
    checks::text(errors, path, value, found);
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

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;

    #[test]
    fn blocks_have_an_address_and_a_length_that_fits() {
        assert!(parse_cidr("10.0.0.0/24").is_some());
        assert!(parse_cidr("2001:db8::/64").is_some());
        for bad in
            ["", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8", "x/8", "10.0.0.0/", "::/129", "10.0.0.0/8/8"]
        {
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
}
