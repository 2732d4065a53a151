//! Endpoints and EndpointSlice.

use shoal_objects::{Errors, Path, Value, names};

use super::access::{field, int_at, is_set, list_at, list_mut, set_default, set_default_str, str_at};
use super::seen::Seen;
use super::{Rules, checks, net};

/// The rules of Endpoints.
pub const RULES: Rules = Rules { default, validate, ..Rules::NONE };

/// The rules of EndpointSlice.
pub const SLICE_RULES: Rules = Rules {
    default: default_slice,
    validate: validate_slice,
    validate_update: |new, old, errors| {
        if str_at(new, "addressType") != str_at(old, "addressType") {
            let kind = str_at(new, "addressType");
            errors.invalid_str(&Path::new("addressType"), kind, checks::IMMUTABLE);
        }
    },
    ..Rules::NONE
};

const MAX_ENDPOINTS: usize = 1000;
const MAX_ADDRESSES: usize = 100;
const MAX_PORTS: usize = 20000;
const MAX_ZONE_HINTS: usize = 8;

fn default(endpoints: &mut Value) {
    for subset in list_mut(endpoints, "subsets") {
        for port in list_mut(subset, "ports") {
            set_default_str(port, "protocol", "TCP");
        }
    }
}

fn validate(endpoints: &Value, errors: &mut Errors) {
    let subsets = Path::new("subsets");
    for (i, subset) in list_at(endpoints, "subsets").iter().enumerate() {
        let path = subsets.index(i);
        if !is_set(subset, "addresses") && !is_set(subset, "notReadyAddresses") {
            errors.required(&path, "must specify `addresses` or `notReadyAddresses`");
        }
        for list in ["addresses", "notReadyAddresses"] {
            let path = path.child(list);
            for (j, address) in list_at(subset, list).iter().enumerate() {
                validate_address(address, &path.index(j), errors);
            }
        }
        let ports = list_at(subset, "ports");
        let ports_path = path.child("ports");
        for (j, port) in ports.iter().enumerate() {
            validate_port(port, ports.len() > 1, &ports_path.index(j), errors);
        }
    }
}

fn validate_address(address: &Value, path: &Path<'_>, errors: &mut Errors) {
    let ip = str_at(address, "ip");
    net::ip(errors, &path.child("ip"), ip);
    checks::optional_text(address, "hostname", path, errors, names::dns1123_label);
    if let Some(node) = field(address, "nodeName").and_then(Value::as_str) {
        checks::text(errors, &path.child("nodeName"), node, names::dns1123_subdomain(node));
    }
    net::non_special_ip(errors, &path.child("ip"), ip);
}

fn validate_port(port: &Value, named: bool, path: &Path<'_>, errors: &mut Errors) {
    if named {
        checks::required_text(port, "name", path, errors, names::dns1123_label);
    } else {
        checks::optional_text(port, "name", path, errors, names::dns1123_label);
    }
    net::port_number(errors, &path.child("port"), int_at(port, "port").unwrap_or_default());
    checks::one_of(port, "protocol", &net::PROTOCOLS, path, errors);
    if let Some(protocol) = field(port, "appProtocol").and_then(Value::as_str) {
        checks::text(errors, &path.child("appProtocol"), protocol, names::qualified_name(protocol));
    }
}

fn default_slice(slice: &mut Value) {
    for port in list_mut(slice, "ports") {
        set_default(port, "name", "");
        set_default(port, "protocol", "TCP");
    }
}

fn validate_slice(slice: &Value, errors: &mut Errors) {
    let kind = str_at(slice, "addressType");
    match kind {
        "" => errors.required(&Path::new("addressType"), ""),
        kind => checks::supported_text(kind, &["FQDN", "IPv4", "IPv6"], &Path::new("addressType"), errors),
    }
    let endpoints = list_at(slice, "endpoints");
    let path = Path::new("endpoints");
    if endpoints.len() > MAX_ENDPOINTS {
        errors.too_many(&path, endpoints.len(), MAX_ENDPOINTS);
    } else {
        for (i, endpoint) in endpoints.iter().enumerate() {
            validate_endpoint(endpoint, kind, &path.index(i), errors);
        }
    }
    let ports = list_at(slice, "ports");
    let path = Path::new("ports");
    if ports.len() > MAX_PORTS {
        errors.too_many(&path, ports.len(), MAX_PORTS);
        return;
    }
    let mut seen = Seen::default();
    for (i, port) in ports.iter().enumerate() {
        let path = path.index(i);
        checks::optional_text(port, "name", &path, errors, names::dns1123_label);
        let name = str_at(port, "name");
        if seen.again(name) {
            errors.duplicate(&path.child("name"), &name.into());
        }
        if let Some(number) = int_at(port, "port") {
            net::port_number(errors, &path.child("port"), number);
        }
        checks::one_of(port, "protocol", &net::PROTOCOLS, &path, errors);
        checks::optional_text(port, "appProtocol", &path, errors, names::qualified_name);
    }
}

fn validate_endpoint(endpoint: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let addresses = list_at(endpoint, "addresses");
    let addresses_path = path.child("addresses");
    if addresses.is_empty() {
        errors.required(&addresses_path, "must contain at least 1 endpoint");
    } else if addresses.len() > MAX_ADDRESSES {
        errors.too_many(&addresses_path, addresses.len(), MAX_ADDRESSES);
    }
    for (i, address) in addresses.iter().take(MAX_ADDRESSES).enumerate() {
        let path = addresses_path.index(i);
        let text = address.as_str().unwrap_or_default();
        match kind {
            "FQDN" => checks::text(errors, &path, text, names::fully_qualified_domain(text)),
            "IPv4" | "IPv6" => validate_slice_address(text, kind, &path, errors),
            _ => {}
        }
    }
    if let Some(node) = field(endpoint, "nodeName").and_then(Value::as_str) {
        checks::text(errors, &path.child("nodeName"), node, names::dns1123_subdomain(node));
    }
    if field(endpoint, "hostname").is_some() {
        let host = str_at(endpoint, "hostname");
        checks::text(errors, &path.child("hostname"), host, names::dns1123_label(host));
    }
    let hints = field(endpoint, "hints").unwrap_or(&Value::Null);
    let zones = list_at(hints, "forZones");
    let hints_path = path.child("hints");
    let zones_path = hints_path.child("forZones");
    if zones.len() > MAX_ZONE_HINTS {
        errors.too_many(&zones_path, zones.len(), MAX_ZONE_HINTS);
        return;
    }
    let mut seen = Seen::default();
    for (i, zone) in zones.iter().enumerate() {
        let path = zones_path.index(i);
        let name = str_at(zone, "name");
        checks::text(errors, &path.child("name"), name, names::qualified_name(name));
        if seen.again(name) {
            errors.duplicate(&path.child("name"), &name.into());
        }
    }
}

fn validate_slice_address(text: &str, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    if !net::ip(errors, path, text) {
        return;
    }
    if text.contains(':') != (kind == "IPv6") {
        errors.invalid_str(path, text, &format!("must be a valid {kind} address"));
    }
    net::non_special_ip(errors, path, text);
}

#[cfg(test)]
mod tests {
    use super::super::testing::causes;
    use super::*;
    use serde_json::json;

    #[test]
    fn ports_are_tcp_unless_told_otherwise() {
        let mut endpoints =
            json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]});
        default(&mut endpoints);
        assert_eq!(endpoints["subsets"][0]["ports"], json!([{"port": 80, "protocol": "TCP"}]));
        assert!(causes(|e| validate(&endpoints, e)).is_empty());
        let mut slice = json!({"addressType": "IPv4", "endpoints": [], "ports": [{"port": 80}]});
        default_slice(&mut slice);
        assert_eq!(slice["ports"], json!([{"name": "", "port": 80, "protocol": "TCP"}]));
        assert!(causes(|e| validate_slice(&slice, e)).is_empty());
    }

    #[test]
    fn addresses_fit_their_type() {
        let subset = json!({"subsets": [{}, {"addresses": [{"ip": "127.0.0.1"}]}]});
        assert_eq!(
            causes(|e| validate(&subset, e)),
            ["subsets[0] FieldValueRequired", "subsets[1].addresses[0].ip FieldValueInvalid"]
        );
        let slice = json!({"addressType": "IPv4", "endpoints": [
            {"addresses": ["10.0.0.1"]}, {"addresses": ["fd00::1"]}, {"addresses": []},
        ]});
        assert_eq!(
            causes(|e| validate_slice(&slice, e)),
            ["endpoints[1].addresses[0] FieldValueInvalid", "endpoints[2].addresses FieldValueRequired"]
        );
    }
}
