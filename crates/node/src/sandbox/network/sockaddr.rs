//! Socket addresses as the kernel has them. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Reads a `sockaddr_in` or `sockaddr_in6`; other families are none of ours.
pub fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(*bytes.first_chunk::<2>()?));
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk::<2>()?);
    let ip: IpAddr = match family {
        libc::AF_INET => Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?).into(),
        libc::AF_INET6 => Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Whether a table of `/proc/net/tcp` or `tcp6` has a socket that listens on an IPv4 address.
pub fn listens(table: &str, address: SocketAddr) -> bool {
    let IpAddr::V4(ip) = address.ip() else { return false };
    // Addresses stand there as numbers of the machine's byte order.
    let number = u32::from_ne_bytes(ip.octets());
    let v4 = format!("{number:08X}:{:04X}", address.port());
    let mapped = format!("0000000000000000{:08X}{v4}", u32::from_ne_bytes([0, 0, 0xff, 0xff]));
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().unwrap_or_default();
        let state = fields.nth(1).unwrap_or_default();
        state == "0A" && (local == v4 || local == mapped)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_others_left_alone() {
        let mut bytes = vec![0; 16];
        bytes[..2].copy_from_slice(&2_u16.to_ne_bytes());
        bytes[2..8].copy_from_slice(&[0, 80, 127, 0, 0, 1]);
        assert_eq!(parse(&bytes), Some("127.0.0.1:80".parse().unwrap()));
        let mut bytes = vec![0; 28];
        bytes[..2].copy_from_slice(&10_u16.to_ne_bytes());
        bytes[2..4].copy_from_slice(&[0x1f, 0x90]);
        assert_eq!(parse(&bytes), Some("[::]:8080".parse().unwrap()));
        for odd in [&[][..], &[2], &[1, 0, 0, 0, 0], &[2, 0, 0, 80, 1]] {
            assert_eq!(parse(odd), None);
        }
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn listening_sockets_are_found_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st\n   0: 0100407F:1F90 00000000:0000 0A\n   1: 0100407F:1F91 00000000:0000 01\n";
        assert!(listens(table, "127.64.0.1:8080".parse().unwrap()));
        assert!(!listens(table, "127.64.0.1:8081".parse().unwrap()));
        let table = "   0: 0000000000000000FFFF00000100407F:1F90 00000000000000000000000000000000:0000 0A\n";
        assert!(listens(table, "127.64.0.1:8080".parse().unwrap()));
    }
}
