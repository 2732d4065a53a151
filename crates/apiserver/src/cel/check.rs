//! The type checker. It also resolves names and functions, so that evaluation need not.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ast::{Expr, Fold, Kind, Literal};
use super::budget::FixedPattern;
use super::env::Env;
use super::error::Issue;
use super::library;
use super::node::{Comparison, Comprehension, Node};
use super::types::{JSON_PATCH, OBJECT, Type};
use super::value::{CelValue, List};

/// The types that can be named in expressions.
const TYPE_NAMES: [(&str, Type); 12] = [
    ("bool", Type::Bool),
    ("int", Type::Int),
    ("uint", Type::Uint),
    ("double", Type::Double),
    ("string", Type::String),
    ("bytes", Type::Bytes),
    ("list", Type::Dyn),
    ("map", Type::Dyn),
    ("null_type", Type::Null),
    ("type", Type::Dyn),
    ("google.protobuf.Timestamp", Type::Timestamp),
    ("google.protobuf.Duration", Type::Duration),
];

/// A checked expression.
pub struct Checked {
    /// Its type.
    pub ty: Type,
    /// Its program.
    pub node: Node,
    /// Places of the variables it uses.
    pub used: BTreeSet<usize>,
}

/// Checks an expression against an environment.
pub fn check(expr: &Expr, env: &Env) -> Result<Checked, Vec<Issue>> {
    let mut checker =
        Checker { env, locals: Vec::new(), issues: Vec::new(), used: BTreeSet::new(), mixed: false };
    let (ty, node) = checker.check(expr);
    if checker.issues.is_empty() { Ok(Checked { ty, node, used: checker.used }) } else { Err(checker.issues) }
}

struct Checker<'e> {
    env: &'e Env,
    locals: Vec<(String, Type)>,
    issues: Vec<Issue>,
    used: BTreeSet<usize>,
    /// The next list may hold values of different types.
    mixed: bool,
}

type Typed = (Type, Node);

impl Checker<'_> {
    /// Reports something; what was meant is unknown from then on.
    fn refuse(&mut self, at: usize, message: String) -> Typed {
        self.issues.push(Issue { at, message });
        (Type::Dyn, Node::Const(CelValue::Null))
    }

    fn check(&mut self, expr: &Expr) -> Typed {
        match &expr.kind {
            Kind::Literal(literal) => check_literal(literal),
            Kind::Ident(name) => self.ident(expr, name),
            Kind::Select { operand, field, test, optional } => {
                self.select(expr, operand, field, *test, *optional)
            }
            Kind::Index { operand, index, optional } => self.index(expr.at, operand, index, *optional),
            Kind::Call { function, target, args } => self.call(expr.at, function, target.as_deref(), args),
            Kind::And(parts) => self.logic(expr.at, "_&&_", parts, Node::And),
            Kind::Or(parts) => self.logic(expr.at, "_||_", parts, Node::Or),
            Kind::Ternary(parts) => self.ternary(expr.at, parts),
            Kind::List(_) => self.list(expr),
            Kind::Map(_) => self.map(expr),
            Kind::Object { .. } => self.object(expr),
            Kind::Comprehension { .. } => self.comprehension(expr),
            Kind::Bind { name, value, body } => {
                let (ty, value) = self.check(value);
                let (ty, body) = self.within([(name.clone(), ty)], body);
                (ty, Node::Bind(Box::new([value, body])))
            }
            Kind::OptMap { target, name, body, flat } => self.opt_map(expr.at, target, name, body, *flat),
        }
    }

    /// Checks `body` with more variables in scope.
    fn within<const N: usize>(&mut self, locals: [(String, Type); N], body: &Expr) -> Typed {
        self.locals.extend(locals);
        let checked = self.check(body);
        self.locals.truncate(self.locals.len() - N);
        checked
    }

    fn named(&mut self, name: &str) -> Option<Typed> {
        if let Some(place) = self.locals.iter().rposition(|(local, _)| local == name) {
            return Some((self.locals.get(place)?.1.clone(), Node::Local(place)));
        }
        if let Some((place, ty)) = self.env.find(name) {
            self.used.insert(place);
            return Some((ty.clone(), Node::Variable(place)));
        }
        let (name, ty) = TYPE_NAMES.iter().find(|(type_name, _)| *type_name == name)?;
        Some((Type::Type(Arc::new(ty.clone())), Node::Const(CelValue::Type(name))))
    }

    fn ident(&mut self, expr: &Expr, name: &str) -> Typed {
        match self.named(name) {
            Some(found) => found,
            None => self.refuse(expr.at, format!("undeclared reference to '{name}' (in container '')")),
        }
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &str, test: bool, optional: bool) -> Typed {
        if !test
            && let Some(name) = expr.qualified_name()
            && !self.is_local(&name)
            && let Some(found) = self.named(&name)
        {
            return found;
        }
        let (ty, node) = self.check(operand);
        let Some(found) = field_type(&ty, field) else {
            let message = match ty.plain() {
                Type::Object(_) | Type::Optional(_) => format!("undefined field '{field}'"),
                other => format!("type '{other}' does not support field selection"),
            };
            return self.refuse(expr.at, message);
        };
        let (node, field) = (Box::new(node), field.into());
        let through = matches!(ty, Type::Optional(_));
        match (test, optional) {
            (true, _) => (Type::Bool, Node::Has(node, field)),
            (_, true) => (Type::optional(found), Node::OptionalSelect(node, field)),
            _ if through => (Type::optional(found), Node::Select(node, field)),
            _ => (found, Node::Select(node, field)),
        }
    }

    /// Whether a dotted name starts with a variable of an iteration.
    fn is_local(&self, name: &str) -> bool {
        let root = name.split('.').next().unwrap_or_default();
        self.locals.iter().any(|(local, _)| local == root)
    }

    fn index(&mut self, at: usize, operand: &Expr, index: &Expr, optional: bool) -> Typed {
        let (ty, operand) = self.check(operand);
        let (key, index) = self.check(index);
        let (inner, through) = match ty.plain() {
            Type::Optional(inner) => (inner.plain().clone(), true),
            other => (other.clone(), false),
        };
        let fits = |expected: &Type| expected.accepts(&key, &mut Default::default());
        let found = match &inner {
            Type::Dyn => Some(Type::Dyn),
            Type::List(element, _) if fits(&Type::Int) => Some(element.as_ref().clone()),
            Type::Map(of, value) if fits(of) => Some(value.as_ref().clone()),
            _ => None,
        };
        let Some(found) = found else {
            let function = if optional { "_[?_]" } else { "_[_]" };
            return self.no_overload(at, function, false, &[ty, key]);
        };
        let nodes = Box::new([operand, index]);
        match (optional, through) {
            (true, _) => (Type::optional(found), Node::OptionalIndex(nodes)),
            (false, true) => (Type::optional(found), Node::Index(nodes)),
            (false, false) => (found, Node::Index(nodes)),
        }
    }

    fn no_overload(&mut self, at: usize, function: &str, member: bool, types: &[Type]) -> Typed {
        let names: Vec<String> = types.iter().map(Type::to_string).collect();
        let applied = match names.split_first() {
            Some((receiver, args)) if member => format!("{receiver}.({})", args.join(", ")),
            _ => format!("({})", names.join(", ")),
        };
        self.refuse(at, format!("found no matching overload for '{function}' applied to '{applied}'"))
    }

    fn call(&mut self, at: usize, function: &str, target: Option<&Expr>, args: &[Expr]) -> Typed {
        if let Some(prefix) = target.and_then(Expr::qualified_name) {
            let qualified = format!("{prefix}.{function}");
            if !self.is_local(&prefix) && library::find(&qualified).is_some() {
                return self.resolved(at, &qualified, false, args.iter());
            }
        }
        if library::find(function).is_none() {
            for arg in target.into_iter().chain(args) {
                self.check(arg);
            }
            return self.refuse(at, format!("undeclared reference to '{function}' (in container '')"));
        }
        self.resolved(at, function, target.is_some(), target.into_iter().chain(args))
    }

    fn resolved<'x>(
        &mut self,
        at: usize,
        function: &str,
        member: bool,
        args: impl Iterator<Item = &'x Expr>,
    ) -> Typed {
        let before = self.issues.len();
        let mut types = Vec::new();
        let mut nodes = Vec::new();
        for arg in args {
            self.mixed = function == "format" && matches!(arg.kind, Kind::List(_));
            let (ty, node) = self.check(arg);
            types.push(ty);
            nodes.push(node);
        }
        if self.issues.len() > before {
            return (Type::Dyn, Node::Const(CelValue::Null));
        }
        let mut candidates = Vec::new();
        let mut result: Option<Type> = None;
        for candidate in library::find(function).unwrap_or_default() {
            let signatures = candidate.signatures.iter().filter(|signature| signature.member == member);
            let mut results = signatures.filter_map(|signature| signature.result_for(&types)).peekable();
            if results.peek().is_some() {
                candidates.push(candidate);
            }
            for ty in results {
                result = Some(match result.take() {
                    None => ty,
                    Some(before) if before == ty => ty,
                    Some(_) => Type::Dyn,
                });
            }
        }
        let Some(result) = result else { return self.no_overload(at, function, member, &types) };
        self.specialise(at, function, candidates, nodes, result)
    }

    /// Gives common operators their own steps.
    fn specialise(
        &mut self,
        at: usize,
        function: &str,
        candidates: Vec<&'static library::Function>,
        nodes: Vec<Node>,
        result: Type,
    ) -> Typed {
        let node = match <[Node; 2]>::try_from(nodes) {
            Ok(pair) => match (function, pair) {
                ("_==_", pair) => Node::Equal(Box::new(pair), true),
                ("_!=_", pair) => Node::Equal(Box::new(pair), false),
                ("matches", [text, Node::Const(CelValue::String(pattern))]) => {
                    match FixedPattern::new(pattern.as_str()) {
                        Ok(pattern) => Node::Matches(Box::new(text), pattern),
                        Err(error) => return self.refuse(at, error.to_string()),
                    }
                }
                (function, pair) => match Comparison::of(function) {
                    Some(comparison) => Node::Compare(Box::new(pair), comparison),
                    None => Node::Call(candidates, Box::new(pair)),
                },
            },
            Err(nodes) if function == "!_" => match nodes.into_iter().next() {
                Some(node) => Node::Not(Box::new(node)),
                None => Node::Const(CelValue::Null),
            },
            Err(nodes) => Node::Call(candidates, nodes.into()),
        };
        (result, node)
    }

    /// Reports when `ty` is no truth value, as an operand of `function` beside operands of the other types.
    fn expect_bool(&mut self, at: usize, function: &str, ty: &Type, others: &[Type]) {
        if !Type::Bool.accepts(ty, &mut Default::default()) {
            let types: Vec<Type> = std::iter::once(ty.clone()).chain(others.iter().cloned()).collect();
            self.no_overload(at, function, false, &types);
        }
    }

    fn logic(&mut self, at: usize, function: &str, parts: &[Expr], make: fn(Box<[Node]>) -> Node) -> Typed {
        let mut nodes = Vec::with_capacity(parts.len());
        let types: Vec<Type> = parts
            .iter()
            .map(|part| {
                let (ty, node) = self.check(part);
                nodes.push(node);
                ty
            })
            .collect();
        if let Some(bad) = types.iter().position(|ty| !Type::Bool.accepts(ty, &mut Default::default())) {
            let pair = match (bad, types.as_slice()) {
                (0, [first, second, ..]) => [first.clone(), second.clone()],
                _ => [Type::Bool, types.get(bad).cloned().unwrap_or(Type::Dyn)],
            };
            return self.no_overload(at, function, false, &pair);
        }
        (Type::Bool, make(nodes.into()))
    }

    fn ternary(&mut self, at: usize, parts: &[Expr; 3]) -> Typed {
        let [test, then, otherwise] = parts;
        let (test_type, test) = self.check(test);
        let (then_type, then) = self.check(then);
        let (other_type, otherwise) = self.check(otherwise);
        let joined = then_type.join(&other_type);
        match joined {
            Some(ty) if Type::Bool.accepts(&test_type, &mut Default::default()) => {
                (ty, Node::Ternary(Box::new([test, then, otherwise])))
            }
            _ => self.no_overload(at, "_?_:_", false, &[test_type, then_type, other_type]),
        }
    }

    /// Elements of a literal have one type, unless nothing is known of one.
    fn element(&mut self, common: &mut Option<Type>, expr: &Expr, optional: bool) -> Node {
        let (ty, node) = self.check(expr);
        let ty = match (optional, &ty) {
            (true, Type::Optional(inner)) => inner.as_ref().clone(),
            (true, Type::Dyn) | (false, _) => ty,
            (true, other) => {
                self.refuse(expr.at, format!("expected type 'optional_type({other})' but found '{other}'"));
                return node;
            }
        };
        match common.as_ref().map(|before| before.join(&ty)) {
            None => *common = Some(ty),
            Some(Some(joined)) => *common = Some(joined),
            Some(None) => {
                let expected = common.clone().unwrap_or(Type::Dyn);
                self.refuse(expr.at, format!("expected type '{expected}' but found '{ty}'"));
            }
        }
        node
    }

    fn list(&mut self, expr: &Expr) -> Typed {
        let Kind::List(entries) = &expr.kind else { return self.refuse(expr.at, String::new()) };
        let mut common = std::mem::take(&mut self.mixed).then_some(Type::Dyn);
        let nodes: Vec<(Node, bool)> = entries
            .iter()
            .map(|entry| (self.element(&mut common, &entry.value, entry.optional), entry.optional))
            .collect();
        let ty = Type::list(common.unwrap_or(Type::Dyn));
        let constants: Option<Vec<CelValue<'static>>> = nodes
            .iter()
            .map(|(node, optional)| match node {
                Node::Const(value) if !optional => Some(value.clone()),
                _ => None,
            })
            .collect();
        match constants {
            Some(items) => (ty, Node::Const(CelValue::List(List::Owned(Arc::new(items))))),
            None => (ty, Node::List(nodes.into())),
        }
    }

    fn map(&mut self, expr: &Expr) -> Typed {
        let Kind::Map(entries) = &expr.kind else { return self.refuse(expr.at, String::new()) };
        let (mut keys, mut values) = (None, None);
        let mut nodes = Vec::with_capacity(entries.len());
        for entry in entries {
            let key = self.element(&mut keys, &entry.key, false);
            let value = self.element(&mut values, &entry.value, entry.optional);
            nodes.push((key, value, entry.optional));
        }
        (Type::map(keys.unwrap_or(Type::Dyn), values.unwrap_or(Type::Dyn)), Node::Map(nodes.into()))
    }

    fn object(&mut self, expr: &Expr) -> Typed {
        let Kind::Object { name, fields } = &expr.kind else { return self.refuse(expr.at, String::new()) };
        let known = name == "JSONPatch" || name == "Object" || name.starts_with("Object.");
        if !(self.env.objects && known) {
            return self.refuse(expr.at, format!("undeclared reference to '{name}' (in container '')"));
        }
        let mut nodes = Vec::with_capacity(fields.len());
        for entry in fields {
            let field = entry.key.as_str();
            if name == "JSONPatch" && !matches!(field, "op" | "path" | "from" | "value") {
                self.refuse(entry.value.at, format!("undefined field '{field}'"));
            }
            if name != "JSONPatch" {
                self.check_part(&entry.value, &format!("{name}.{field}"));
            }
            let (_, value) = self.check(&entry.value);
            nodes.push((Node::Const(CelValue::text(field)), value, entry.optional));
        }
        let ty = match name.as_str() {
            "JSONPatch" => JSON_PATCH,
            "Object" => OBJECT,
            _ => Type::Dyn,
        };
        (ty, Node::Map(nodes.into()))
    }

    /// Parts of an object are named after the field they are for.
    fn check_part(&mut self, part: &Expr, wanted: &str) {
        match &part.kind {
            Kind::Object { name, .. } if name != wanted => {
                let text = format!(
                    "unexpected type name {name:?}, expected {wanted:?}, which matches field name path from root Object type"
                );
                self.refuse(part.at, text);
            }
            Kind::List(entries) => entries.iter().for_each(|entry| self.check_part(&entry.value, wanted)),
            _ => {}
        }
    }

    fn comprehension(&mut self, expr: &Expr) -> Typed {
        let Kind::Comprehension { fold, range, first, second, filter, body } = &expr.kind else {
            return self.refuse(expr.at, String::new());
        };
        let range_at = range.at;
        let (range_type, range) = self.check(range);
        let (key, value) = match range_type.plain() {
            Type::List(element, _) => (Type::Int, element.as_ref().clone()),
            Type::Map(key, value) => (key.as_ref().clone(), value.as_ref().clone()),
            Type::Dyn => (Type::Dyn, Type::Dyn),
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                return self.refuse(range_at, message);
            }
        };
        let over_map = matches!(range_type.plain(), Type::Map(..));
        let single = if over_map { key.clone() } else { value.clone() };
        let locals = |checker: &mut Self, body: &Expr| match second {
            Some(second) => {
                checker.within([(first.clone(), key.clone()), (second.clone(), value.clone())], body)
            }
            None => checker.within([(first.clone(), single.clone())], body),
        };
        let filter = filter.as_ref().map(|filter| {
            let (ty, node) = locals(self, filter);
            self.expect_bool(filter.at, "_?_:_", &ty, &[Type::list(Type::Dyn), Type::list(Type::Dyn)]);
            node
        });
        let body_at = body.at;
        let (body_type, body) = locals(self, body);
        let ty = match fold {
            Fold::All | Fold::Exists => {
                if !Type::Bool.accepts(&body_type, &mut Default::default()) {
                    let function = if *fold == Fold::All { "_&&_" } else { "_||_" };
                    self.no_overload(expr.at, function, false, &[Type::Bool, body_type]);
                }
                Type::Bool
            }
            Fold::ExistsOne => {
                self.expect_bool(expr.at, "_?_:_", &body_type, &[Type::Int, Type::Int]);
                Type::Bool
            }
            Fold::Filter => {
                let list = Type::list(single.clone());
                self.expect_bool(expr.at, "_?_:_", &body_type, &[list.clone(), list.clone()]);
                list
            }
            Fold::List => Type::list(body_type),
            Fold::SortBy => Type::list(single.clone()),
            Fold::Map => Type::map(key.clone(), body_type),
            Fold::MapEntry => match body_type.plain() {
                Type::Map(..) | Type::Dyn => body_type,
                other => {
                    let message = format!("expected type 'map(dyn, dyn)' but found '{other}'");
                    return self.refuse(body_at, message);
                }
            },
        };
        let two = second.is_some();
        (ty, Node::Comprehension(Box::new(Comprehension { fold: *fold, range, two, filter, body })))
    }

    fn opt_map(&mut self, at: usize, target: &Expr, name: &str, body: &Expr, flat: bool) -> Typed {
        let (ty, target) = self.check(target);
        let inner = match ty.plain() {
            Type::Optional(inner) => inner.as_ref().clone(),
            Type::Dyn => Type::Dyn,
            other => {
                let function = if flat { "optFlatMap" } else { "optMap" };
                let applied = format!("{other}.(dyn, dyn)");
                let message = format!("found no matching overload for '{function}' applied to '{applied}'");
                return self.refuse(at, message);
            }
        };
        let (result, body) = self.within([(name.to_owned(), inner)], body);
        let ty = if flat { result } else { Type::optional(result) };
        (ty, Node::OptMap(Box::new([target, body]), flat))
    }
}

fn check_literal(literal: &Literal) -> Typed {
    let (ty, value) = match literal {
        Literal::Null => (Type::Null, CelValue::Null),
        Literal::Bool(value) => (Type::Bool, CelValue::Bool(*value)),
        Literal::Int(value) => (Type::Int, CelValue::Int(*value)),
        Literal::Uint(value) => (Type::Uint, CelValue::Uint(*value)),
        Literal::Double(value) => (Type::Double, CelValue::Double(*value)),
        Literal::String(text) => (Type::String, CelValue::text(text.as_str())),
        Literal::Bytes(bytes) => (Type::Bytes, CelValue::bytes(bytes.as_slice())),
    };
    (ty, Node::Const(value))
}

/// The type of a field, if values of type `ty` can have it.
fn field_type(ty: &Type, field: &str) -> Option<Type> {
    match ty.plain() {
        Type::Dyn => Some(Type::Dyn),
        Type::Map(key, value) if matches!(key.as_ref(), Type::String | Type::Dyn) => {
            Some(value.as_ref().clone())
        }
        Type::Object(object) => object.fields.get(field).map(|found| found.ty.clone()),
        Type::Optional(inner) => field_type(inner, field),
        &OBJECT | &JSON_PATCH => Some(Type::Dyn),
        _ => None,
    }
}
