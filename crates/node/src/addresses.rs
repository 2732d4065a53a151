//! Addresses of pods: each has one of the loopback network.
//!
//! Kubernetes refuses endpoints with loopback addresses, so pods are known by another one: `10.128.0.1` stands for
//! `127.128.0.1`. What pods bind and connect to is translated by their supervisor. The last address is no pod's: it stands
//! for the machine's own `127.0.0.1`, so that a server that listens there can be an endpoint.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_objects::Entropy;

/// The first address, and how many there are.
const FIRST: u32 = u32::from_be_bytes([127, 128, 0, 0]);
const COUNT: u32 = 1 << 22;

/// By which others know the machine itself.
const MACHINE: Ipv4Addr = Ipv4Addr::new(10, 191, 255, 254);

/// By which address pods know a server of this machine; nothing if they cannot reach it.
pub fn of_server(address: SocketAddr) -> Option<SocketAddr> {
    match address.ip() {
        IpAddr::V4(Ipv4Addr::LOCALHOST) => Some(SocketAddr::new(MACHINE.into(), address.port())),
        ip if ip.is_loopback() || ip.is_unspecified() => None,
        _ => Some(address),
    }
}

/// The address by which others know the pod that has `own`.
pub fn advertised(own: Ipv4Addr) -> Ipv4Addr {
    let [_, b, c, d] = own.octets();
    Ipv4Addr::new(10, b, c, d)
}

/// The address that is really there, for one by which a pod is known; others are what they are.
pub fn local(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(MACHINE) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V4(v4) if v4.octets()[0] == 10 && v4.octets()[1] & 0xc0 == 0x80 => {
            let [_, b, c, d] = v4.octets();
            IpAddr::V4(Ipv4Addr::new(127, b, c, d))
        }
        other => other,
    }
}

/// Hands out addresses; clones share them, so that several nodes of a process do.
#[derive(Clone)]
pub struct Addresses {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    used: HashSet<Ipv4Addr>,
    next: u32,
}

impl Addresses {
    /// All are free. Another cluster on this machine most likely begins elsewhere.
    pub fn new(entropy: &Entropy) -> Addresses {
        let next = u32::try_from(entropy.below(u64::from(COUNT))).unwrap_or(0);
        Addresses { inner: Arc::new(Mutex::new(Inner { used: HashSet::new(), next })) }
    }

    /// An address that no other pod has; the one that it had before, if that is free.
    pub fn take(&self, before: Option<&str>) -> Option<Ipv4Addr> {
        let mut inner = self.inner.lock();
        let is_ours = |ip: &Ipv4Addr| u32::from(*ip).wrapping_sub(FIRST) < COUNT;
        let before = before.and_then(|text| text.parse().ok()).and_then(|ip| match local(ip) {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        });
        if let Some(before) = before.filter(is_ours)
            && inner.used.insert(before)
        {
            return Some(before);
        }
        for _ in 0..COUNT {
            inner.next = (inner.next + 1) % COUNT;
            let ip = Ipv4Addr::from(FIRST + inner.next);
            let last = ip.octets()[3];
            if last != 0 && last != 255 && advertised(ip) != MACHINE && inner.used.insert(ip) {
                return Some(ip);
            }
        }
        None
    }

    /// Where an address is reached from outside of pods: one by which a pod of ours is known is translated.
    pub fn reached(&self, ip: IpAddr) -> IpAddr {
        match local(ip) {
            IpAddr::V4(own) if self.inner.lock().used.contains(&own) => IpAddr::V4(own),
            _ => ip,
        }
    }

    /// The pod is gone.
    pub fn give_back(&self, ip: Ipv4Addr) {
        self.inner.lock().used.remove(&ip);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_pods_have_the_same_address() {
        let addresses = Addresses::new(&Entropy::seeded(1));
        let first = addresses.take(None).unwrap();
        assert!(first.is_loopback());
        assert_eq!(local(advertised(first).into()), IpAddr::V4(first));
        assert_eq!(local("10.96.0.1".parse().unwrap()), "10.96.0.1".parse::<IpAddr>().unwrap());
        assert_ne!(addresses.take(Some(&first.to_string())), Some(first));
        assert_eq!(addresses.reached(advertised(first).into()), IpAddr::V4(first));
        addresses.give_back(first);
        assert_eq!(addresses.reached(advertised(first).into()), IpAddr::V4(advertised(first)));
        assert_eq!(addresses.take(Some(&first.to_string())), Some(first));
        assert_ne!(addresses.take(Some("10.0.0.1")), Some(Ipv4Addr::new(10, 0, 0, 1)));
    }
}
