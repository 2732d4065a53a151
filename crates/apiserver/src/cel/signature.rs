//! Signatures of functions, written as `receiver.(arguments)result`, for example `list<A>.(A)int`.

use super::types::{MAX_PARAMS, Type};

/// What a function takes and gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// Whether it is called on its first argument.
    pub member: bool,
    /// The arguments; a receiver is the first.
    pub args: Vec<Type>,
    /// Whether the last argument may be repeated.
    pub variadic: bool,
    /// The result.
    pub result: Type,
}

/// The names of library types in signatures.
const OPAQUE: [(&str, &str); 11] = [
    ("quantity", "kubernetes.Quantity"),
    ("ip", "net.IP"),
    ("cidr", "net.CIDR"),
    ("url", "kubernetes.URL"),
    ("semver", "kubernetes.Semver"),
    ("format", "kubernetes.NamedFormat"),
    ("authorizer", "kubernetes.authorization.Authorizer"),
    ("pathcheck", "kubernetes.authorization.PathCheck"),
    ("groupcheck", "kubernetes.authorization.GroupCheck"),
    ("resourcecheck", "kubernetes.authorization.ResourceCheck"),
    ("decision", "kubernetes.authorization.Decision"),
];

impl Signature {
    /// Reads a signature; `None` when it is malformed, which a test rules out for the built-in ones.
    pub fn parse(text: &str) -> Option<Signature> {
        let (member, rest) = match text.strip_prefix('(') {
            Some(rest) => (None, rest),
            None => {
                let (receiver, rest) = text.split_once(".(")?;
                (Some(parse_type(receiver)?), rest)
            }
        };
        let (inside, result) = rest.split_once(')')?;
        let (inside, variadic) = match inside.strip_suffix("...") {
            Some(inside) => (inside, true),
            None => (inside, false),
        };
        let is_member = member.is_some();
        let mut args: Vec<Type> = member.into_iter().collect();
        for part in split_types(inside) {
            args.push(parse_type(part)?);
        }
        Some(Signature { member: is_member, args, variadic, result: parse_type(result)? })
    }

    /// The result for arguments of these types, if they fit.
    pub fn result_for(&self, actual: &[Type]) -> Option<Type> {
        let fits =
            if self.variadic { actual.len() >= self.args.len() } else { actual.len() == self.args.len() };
        if !fits {
            return None;
        }
        let mut bound: [Option<Type>; MAX_PARAMS] = Default::default();
        let expected = self.args.iter().chain(self.args.last().into_iter().cycle());
        let all = expected.zip(actual).all(|(expected, actual)| expected.accepts(actual, &mut bound));
        all.then(|| self.result.bound(&bound))
    }
}

fn split_types(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.extend(text.get(start..at));
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.extend(text.get(start..).filter(|last| !last.is_empty()));
    parts
}

fn parse_type(text: &str) -> Option<Type> {
    if let Some((name, inside)) = text.strip_suffix('>').and_then(|text| text.split_once('<')) {
        let parts: Vec<Type> = split_types(inside).into_iter().map(parse_type).collect::<Option<_>>()?;
        let mut parts = parts.into_iter();
        let first = parts.next()?;
        return match name {
            "list" => Some(Type::list(first)),
            "map" => Some(Type::map(first, parts.next()?)),
            "optional" => Some(Type::optional(first)),
            "type" => Some(Type::Type(first.into())),
            _ => None,
        };
    }
    Some(match text {
        "dyn" => Type::Dyn,
        "null" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        "A" => Type::Param(0),
        "B" => Type::Param(1),
        "C" => Type::Param(2),
        _ => Type::Opaque(OPAQUE.iter().find(|(short, _)| *short == text)?.1),
    })
}
