//! Addresses and blocks of addresses.

use std::fmt;
use std::net::IpAddr;

use super::Row;
use crate::cel::budget::Budget;
use crate::cel::error::EvalError;
use crate::cel::eval::Evaluated;
use crate::cel::opaque::Opaque;
use crate::cel::value::CelValue;

const TEST: &[&str] = &["ip.()bool"];

pub const ROWS: &[Row] = &[
    ("ip", &["(string)ip", "cidr.()ip"], ip),
    ("isIP", &["(string)bool"], is_ip),
    ("ip.isCanonical", &["(string)bool"], is_canonical),
    ("family", &["ip.()int"], family),
    ("isUnspecified", TEST, is_unspecified),
    ("isLoopback", TEST, is_loopback),
    ("isLinkLocalMulticast", TEST, is_link_local_multicast),
    ("isLinkLocalUnicast", TEST, is_link_local_unicast),
    ("isGlobalUnicast", TEST, is_global_unicast),
    ("cidr", &["(string)cidr"], cidr),
    ("isCIDR", &["(string)bool"], is_cidr),
    ("containsIP", &["cidr.(ip)bool", "cidr.(string)bool"], contains_ip),
    ("containsCIDR", &["cidr.(cidr)bool", "cidr.(string)bool"], contains_cidr),
    ("masked", &["cidr.()cidr"], masked),
    ("prefixLength", &["cidr.()int"], prefix_length),
];

const MISMATCH: EvalError = EvalError::NoSuchOverload;

/// A block of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    ip: IpAddr,
    prefix: u32,
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

/// The address as a number at the top of 128 bits, so that prefixes of both families start there.
fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()) << 96,
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

fn mask(prefix: u32) -> u128 {
    u128::MAX.checked_shl(128 - prefix.min(128)).unwrap_or(0)
}

impl Cidr {
    fn parse(text: &str) -> Option<Cidr> {
        let (ip, prefix) = text.split_once('/')?;
        let ip = parse_ip(ip)?;
        let digits = !prefix.is_empty() && prefix.bytes().all(|b| b.is_ascii_digit());
        if !digits || (prefix.len() > 1 && prefix.starts_with('0')) {
            return None;
        }
        let prefix: u32 = prefix.parse().ok()?;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        (prefix <= most).then_some(Cidr { ip, prefix })
    }

    fn contains(&self, ip: IpAddr) -> bool {
        let same_family = self.ip.is_ipv4() == ip.is_ipv4();
        same_family && (bits(self.ip) ^ bits(ip)) & mask(self.prefix) == 0
    }

    fn masked(&self) -> Cidr {
        let kept = bits(self.ip) & mask(self.prefix);
        let ip = match self.ip {
            IpAddr::V4(_) => IpAddr::V4(((kept >> 96) as u32).into()),
            IpAddr::V6(_) => IpAddr::V6(kept.into()),
        };
        Cidr { ip, prefix: self.prefix }
    }
}

/// An IPv4 address in IPv6 clothes is refused.
fn parse_ip(text: &str) -> Option<IpAddr> {
    match text.parse().ok()? {
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => None,
        ip => Some(ip),
    }
}

fn text<'b>(budget: &mut Budget, args: &'b [CelValue<'_>]) -> Result<&'b str, EvalError> {
    let [CelValue::String(text)] = args else { return Err(MISMATCH) };
    budget.charge_text(text.as_str().len())?;
    Ok(text.as_str())
}

fn read_ip(value: Option<&CelValue<'_>>) -> Result<IpAddr, EvalError> {
    match value {
        Some(CelValue::Opaque(opaque)) => match opaque.as_ref() {
            Opaque::Ip(ip) => Ok(*ip),
            _ => Err(MISMATCH),
        },
        _ => Err(MISMATCH),
    }
}

fn read_cidr(value: Option<&CelValue<'_>>) -> Result<Cidr, EvalError> {
    match value {
        Some(CelValue::Opaque(opaque)) => match opaque.as_ref() {
            Opaque::Cidr(cidr) => Ok(*cidr),
            _ => Err(MISMATCH),
        },
        _ => Err(MISMATCH),
    }
}

fn bad_ip(text: &str) -> EvalError {
    EvalError::owned(format!("IP Address {text:?} parse error during conversion from string"))
}

fn bad_cidr(text: &str) -> EvalError {
    EvalError::owned(format!("network address parse error during conversion from string: {text:?}"))
}

fn ip<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    if let Ok(cidr) = read_cidr(args.first()) {
        return Ok(CelValue::opaque(Opaque::Ip(cidr.ip)));
    }
    let text = text(budget, args)?;
    Ok(CelValue::opaque(Opaque::Ip(parse_ip(text).ok_or_else(|| bad_ip(text))?)))
}

fn is_ip<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Bool(parse_ip(text(budget, args)?).is_some()))
}

fn is_canonical<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let text = text(budget, args)?;
    let ip = parse_ip(text).ok_or_else(|| bad_ip(text))?;
    Ok(CelValue::Bool(ip.to_string() == text))
}

fn family<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Int(if read_ip(args.first())?.is_ipv4() { 4 } else { 6 }))
}

fn is_unspecified<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Bool(read_ip(args.first())?.is_unspecified()))
}

fn is_loopback<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Bool(read_ip(args.first())?.is_loopback()))
}

fn link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => matches!(ip.octets(), [224, 0, 0, _]),
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    }
}

fn link_local_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

fn is_link_local_multicast<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Bool(link_local_multicast(read_ip(args.first())?)))
}

fn is_link_local_unicast<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Bool(link_local_unicast(read_ip(args.first())?)))
}

fn is_global_unicast<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let ip = read_ip(args.first())?;
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    let other =
        ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || link_local_unicast(ip) || broadcast;
    Ok(CelValue::Bool(!other))
}

fn cidr<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let text = text(budget, args)?;
    Ok(CelValue::opaque(Opaque::Cidr(Cidr::parse(text).ok_or_else(|| bad_cidr(text))?)))
}

fn is_cidr<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Bool(Cidr::parse(text(budget, args)?).is_some()))
}

fn contains_ip<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let cidr = read_cidr(args.first())?;
    let ip = match args.get(1) {
        Some(CelValue::String(_)) => {
            let text = text(budget, args.get(1..).unwrap_or_default())?;
            parse_ip(text).ok_or_else(|| bad_ip(text))?
        }
        other => read_ip(other)?,
    };
    Ok(CelValue::Bool(cidr.contains(ip)))
}

fn contains_cidr<'a>(budget: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    let cidr = read_cidr(args.first())?;
    let other = match args.get(1) {
        Some(CelValue::String(_)) => {
            let text = text(budget, args.get(1..).unwrap_or_default())?;
            Cidr::parse(text).ok_or_else(|| bad_cidr(text))?
        }
        other => read_cidr(other)?,
    };
    Ok(CelValue::Bool(cidr.prefix <= other.prefix && cidr.contains(other.ip)))
}

fn masked<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::opaque(Opaque::Cidr(read_cidr(args.first())?.masked())))
}

fn prefix_length<'a>(_: &mut Budget, args: &[CelValue<'a>]) -> Evaluated<'a> {
    Ok(CelValue::Int(i64::from(read_cidr(args.first())?.prefix)))
}
