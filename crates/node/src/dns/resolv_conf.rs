//! A pod's `/etc/resolv.conf`. Pure.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Pod;

use super::zone::DOMAIN;

/// Resolvers look at no more name servers than this.
const SERVERS: usize = 3;

#[derive(Default)]
struct Parts {
    servers: Vec<String>,
    searches: Vec<String>,
    options: Vec<String>,
}

/// What a pod's policy and settings make of the host's file. `dns` is the cluster's name server, if there is one.
pub fn resolv_conf(pod: &Pod, host: &str, dns: Option<&str>) -> String {
    let spec = pod.spec.clone().unwrap_or_default();
    let policy = match spec.dns_policy.as_deref().unwrap_or("ClusterFirst") {
        // Nobody would lead these to the cluster's name server.
        "ClusterFirst" | "ClusterFirstWithHostNet" if spec.host_network == Some(true) => "Default",
        other => other,
    };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let hosts = read(host);
    let mut parts = match (policy, dns) {
        ("None", _) => Parts::default(),
        ("Default", _) | (_, None) => hosts,
        (_, Some(dns)) => {
            let own = [format!("{namespace}.svc.{DOMAIN}"), format!("svc.{DOMAIN}"), DOMAIN.to_owned()];
            Parts {
                // The host's are asked when this one is silent.
                servers: std::iter::once(dns.to_owned()).chain(hosts.servers).collect(),
                searches: own.into_iter().chain(hosts.searches).collect(),
                options: vec!["ndots:5".to_owned()],
            }
        }
    };
    let config = spec.dns_config.unwrap_or_default();
    let at = usize::from(policy != "None" && policy != "Default" && !parts.servers.is_empty());
    let at = if policy == "Default" { parts.servers.len() } else { at };
    parts.servers.splice(at..at, config.nameservers.unwrap_or_default());
    parts.searches.extend(config.searches.unwrap_or_default());
    for option in config.options.unwrap_or_default() {
        let Some(name) = option.name else { continue };
        parts.options.retain(|known| known.split(':').next() != Some(name.as_str()));
        parts.options.push(option.value.map_or(name.clone(), |value| format!("{name}:{value}")));
    }
    written(&parts)
}

fn read(text: &str) -> Parts {
    let mut parts = Parts::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        let rest = words.map(str::to_owned);
        match first {
            "nameserver" => parts.servers.extend(rest.take(1)),
            "search" | "domain" => parts.searches = rest.collect(),
            "options" => parts.options.extend(rest),
            _ => {}
        }
    }
    parts
}

/// The name servers of a file.
pub fn servers(text: &str) -> Vec<String> {
    read(text).servers
}

fn written(parts: &Parts) -> String {
    let mut out = String::new();
    for server in parts.servers.iter().take(SERVERS) {
        let _ = writeln!(out, "nameserver {server}");
    }
    for (word, list) in [("search", &parts.searches), ("options", &parts.options)] {
        if !list.is_empty() {
            let _ = writeln!(out, "{word} {}", list.join(" "));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(spec: Value) -> String {
        let mut spec = spec;
        spec["containers"] = json!([]);
        let pod = serde_json::from_value(json!({"metadata": {"namespace": "n"}, "spec": spec})).unwrap();
        resolv_conf(&pod, "# host\nnameserver 192.0.2.1\nsearch home\n", Some("10.96.0.10"))
    }

    #[test]
    fn the_policy_says_who_is_asked() {
        let cluster = "nameserver 10.96.0.10\nnameserver 192.0.2.1\n\
            search n.svc.cluster.local svc.cluster.local cluster.local home\noptions ndots:5\n";
        assert_eq!(of(json!({})), cluster);
        assert_eq!(of(json!({"dnsPolicy": "Default"})), "nameserver 192.0.2.1\nsearch home\n");
        assert_eq!(of(json!({"hostNetwork": true})), "nameserver 192.0.2.1\nsearch home\n");
        let own = json!({"nameservers": ["192.0.2.9"], "searches": ["s"], "options": [{"name": "ndots", "value": "1"}]});
        assert_eq!(
            of(json!({"dnsPolicy": "None", "dnsConfig": own})),
            "nameserver 192.0.2.9\nsearch s\noptions ndots:1\n"
        );
        let both = of(json!({"dnsConfig": own}));
        assert!(both.starts_with("nameserver 10.96.0.10\nnameserver 192.0.2.9\n"), "{both}");
        assert!(both.ends_with("cluster.local home s\noptions ndots:1\n"), "{both}");
    }
}
