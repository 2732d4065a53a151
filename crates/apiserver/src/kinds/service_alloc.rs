//! Addresses and node ports of services.
//!
//! [`Allocator::allocate`] takes what a service needs before it is written; [`Allocator::commit`] lets go of what the
//! written service no longer has, [`Allocator::undo`] of what a failed write took. The server calls `allocate`
//! after `prepare_*` and before `validate`, because validation asks for some of what is allocated.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use serde_json::json;
use shoal_objects::invalid::Reason;
use shoal_objects::{Entropy, Errors, Path, Value};

use super::access::{existing_mut, field, int_at, is_set, list_at, list_mut, set, set_default, str_at};
use super::service::{is_headless, needs_cluster_ip, needs_health_check_port, needs_node_port};
use super::service_validation::validate_cluster_ips;

/// What is in use of one cluster's service network and node ports.
#[derive(Debug)]
pub struct Allocator {
    network: u32,
    bits: u8,
    ports: RangeInclusive<u16>,
    used_ips: BTreeSet<u32>,
    used_ports: BTreeSet<u16>,
}

/// What one write took and what it will free once it has succeeded.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "commit it when the write succeeded, undo it when it failed"]
pub struct Reserved {
    taken: Held,
    freed: Held,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Held {
    ips: BTreeSet<u32>,
    ports: BTreeSet<u16>,
}

impl Default for Allocator {
    /// 10.96.0.0/12 and 30000-32767.
    fn default() -> Allocator {
        Allocator::new(Ipv4Addr::new(10, 96, 0, 0), 12, 30000..=32767)
    }
}

impl Allocator {
    /// Nothing is in use yet. Prefixes longer than 30 bits leave no addresses.
    pub fn new(network: Ipv4Addr, bits: u8, ports: RangeInclusive<u16>) -> Allocator {
        let bits = bits.min(32);
        let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
        let network = u32::from(network) & mask;
        Allocator { network, bits, ports, used_ips: BTreeSet::new(), used_ports: BTreeSet::new() }
    }

    /// Marks what a stored service has as used.
    pub fn occupy(&mut self, service: &Value) {
        let held = self.held(service);
        self.used_ips.extend(held.ips);
        self.used_ports.extend(held.ports);
    }

    /// Frees what a deleted service had.
    pub fn release(&mut self, service: &Value) {
        let held = self.held(service);
        self.free(&held);
    }

    /// Ends a reservation whose service was written.
    pub fn commit(&mut self, reserved: Reserved) {
        let Reserved { freed, .. } = reserved;
        self.free(&freed);
    }

    /// Ends a reservation whose service was not written.
    pub fn undo(&mut self, reserved: Reserved) {
        let Reserved { taken, .. } = reserved;
        self.free(&taken);
    }

    /// Gives `new` its address, families and ports. On errors nothing stays taken.
    pub fn allocate(
        &mut self,
        new: &mut Value,
        old: Option<&Value>,
        entropy: &Entropy,
    ) -> Result<Reserved, Errors> {
        let before = old.map(|old| self.held(old)).unwrap_or_default();
        let mut taken = Held::default();
        let mut errors = Errors::new();
        if let Some(spec) = existing_mut(new, "spec") {
            self.fill(spec, &before, &mut taken, entropy, &mut errors);
        }
        if !errors.is_empty() {
            self.free(&taken);
            return Err(errors);
        }
        let after = self.held(new);
        let freed = Held {
            ips: before.ips.into_iter().filter(|ip| !after.ips.contains(ip)).collect(),
            ports: before.ports.into_iter().filter(|port| !after.ports.contains(port)).collect(),
        };
        Ok(Reserved { taken, freed })
    }

    fn fill(
        &mut self,
        spec: &mut Value,
        before: &Held,
        taken: &mut Held,
        entropy: &Entropy,
        errors: &mut Errors,
    ) {
        if str_at(spec, "type") != "ExternalName" {
            // Whatever is wrong here would only confuse what follows.
            validate_cluster_ips(spec, errors);
            if !errors.is_empty() {
                return;
            }
            fill_families(spec, errors);
        }
        if needs_cluster_ip(spec) && errors.is_empty() {
            self.fill_cluster_ip(spec, before, taken, entropy, errors);
        }
        if errors.is_empty() {
            self.fill_node_ports(spec, before, taken, entropy, errors);
        }
        if errors.is_empty() && needs_health_check_port(spec) {
            self.fill_health_check_port(spec, before, taken, entropy, errors);
        }
    }

    fn fill_cluster_ip(
        &mut self,
        spec: &mut Value,
        before: &Held,
        taken: &mut Held,
        entropy: &Entropy,
        errors: &mut Errors,
    ) {
        if is_headless(spec) {
            return;
        }
        let path = Path::new("spec");
        match str_at(spec, "clusterIP").parse::<Ipv4Addr>() {
            Ok(ip) => {
                if before.ips.contains(&u32::from(ip)) {
                    return;
                }
                match self.take_ip(ip) {
                    Ok(()) => {
                        taken.ips.insert(u32::from(ip));
                    }
                    Err(why) => {
                        let detail = format!("failed to allocate IP {ip}: {why}");
                        errors.invalid(&path.child("clusterIPs"), &json!([ip.to_string()]), &detail);
                    }
                }
            }
            Err(_) if is_set(spec, "clusterIP") => {
                let ip = str_at(spec, "clusterIP");
                let detail = format!("failed to allocate IP {ip}: {}", self.not_in_network(ip));
                errors.invalid(&path.child("clusterIPs"), &json!([ip]), &detail);
            }
            Err(_) => match self.next_ip(entropy) {
                Some(ip) => {
                    taken.ips.insert(u32::from(ip));
                    set(spec, "clusterIP", ip.to_string());
                    set(spec, "clusterIPs", json!([ip.to_string()]));
                }
                None => {
                    let message = "Internal error: failed to allocate a serviceIP: range is full";
                    errors.push(&path.child("clusterIPs"), Reason::Internal, message);
                }
            },
        }
    }

    fn fill_node_ports(
        &mut self,
        spec: &mut Value,
        before: &Held,
        taken: &mut Held,
        entropy: &Entropy,
        errors: &mut Errors,
    ) {
        let automatic = needs_node_port(spec);
        if !automatic && str_at(spec, "type") != "LoadBalancer" {
            return;
        }
        let (path, mut by_port) = (Path::new("spec"), BTreeMap::<i64, u16>::new());
        // One port number with several protocols shares its node port, also with an entry further down that asks
        // for a particular one.
        let asked: Vec<(i64, i64)> = list_at(spec, "ports")
            .iter()
            .map(|port| {
                (int_at(port, "port").unwrap_or_default(), int_at(port, "nodePort").unwrap_or_default())
            })
            .collect();
        let mut requested = BTreeMap::new();
        for (number, node_port) in asked.iter().filter(|(_, node_port)| *node_port != 0) {
            requested.entry(*number).or_insert(*node_port);
        }
        let ports_path = path.child("ports");
        for (i, port) in list_mut(spec, "ports").iter_mut().enumerate() {
            let Some(&(number, own)) = asked.get(i) else { continue };
            if own == 0 && !automatic {
                continue;
            }
            let shared = by_port.get(&number).copied();
            if let Some(shared) = shared
                && (own == 0 || own == i64::from(shared))
            {
                set(port, "nodePort", shared);
                continue;
            }
            let wanted =
                if own == 0 && shared.is_none() { requested.get(&number).copied().unwrap_or(0) } else { own };
            match self.port(wanted, before, taken, entropy) {
                Ok(node_port) => {
                    set(port, "nodePort", node_port);
                    by_port.entry(number).or_insert(node_port);
                }
                Err(why) => {
                    let element = ports_path.index(i);
                    errors.invalid(&element.child("nodePort"), &wanted.into(), &why);
                    return;
                }
            }
        }
    }

    fn fill_health_check_port(
        &mut self,
        spec: &mut Value,
        before: &Held,
        taken: &mut Held,
        entropy: &Entropy,
        errors: &mut Errors,
    ) {
        let wanted = int_at(spec, "healthCheckNodePort").unwrap_or_default();
        match self.port(wanted, before, taken, entropy) {
            Ok(port) => set(spec, "healthCheckNodePort", port),
            Err(why) => {
                let path = Path::new("spec");
                let message = format!(
                    "Internal error: failed to allocate requested HealthCheck NodePort {wanted}: {why}"
                );
                errors.push(&path.child("healthCheckNodePort"), Reason::Internal, message);
            }
        }
    }

    /// Takes the wanted port, or any when it is 0. What the service has already is not taken twice.
    fn port(
        &mut self,
        wanted: i64,
        before: &Held,
        taken: &mut Held,
        entropy: &Entropy,
    ) -> Result<u16, String> {
        let port = if wanted == 0 {
            self.next_port(entropy).ok_or_else(|| "range is full".to_owned())?
        } else {
            let port = u16::try_from(wanted).ok().filter(|port| self.ports.contains(port));
            port.ok_or_else(|| {
                format!(
                    "provided port is not in the valid range. The range of valid ports is {}-{}",
                    self.ports.start(),
                    self.ports.end()
                )
            })?
        };
        if before.ports.contains(&port) {
            return Ok(port);
        }
        if !self.used_ports.insert(port) {
            return Err("provided port is already allocated".to_owned());
        }
        taken.ports.insert(port);
        Ok(port)
    }

    fn next_port(&self, entropy: &Entropy) -> Option<u16> {
        let (first, last) = (u64::from(*self.ports.start()), u64::from(*self.ports.end()));
        let count = (last + 1).saturating_sub(first);
        let offset = entropy.below(count);
        (0..count)
            .filter_map(|i| u16::try_from(first + (offset + i) % count.max(1)).ok())
            .find(|port| !self.used_ports.contains(port))
    }

    fn take_ip(&mut self, ip: Ipv4Addr) -> Result<(), String> {
        let number = u32::from(ip);
        if !(1..=self.hosts()).contains(&u64::from(number.wrapping_sub(self.network))) {
            return Err(self.not_in_network(&ip.to_string()));
        }
        if self.used_ips.insert(number) { Ok(()) } else { Err("provided IP is already allocated".to_owned()) }
    }

    fn not_in_network(&self, ip: &str) -> String {
        let network = Ipv4Addr::from(self.network);
        let bits = self.bits;
        format!(
            "the provided IP ({ip}) is not in the valid range. The range of valid IPs is {network}/{bits}"
        )
    }

    /// A free address, preferably above the first ones, which people like to choose themselves.
    fn next_ip(&mut self, entropy: &Entropy) -> Option<Ipv4Addr> {
        let hosts = self.hosts();
        let reserved = (hosts / 16).clamp(16, 256).min(hosts);
        let upper = hosts - reserved;
        let offset = entropy.below(upper);
        let high = (0..upper).map(|i| reserved + 1 + (offset + i) % upper);
        let found = high.chain(1..=reserved).find_map(|host| {
            let number = self.network.checked_add(u32::try_from(host).ok()?)?;
            (!self.used_ips.contains(&number)).then_some(number)
        })?;
        self.used_ips.insert(found);
        Some(Ipv4Addr::from(found))
    }

    /// How many addresses there are between the network's own and the broadcast address.
    fn hosts(&self) -> u64 {
        (1_u64 << (32 - self.bits)).saturating_sub(2)
    }

    /// Everything of ours that a service has.
    fn held(&self, service: &Value) -> Held {
        let Some(spec) = field(service, "spec") else { return Held::default() };
        let mut held = Held::default();
        if needs_cluster_ip(spec) {
            let ips = list_at(spec, "clusterIPs").iter().filter_map(Value::as_str);
            held.ips.extend(ips.filter_map(|ip| ip.parse::<Ipv4Addr>().ok()).map(u32::from));
        }
        let ports = list_at(spec, "ports").iter().filter_map(|port| int_at(port, "nodePort"));
        let ports = ports.chain(int_at(spec, "healthCheckNodePort"));
        let ours = ports.filter_map(|port| u16::try_from(port).ok()).filter(|port| self.ports.contains(port));
        held.ports.extend(ours);
        held
    }

    fn free(&mut self, held: &Held) {
        for ip in &held.ips {
            self.used_ips.remove(ip);
        }
        for port in &held.ports {
            self.used_ports.remove(port);
        }
    }
}

/// Families and policy on a cluster that only has IPv4.
fn fill_families(spec: &mut Value, errors: &mut Errors) {
    if is_headless(spec) && !is_set(spec, "selector") {
        // Whoever makes the endpoints of such a service may use any family.
        set_default(spec, "ipFamilyPolicy", "RequireDualStack");
        if !is_set(spec, "ipFamilies") {
            let single = str_at(spec, "ipFamilyPolicy") == "SingleStack";
            set(spec, "ipFamilies", if single { json!(["IPv4"]) } else { json!(["IPv4", "IPv6"]) });
        }
        return;
    }
    let path = Path::new("spec");
    let (families, policy_path) = (path.child("ipFamilies"), path.child("ipFamilyPolicy"));
    let policy = str_at(spec, "ipFamilyPolicy");
    if policy == "RequireDualStack" {
        let detail = "this cluster is not configured for dual-stack services";
        errors.invalid_str(&policy_path, policy, detail);
    }
    for (name, what) in [("clusterIPs", "clusterIPs"), ("ipFamilies", "ipFamilies")] {
        if list_at(spec, name).len() > 1 && matches!(policy, "" | "SingleStack") {
            let value = field(spec, "ipFamilyPolicy").unwrap_or(&Value::Null);
            let detail =
                format!("must be RequireDualStack or PreferDualStack when multiple '{what}' are specified");
            errors.invalid(&policy_path, value, &detail);
        }
    }
    for (i, family) in list_at(spec, "ipFamilies").iter().enumerate() {
        if family == "IPv6" {
            errors.invalid_str(&families.index(i), "IPv6", "not configured on this cluster");
        }
    }
    set_default(spec, "ipFamilyPolicy", "SingleStack");
    if !is_set(spec, "ipFamilies") {
        set(spec, "ipFamilies", json!(["IPv4"]));
    }
}

#[cfg(test)]
mod tests {
    use super::super::service::RULES;
    use super::*;
    use proptest::prelude::*;

    fn create(allocator: &mut Allocator, spec: &Value) -> Result<Value, Errors> {
        let mut service = json!({"spec": spec});
        (RULES.default)(&mut service);
        (RULES.prepare_create)(&mut service);
        let reserved = allocator.allocate(&mut service, None, &Entropy::seeded(1))?;
        allocator.commit(reserved);
        Ok(service)
    }

    fn change(allocator: &mut Allocator, old: &Value, patch: &[(&str, Value)]) -> Result<Value, Errors> {
        let mut new = old.clone();
        for (name, value) in patch {
            set(&mut new["spec"], name, value.clone());
        }
        (RULES.default)(&mut new);
        (RULES.prepare_update)(&mut new, old);
        let reserved = allocator.allocate(&mut new, Some(old), &Entropy::seeded(2))?;
        allocator.commit(reserved);
        Ok(new)
    }

    #[test]
    fn a_service_gets_an_address_of_the_network() {
        let mut allocator = Allocator::default();
        let a = create(&mut allocator, &json!({"ports": [{"port": 80}]})).unwrap();
        let ip: Ipv4Addr = a["spec"]["clusterIP"].as_str().unwrap().parse().unwrap();
        assert_eq!(u32::from(ip) >> 20, u32::from(Ipv4Addr::new(10, 96, 0, 0)) >> 20);
        assert_eq!(a["spec"]["clusterIPs"], json!([ip.to_string()]));
        assert_eq!(a["spec"]["ipFamilies"], json!(["IPv4"]));
        assert_eq!(a["spec"]["ipFamilyPolicy"], "SingleStack");
        allocator.release(&a);
        assert!(allocator.used_ips.is_empty());
    }

    #[test]
    fn headless_and_external_services_get_none() {
        let mut allocator = Allocator::default();
        let headless = create(&mut allocator, &json!({"clusterIP": "None", "selector": {"a": "b"}})).unwrap();
        assert_eq!(
            headless["spec"],
            json!({
                "clusterIP": "None", "clusterIPs": ["None"], "internalTrafficPolicy": "Cluster",
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "selector": {"a": "b"},
                "sessionAffinity": "None", "type": "ClusterIP",
            })
        );
        let external = create(&mut allocator, &json!({"type": "ExternalName", "externalName": "x"})).unwrap();
        assert!(external["spec"].get("clusterIP").is_none());
        let bare = create(&mut allocator, &json!({"clusterIP": "None"})).unwrap();
        assert_eq!(bare["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
        assert!(allocator.used_ips.is_empty());
    }

    #[test]
    fn node_ports_follow_the_type() {
        let mut allocator = Allocator::default();
        let np = create(&mut allocator, &json!({"type": "NodePort", "ports": [{"port": 80}]})).unwrap();
        let port = np["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
        assert!((30000..=32767).contains(&port));
        let cluster = change(&mut allocator, &np, &[("type", json!("ClusterIP"))]).unwrap();
        assert!(cluster["spec"]["ports"][0].get("nodePort").is_none());
        assert!(allocator.used_ports.is_empty());
        let again = change(&mut allocator, &cluster, &[("type", json!("NodePort"))]).unwrap();
        assert!(again["spec"]["ports"][0]["nodePort"].is_number());
        let to_name = [("type", json!("ExternalName")), ("externalName", json!("x.test"))];
        let external = change(&mut allocator, &again, &to_name).unwrap();
        assert_eq!(
            external["spec"],
            json!({
                "externalName": "x.test", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
                "sessionAffinity": "None", "type": "ExternalName",
            })
        );
        assert!(allocator.used_ips.is_empty() && allocator.used_ports.is_empty());
    }

    #[test]
    fn a_taken_address_or_port_is_refused_and_nothing_stays_taken() {
        let mut allocator = Allocator::default();
        let spec =
            json!({"type": "NodePort", "clusterIP": "10.96.0.5", "ports": [{"port": 1, "nodePort": 30001}]});
        create(&mut allocator, &spec).unwrap();
        assert_eq!(
            create(&mut allocator, &spec).unwrap_err().to_string(),
            "spec.clusterIPs: Invalid value: [\"10.96.0.5\"]: failed to allocate IP 10.96.0.5: \
             provided IP is already allocated"
        );
        let port = json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": 30001}]});
        assert_eq!(
            create(&mut allocator, &port).unwrap_err().to_string(),
            "spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated"
        );
        let outside = json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": 80}]});
        assert_eq!(
            create(&mut allocator, &outside).unwrap_err().to_string(),
            "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. \
             The range of valid ports is 30000-32767"
        );
        let abroad = json!({"clusterIP": "10.0.0.1", "ports": [{"port": 1}]});
        assert_eq!(
            create(&mut allocator, &abroad).unwrap_err().to_string(),
            "spec.clusterIPs: Invalid value: [\"10.0.0.1\"]: failed to allocate IP 10.0.0.1: the provided IP \
             (10.0.0.1) is not in the valid range. The range of valid IPs is 10.96.0.0/12"
        );
        assert_eq!((allocator.used_ips.len(), allocator.used_ports.len()), (1, 1));
    }

    #[test]
    fn one_port_in_two_protocols_shares_its_node_port() {
        let mut allocator = Allocator::default();
        let ports = json!([
            {"name": "t", "port": 53, "protocol": "TCP"},
            {"name": "u", "port": 53, "protocol": "UDP", "nodePort": 30053},
        ]);
        let service = create(&mut allocator, &json!({"type": "NodePort", "ports": ports})).unwrap();
        assert_eq!(service["spec"]["ports"][0]["nodePort"], 30053);
        assert_eq!(service["spec"]["ports"][1]["nodePort"], 30053);
    }

    #[test]
    fn local_balancers_get_a_health_check_port() {
        let mut allocator = Allocator::default();
        let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]});
        let service = create(&mut allocator, &spec).unwrap();
        assert!(service["spec"]["healthCheckNodePort"].is_number());
        assert_eq!(allocator.used_ports.len(), 2);
        allocator.release(&service);
        assert!(allocator.used_ports.is_empty());
    }

    #[test]
    fn an_undone_write_leaves_nothing_behind() {
        let mut allocator = Allocator::default();
        let mut service = json!({"spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        (RULES.default)(&mut service);
        let reserved = allocator.allocate(&mut service, None, &Entropy::seeded(1)).unwrap();
        assert_eq!((allocator.used_ips.len(), allocator.used_ports.len()), (1, 1));
        allocator.undo(reserved);
        assert!(allocator.used_ips.is_empty() && allocator.used_ports.is_empty());
    }

    #[test]
    fn a_full_network_says_so() {
        let mut allocator = Allocator::new(Ipv4Addr::new(10, 0, 0, 0), 30, 30000..=30000);
        for _ in 0..2 {
            create(&mut allocator, &json!({"ports": [{"port": 80}]})).unwrap();
        }
        let full = create(&mut allocator, &json!({"ports": [{"port": 80}]})).unwrap_err();
        assert_eq!(full.0[0].reason, Reason::Internal);
        let mut none = Allocator::new(Ipv4Addr::new(10, 0, 0, 0), 32, 30000..=30000);
        assert!(create(&mut none, &json!({"ports": [{"port": 80}]})).is_err());
    }

    proptest! {
        #[test]
        fn what_is_used_is_what_the_services_have(types in prop::collection::vec(0..4_usize, 1..40)) {
            let mut allocator = Allocator::new(Ipv4Addr::new(10, 0, 0, 0), 24, 30000..=30100);
            let names = ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"];
            let mut services: Vec<Value> = Vec::new();
            for (i, kind) in types.iter().enumerate() {
                let fields = [("type", json!(names[*kind])), ("externalName", json!("x"))];
                if i % 3 == 2 {
                    let old = services.remove(0);
                    services.push(change(&mut allocator, &old, &fields).unwrap());
                } else {
                    let spec = json!({"type": names[*kind], "externalName": "x", "ports": [{"port": 80}]});
                    services.push(create(&mut allocator, &spec).unwrap());
                }
            }
            let mut fresh = Allocator::new(Ipv4Addr::new(10, 0, 0, 0), 24, 30000..=30100);
            services.iter().for_each(|service| fresh.occupy(service));
            prop_assert_eq!(&fresh.used_ips, &allocator.used_ips);
            prop_assert_eq!(&fresh.used_ports, &allocator.used_ports);
            services.iter().for_each(|service| allocator.release(service));
            prop_assert!(allocator.used_ips.is_empty() && allocator.used_ports.is_empty());
        }
    }
}
