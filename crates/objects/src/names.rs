//! The formats of names: each check gives every complaint in the words of Kubernetes, and nothing when all is well.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const DNS_LABEL_MAX: usize = 63;
const DNS_SUBDOMAIN_MAX: usize = 253;
const LABEL_MAX: usize = 63;
const PORT_NAME_MAX: usize = 15;

const LABEL_1123_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_1123_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
     and must start and end with an alphanumeric character";
const SUBDOMAIN_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
     or '.', and must start and end with an alphanumeric character";
const LABEL_1035_FORMAT: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const LABEL_1035_RULE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with \
     an alphabetic character, and end with an alphanumeric character";
const QUALIFIED_FORMAT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
     an alphanumeric character";
const LABEL_VALUE_FORMAT: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
const LABEL_VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' \
     or '.', and must start and end with an alphanumeric character";
const CONFIG_KEY_RULE: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
const PERCENT_RULE: &str = "a valid percent string must be a numeric string followed by an ending '%'";
const ENV_VAR_RULE: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";

/// Finalizers that need no domain in front.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// A DNS label as in RFC 1123: `my-name`, `123-abc`.
pub fn dns1123_label(s: &str) -> Vec<String> {
    let mut found = too_many_characters(s, DNS_LABEL_MAX);
    if !is_label(s) {
        if is_subdomain(s) {
            found.push("must not contain dots".to_owned());
        } else {
            found.push(breaks_rule(LABEL_1123_RULE, LABEL_1123_FORMAT, &["my-name", "123-abc"]));
        }
    }
    found
}

/// DNS labels joined by dots: `example.com`.
pub fn dns1123_subdomain(s: &str) -> Vec<String> {
    let mut found = too_many_characters(s, DNS_SUBDOMAIN_MAX);
    if !is_subdomain(s) {
        found.push(breaks_rule(SUBDOMAIN_RULE, SUBDOMAIN_FORMAT, &["example.com"]));
    }
    found
}

/// A DNS label that starts with a letter, as in RFC 1035: `my-name`.
pub fn dns1035_label(s: &str) -> Vec<String> {
    let mut found = too_many_characters(s, DNS_LABEL_MAX);
    if !is_label(s) || !s.starts_with(|c: char| c.is_ascii_lowercase()) {
        found.push(breaks_rule(LABEL_1035_RULE, LABEL_1035_FORMAT, &["my-name", "abc-123"]));
    }
    found
}

/// A name with an optional domain in front, `example.com/MyName`: label keys, finalizers, condition types.
pub fn qualified_name(s: &str) -> Vec<String> {
    const EXAMPLES: [&str; 3] = ["MyName", "my.name", "123-abc"];
    let mut found = Vec::new();
    let name = match s.split_once('/') {
        None => s,
        Some((_, name)) if name.contains('/') => {
            let rule = breaks_rule(QUALIFIED_RULE, QUALIFIED_FORMAT, &EXAMPLES);
            return vec![format!(
                "a valid label key {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some(("", name)) => {
            found.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            found.extend(
                dns1123_subdomain(prefix).into_iter().map(|message| format!("prefix part {message}")),
            );
            name
        }
    };
    if name.is_empty() {
        found.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        found.push(format!("name part must be no more than {LABEL_MAX} bytes"));
    }
    if !is_qualified(name) {
        found.push(format!("name part {}", breaks_rule(QUALIFIED_RULE, QUALIFIED_FORMAT, &EXAMPLES)));
    }
    found
}

/// An annotation's key: a qualified name whose case does not matter.
pub fn annotation_key(s: &str) -> Vec<String> {
    if s.chars().any(char::is_uppercase) { qualified_name(&s.to_lowercase()) } else { qualified_name(s) }
}

/// A label's value.
pub fn label_value(s: &str) -> Vec<String> {
    let mut found = Vec::new();
    if s.len() > LABEL_MAX {
        found.push(format!("must be no more than {LABEL_MAX} bytes"));
    }
    if !s.is_empty() && !is_qualified(s) {
        found.push(breaks_rule(LABEL_VALUE_RULE, LABEL_VALUE_FORMAT, &["MyValue", "my_value", "12345"]));
    }
    found
}

/// A name that can stand in a URL: everything but `.`, `..`, `/` and `%`.
pub fn path_segment_name(s: &str) -> Vec<String> {
    if s == "." || s == ".." {
        return vec![format!("may not be '{s}'")];
    }
    let mut found = Vec::new();
    for forbidden in ["/", "%"] {
        if s.contains(forbidden) {
            found.push(format!("may not contain '{forbidden}'"));
        }
    }
    found
}

/// A port's name as in RFC 6335, lower case only.
pub fn port_name(s: &str) -> Vec<String> {
    let mut found = too_many_characters(s, PORT_NAME_MAX);
    if s.is_empty() || !s.bytes().all(|b| b == b'-' || is_lower_alphanumeric(b)) {
        found.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !s.bytes().any(|b| b.is_ascii_lowercase()) {
        found.push("must contain at least one letter (a-z)".to_owned());
    }
    if s.contains("--") {
        found.push("must not contain consecutive hyphens".to_owned());
    }
    if s.starts_with('-') || s.ends_with('-') {
        found.push("must not begin or end with a hyphen".to_owned());
    }
    found
}

/// A port's number.
pub fn port_number(port: i64) -> Vec<String> {
    in_range(port, 1, 65535)
}

/// A number within bounds, both included.
pub fn in_range(value: i64, min: i64, max: i64) -> Vec<String> {
    if (min..=max).contains(&value) {
        Vec::new()
    } else {
        vec![format!("must be between {min} and {max}, inclusive")]
    }
}

/// The name of an environment variable (the relaxed rule, default since 1.34).
pub fn env_var_name(s: &str) -> Vec<String> {
    if s.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if s.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'=') {
        Vec::new()
    } else {
        vec![ENV_VAR_RULE.to_owned()]
    }
}

/// A key in the data of a ConfigMap or Secret; also a file name.
pub fn config_map_key(s: &str) -> Vec<String> {
    let mut found = too_many_characters(s, DNS_SUBDOMAIN_MAX);
    if s.is_empty() || !s.bytes().all(is_qualified_inner) {
        found.push(breaks_rule(CONFIG_KEY_RULE, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    if s == "." || s == ".." {
        found.push(format!("must not be '{s}'"));
    } else if s.starts_with("..") {
        found.push("must not start with '..'".to_owned());
    }
    found
}

/// `"93%"`
pub fn percent(s: &str) -> Vec<String> {
    match s.strip_suffix('%') {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => Vec::new(),
        _ => vec![breaks_rule(PERCENT_RULE, "[0-9]+%", &["1%", "93%"])],
    }
}

/// A domain of at least two labels; a dot at the end is allowed. That it is not empty is checked by the caller.
pub fn fully_qualified_domain(s: &str) -> Vec<String> {
    let name = s.strip_suffix('.').unwrap_or(s);
    let found = dns1123_subdomain(name);
    if !found.is_empty() {
        return vec![found.join(",")];
    }
    if !name.contains('.') {
        return vec!["should be a domain with at least two segments separated by dots".to_owned()];
    }
    let bad = name.split('.').map(dns1123_label).find(|found| !found.is_empty());
    bad.map(|found| vec![found.join(",")]).unwrap_or_default()
}

/// An IP address in its one canonical form, as newer fields want it.
pub fn ip_address(s: &str) -> Vec<String> {
    let strict = ip_address_strict(s);
    if !strict.is_empty() {
        return strict;
    }
    match parse_ip(s) {
        Some(ip) if ip.to_string() != s => vec![format!("must be in canonical form (\"{ip}\")")],
        _ => Vec::new(),
    }
}

/// An IP address without leading zeros and not an IPv4 address in IPv6 clothes, as older fields want it.
pub fn ip_address_strict(s: &str) -> Vec<String> {
    let mut found = Vec::new();
    match parse_ip(s) {
        None => found.push("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()),
        Some(_) if s.parse::<IpAddr>().is_err() => found.push("must not have leading 0s".to_owned()),
        Some(IpAddr::V6(ip)) if ip.to_ipv4_mapped().is_some() => {
            found.push("must not be an IPv4-mapped IPv6 address".to_owned());
        }
        Some(_) => {}
    }
    found
}

/// Reads an IP address the lenient way: leading zeros in decimal parts are skipped.
pub fn parse_ip(s: &str) -> Option<IpAddr> {
    if let Ok(ip) = s.parse() {
        return Some(ip);
    }
    match s.rsplit_once(':') {
        None => parse_ipv4(s).map(IpAddr::V4),
        Some((head, tail)) => {
            let v4 = parse_ipv4(tail)?;
            format!("{head}:{v4}").parse::<Ipv6Addr>().ok().map(IpAddr::V6)
        }
    }
}

fn parse_ipv4(s: &str) -> Option<Ipv4Addr> {
    let mut octets = [0_u8; 4];
    let mut parts = s.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        let digits = part.trim_start_matches('0');
        *octet = if digits.is_empty() && !part.is_empty() { 0 } else { decimal_octet(digits)? };
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

fn decimal_octet(digits: &str) -> Option<u8> {
    if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// A finalizer of a built-in kind: one of the standard ones, or qualified by a domain.
/// (That it is a [`qualified_name`] at all is a separate complaint.)
pub fn finalizer_name(s: &str) -> Vec<String> {
    if s.contains('/') || STANDARD_FINALIZERS.contains(&s) {
        Vec::new()
    } else {
        vec!["name is neither a standard finalizer name nor is it fully qualified".to_owned()]
    }
}

/// `rule (e.g. 'a',  or 'b', regex used for validation is '…')`, double spaces included.
fn breaks_rule(rule: &str, format: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{format}')", examples.join(" or "))
}

fn too_many_characters(s: &str, max: usize) -> Vec<String> {
    if s.len() > max { vec![format!("must be no more than {max} characters")] } else { Vec::new() }
}

fn is_lower_alphanumeric(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn is_label(s: &str) -> bool {
    let bytes = s.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => {
            is_lower_alphanumeric(first)
                && is_lower_alphanumeric(last)
                && bytes.iter().all(|&b| b == b'-' || is_lower_alphanumeric(b))
        }
        _ => false,
    }
}

fn is_subdomain(s: &str) -> bool {
    s.split('.').all(is_label)
}

fn is_qualified_inner(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')
}

fn is_qualified(s: &str) -> bool {
    let bytes = s.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            first.is_ascii_alphanumeric()
                && last.is_ascii_alphanumeric()
                && bytes.iter().all(|&b| is_qualified_inner(b))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok(found: &[String]) {
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn dns_names_are_told_apart_as_kubernetes_does() {
        ok(&dns1123_label("1a-b"));
        ok(&dns1123_subdomain("a.b-c.1"));
        ok(&dns1035_label("a1"));
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
        assert_eq!(
            dns1123_label("App_1"),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
              and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
              '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        assert_eq!(
            dns1123_subdomain("a..b"),
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
              start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
              '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
        assert_eq!(dns1123_subdomain(&"x".repeat(254)), ["must be no more than 253 characters"]);
        assert_eq!(dns1035_label("1bad").len(), 1);
        assert!(!dns1123_label("").is_empty() && !dns1123_subdomain("").is_empty());
    }

    #[test]
    fn qualified_names_say_which_part_is_wrong() {
        ok(&qualified_name("example.com/My.Name_1"));
        ok(&annotation_key("UPPER.io/x"));
        assert!(
            qualified_name("UPPER.io/x")[0].starts_with("prefix part a lowercase RFC 1123 subdomain must")
        );
        assert!(
            qualified_name("bad key!")[0]
                .starts_with("name part must consist of alphanumeric characters, '-',")
        );
        assert_eq!(
            qualified_name("a/b/c"),
            [
                "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
              an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
              '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' \
              (e.g. 'example.com/MyName')"
            ]
        );
        assert_eq!(qualified_name("/x"), ["prefix part must be non-empty"]);
        assert_eq!(qualified_name("").len(), 2);
        assert_eq!(label_value(&"x".repeat(64)), ["must be no more than 63 bytes"]);
        ok(&label_value(""));
        assert!(label_value("not ok")[0].starts_with("a valid label must be an empty string or consist of"));
    }

    #[test]
    fn a_bad_port_name_gives_three_complaints() {
        assert_eq!(
            port_name("TOO_LONG_PORT_NAME_X"),
            [
                "must be no more than 15 characters",
                "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
                "must contain at least one letter (a-z)"
            ]
        );
        ok(&port_name("http-8080"));
        assert_eq!(port_name("-a--b").len(), 2);
        assert_eq!(port_number(70000), ["must be between 1 and 65535, inclusive"]);
    }

    #[test]
    fn keys_and_variables_follow_their_own_rules() {
        ok(&env_var_name("1.my-var !"));
        assert_eq!(env_var_name("a=b"), [ENV_VAR_RULE]);
        assert_eq!(env_var_name("ä"), [ENV_VAR_RULE]);
        ok(&config_map_key(".dockerconfigjson"));
        assert_eq!(config_map_key(".."), ["must not be '..'"]);
        assert_eq!(config_map_key("..a"), ["must not start with '..'"]);
        assert_eq!(
            config_map_key("bad/key"),
            [
                "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
              'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
            ]
        );
        assert_eq!(path_segment_name("a/b%"), ["may not contain '/'", "may not contain '%'"]);
        assert_eq!(path_segment_name(".."), ["may not be '..'"]);
        assert!(
            percent("150x")[0].ends_with("(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')")
        );
        ok(&fully_qualified_domain("a.b."));
        assert_eq!(fully_qualified_domain("a").len(), 1);
        ok(&finalizer_name("orphan"));
        assert_eq!(finalizer_name("noslash").len(), 1);
    }

    #[test]
    fn addresses_must_be_canonical() {
        ok(&ip_address("10.0.0.1"));
        ok(&ip_address("2001:db8::1"));
        assert_eq!(
            ip_address("10.0.0.256"),
            ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
        );
        assert_eq!(ip_address("010.0.0.1"), ["must not have leading 0s"]);
        assert_eq!(ip_address("::ffff:1.2.3.4"), ["must not be an IPv4-mapped IPv6 address"]);
        assert_eq!(ip_address("2001:DB8:0::1"), ["must be in canonical form (\"2001:db8::1\")"]);
        ok(&ip_address_strict("2001:DB8:0::1"));
        for hostile in
            ["", ".", "1.2.3", "1.2.3.", "::ffff:1.2.3.+4", "1.2.3.4.5", "a:b", "+1.2.3.4", "0000000000000:1"]
        {
            assert_eq!(ip_address(hostile).len(), 1, "{hostile}");
        }
    }
}
