//! What becomes of a bind or connect. Pure.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::addresses::local;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// As it was asked for.
    Continue,
    /// With this address instead.
    Use(SocketAddr),
    /// An error.
    Refuse(i32),
}

/// A bind to every address of the machine is one to the pod's.
pub fn bind(address: SocketAddr, pod_ip: IpAddr) -> Decision {
    let ip = plain(address.ip());
    match ip.is_unspecified() || (ip != pod_ip && local(ip) == pod_ip) {
        true => Decision::Use(SocketAddr::new(pod_ip, address.port())),
        false => Decision::Continue,
    }
}

/// A connect to a Service leads to an endpoint; one to this machine leads to the pod, if something listens there.
pub fn connect(
    address: SocketAddr,
    pod_ip: IpAddr,
    resolve: &dyn Fn(SocketAddr) -> Option<SocketAddr>,
    is_listening: &dyn Fn(SocketAddr) -> bool,
) -> Decision {
    let ip = plain(address.ip());
    if is_cluster_ip(ip) {
        return match resolve(SocketAddr::new(ip, address.port())) {
            Some(endpoint) => Decision::Use(SocketAddr::new(local(endpoint.ip()), endpoint.port())),
            None => Decision::Refuse(libc::ECONNREFUSED),
        };
    }
    if local(ip) != ip {
        return Decision::Use(SocketAddr::new(local(ip), address.port()));
    }
    let own = SocketAddr::new(pod_ip, address.port());
    let is_local =
        ip == IpAddr::V4(Ipv4Addr::LOCALHOST) || ip.is_unspecified() || (ip.is_ipv6() && ip.is_loopback());
    match is_local && own != address && is_listening(own) {
        true => Decision::Use(own),
        false => Decision::Continue,
    }
}

fn plain(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// Cluster IPs are of 10.96.0.0/12.
fn is_cluster_ip(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if ip.octets()[0] == 10 && ip.octets()[1] & 0xf0 == 0x60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn pod() -> IpAddr {
        "127.128.0.1".parse().unwrap()
    }

    #[test]
    fn only_wildcard_binds_are_confined() {
        for wildcard in ["0.0.0.0:80", "[::]:80", "[::ffff:0.0.0.0]:80", "10.128.0.1:80"] {
            assert_eq!(
                bind(address(wildcard), pod()),
                Decision::Use(address("127.128.0.1:80")),
                "{wildcard}"
            );
        }
        for own in ["127.0.0.1:80", "[::1]:80", "127.128.0.1:80"] {
            assert_eq!(bind(address(own), pod()), Decision::Continue, "{own}");
        }
    }

    #[test]
    fn cluster_ips_lead_to_endpoints() {
        let resolve =
            |asked: SocketAddr| (asked == address("10.96.0.9:80")).then(|| address("10.128.0.2:8080"));
        let connect = |to: &str| connect(address(to), pod(), &resolve, &|_| false);
        assert_eq!(connect("10.96.0.9:80"), Decision::Use(address("127.128.0.2:8080")));
        assert_eq!(connect("[::ffff:10.96.0.9]:80"), Decision::Use(address("127.128.0.2:8080")));
        assert_eq!(connect("10.111.0.9:81"), Decision::Refuse(libc::ECONNREFUSED));
        assert_eq!(connect("10.112.0.9:81"), Decision::Continue);
        assert_eq!(connect("10.128.0.9:81"), Decision::Use(address("127.128.0.9:81")));
        assert_eq!(connect("127.0.0.1:80"), Decision::Continue);
    }

    #[test]
    fn this_machine_is_the_pod_where_something_listens() {
        let listening = |asked: SocketAddr| asked == address("127.128.0.1:80");
        let connect = |to: &str| connect(address(to), pod(), &|_| None, &listening);
        assert_eq!(connect("127.0.0.1:80"), Decision::Use(address("127.128.0.1:80")));
        assert_eq!(connect("[::1]:80"), Decision::Use(address("127.128.0.1:80")));
        assert_eq!(connect("127.0.0.1:81"), Decision::Continue);
        assert_eq!(connect("127.128.0.1:80"), Decision::Continue);
    }
}
