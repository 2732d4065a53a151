//! Where services send their traffic.

use serde_json::Value;
use shoal_objects::Timestamp;

use super::Column;
use super::cells::{AGE, NAME, NONE, UNSET, few, or, text};
use crate::kinds::access::{field, int_at, list_at, str_at};

/// More are only counted.
const MOST: usize = 3;

/// Columns of endpoints.
pub static ENDPOINTS: &[Column] =
    &[NAME, Column::text("Endpoints", "Addresses and ports that are ready.", endpoints), AGE];

/// Columns of endpoint slices.
pub static ENDPOINT_SLICE: &[Column] = &[
    NAME,
    Column::text("AddressType", "What the addresses are.", |o, _| text(o, &["addressType"])),
    Column::text("Ports", "Ports of every endpoint.", |o, _| {
        let ports: Vec<String> = list_at(o, "ports").iter().map(slice_port).collect();
        or(few(&ports, MOST, ","), UNSET)
    }),
    Column::text("Endpoints", "Addresses, ready or not.", |o, _| {
        let addresses = list_at(o, "endpoints").iter().flat_map(|endpoint| list_at(endpoint, "addresses"));
        let addresses: Vec<String> = addresses.map(|a| a.as_str().unwrap_or_default().to_owned()).collect();
        or(few(&addresses, MOST, ","), UNSET)
    }),
    AGE,
];

fn slice_port(port: &Value) -> String {
    let name = field(port, "name").and_then(Value::as_str);
    int_at(port, "port").map_or(name.unwrap_or("*").to_owned(), |number| number.to_string())
}

fn endpoints(object: &Value, _: Timestamp) -> Value {
    let subsets = list_at(object, "subsets");
    if subsets.is_empty() {
        return NONE.into();
    }
    let mut shown = Vec::new();
    for subset in subsets {
        let addresses = list_at(subset, "addresses").iter().map(|address| str_at(address, "ip"));
        let ports = list_at(subset, "ports");
        if ports.is_empty() {
            // Services without a cluster address need no ports.
            shown.extend(addresses.clone().map(str::to_owned));
        }
        for port in ports {
            let number = int_at(port, "port").unwrap_or_default();
            shown.extend(addresses.clone().map(|ip| {
                if ip.contains(':') { format!("[{ip}]:{number}") } else { format!("{ip}:{number}") }
            }));
        }
    }
    few(&shown, MOST, ",").into()
}
