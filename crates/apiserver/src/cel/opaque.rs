//! Values of Kubernetes' own types.

use std::fmt;
use std::net::IpAddr;

use shoal_objects::Quantity;

use super::authorizer::{Check, Decision};
use super::library::net::Cidr;
use super::library::semver::Semver;
use super::library::url::Url;

/// A value of one of Kubernetes' libraries.
#[derive(Clone, Debug, PartialEq)]
pub enum Opaque {
    /// An amount of a resource.
    Quantity(Quantity),
    /// An address.
    Ip(IpAddr),
    /// A block of addresses.
    Cidr(Cidr),
    /// A URL.
    Url(Url),
    /// A semantic version.
    Semver(Semver),
    /// A named format of texts.
    Format(&'static str),
    /// A question to the authorizer, complete or not.
    Check(Check),
    /// The authorizer's answer.
    Decision(Decision),
}

impl Opaque {
    /// The type's name.
    pub fn type_name(&self) -> &'static str {
        match self {
            Opaque::Quantity(_) => "kubernetes.Quantity",
            Opaque::Ip(_) => "net.IP",
            Opaque::Cidr(_) => "net.CIDR",
            Opaque::Url(_) => "kubernetes.URL",
            Opaque::Semver(_) => "kubernetes.Semver",
            Opaque::Format(_) => "kubernetes.NamedFormat",
            Opaque::Check(_) => "kubernetes.authorization.Authorizer",
            Opaque::Decision(_) => "kubernetes.authorization.Decision",
        }
    }
}

impl fmt::Display for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Opaque::Quantity(quantity) => quantity.fmt(f),
            Opaque::Ip(ip) => ip.fmt(f),
            Opaque::Cidr(cidr) => cidr.fmt(f),
            Opaque::Url(url) => f.write_str(&url.text),
            Opaque::Semver(version) => version.fmt(f),
            Opaque::Format(name) => f.write_str(name),
            Opaque::Check(_) | Opaque::Decision(_) => f.write_str(self.type_name()),
        }
    }
}
