//! The syntax tree of a CEL expression, with macros recognised.

/// An expression and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// Byte offset of the token that errors about this expression point to.
    pub at: usize,
    /// How deep the tree below is, itself included.
    pub depth: usize,
    /// What it is.
    pub kind: Kind,
}

/// A literal.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `null`
    Null,
    /// `true`
    Bool(bool),
    /// `1`
    Int(i64),
    /// `1u`
    Uint(u64),
    /// `1.5`
    Double(f64),
    /// `'a'`
    String(String),
    /// `b'a'`
    Bytes(Vec<u8>),
}

/// One element of a list, map or object literal; with `?` in front it is left out when its value is empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry<K> {
    /// Map key or field name; nothing for lists.
    pub key: K,
    /// The value.
    pub value: Expr,
    /// Whether `?` stands in front.
    pub optional: bool,
}

/// The macros that iterate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// All elements satisfy the predicate.
    All,
    /// Some element does.
    Exists,
    /// Exactly one does.
    ExistsOne,
    /// The elements transformed (`map`, `transformList`).
    List,
    /// The elements that satisfy the predicate.
    Filter,
    /// A map with the same keys and transformed values.
    Map,
    /// A map built of one-entry maps.
    MapEntry,
    /// The elements sorted by a computed key.
    SortBy,
}

/// The forms of expressions.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A literal.
    Literal(Literal),
    /// A name.
    Ident(String),
    /// `operand.field`, `operand.?field`, `has(operand.field)`
    Select {
        /// What is selected from.
        operand: Box<Expr>,
        /// The field as written.
        field: String,
        /// Only asks whether the field is there.
        test: bool,
        /// Gives an optional.
        optional: bool,
    },
    /// `operand[index]`, `operand[?index]`
    Index {
        /// What is indexed.
        operand: Box<Expr>,
        /// The key or index.
        index: Box<Expr>,
        /// Gives an optional.
        optional: bool,
    },
    /// A function, method or operator.
    Call {
        /// Its name; operators as `_+_`.
        function: String,
        /// What a method is called on.
        target: Option<Box<Expr>>,
        /// The arguments.
        args: Vec<Expr>,
    },
    /// `a && b && c`: one node for a whole chain, so that long chains are not deep.
    And(Vec<Expr>),
    /// `a || b || c`
    Or(Vec<Expr>),
    /// `test ? then : otherwise`
    Ternary(Box<[Expr; 3]>),
    /// `[a, ?b]`
    List(Vec<Entry<()>>),
    /// `{k: v, ?k: v}`
    Map(Vec<Entry<Expr>>),
    /// `Name{field: value}`
    Object {
        /// The type's name.
        name: String,
        /// Its fields.
        fields: Vec<Entry<String>>,
    },
    /// `range.all(x, p)` and its kin.
    Comprehension {
        /// Which macro.
        fold: Fold,
        /// What is iterated.
        range: Box<Expr>,
        /// The element; with two variables, the index or key.
        first: String,
        /// With two variables, the element.
        second: Option<String>,
        /// Only elements that satisfy this are transformed.
        filter: Option<Box<Expr>>,
        /// The predicate or transformation.
        body: Box<Expr>,
    },
    /// `cel.bind(name, value, body)`
    Bind {
        /// The variable.
        name: String,
        /// Its value.
        value: Box<Expr>,
        /// Where it is known.
        body: Box<Expr>,
    },
    /// `target.optMap(name, body)`, `target.optFlatMap(name, body)`
    OptMap {
        /// The optional.
        target: Box<Expr>,
        /// The variable for its value.
        name: String,
        /// What becomes of it.
        body: Box<Expr>,
        /// Whether the body gives an optional itself.
        flat: bool,
    },
}

impl Expr {
    /// An expression that knows its depth.
    pub fn new(at: usize, kind: Kind) -> Expr {
        let mut depth = 0;
        kind.each_child(&mut |child| depth = depth.max(child.depth));
        Expr { at, depth: depth + 1, kind }
    }

    /// The dotted name this expression may be, `a.b.c`.
    pub fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.clone()),
            Kind::Select { operand, field, test: false, optional: false } => {
                Some(format!("{}.{field}", operand.qualified_name()?))
            }
            _ => None,
        }
    }
}

impl Kind {
    /// Visits the direct parts.
    pub fn each_child(&self, visit: &mut dyn FnMut(&Expr)) {
        match self {
            Kind::Literal(_) | Kind::Ident(_) => {}
            Kind::Select { operand, .. } => visit(operand),
            Kind::Index { operand, index, .. } => {
                visit(operand);
                visit(index);
            }
            Kind::Call { target, args, .. } => {
                target.iter().for_each(|target| visit(target));
                args.iter().for_each(visit);
            }
            Kind::And(parts) | Kind::Or(parts) => parts.iter().for_each(visit),
            Kind::Ternary(parts) => parts.iter().for_each(visit),
            Kind::List(entries) => entries.iter().for_each(|entry| visit(&entry.value)),
            Kind::Map(entries) => {
                for entry in entries {
                    visit(&entry.key);
                    visit(&entry.value);
                }
            }
            Kind::Object { fields, .. } => fields.iter().for_each(|entry| visit(&entry.value)),
            Kind::Comprehension { range, filter, body, .. } => {
                visit(range);
                filter.iter().for_each(|filter| visit(filter));
                visit(body);
            }
            Kind::Bind { value, body, .. } => {
                visit(value);
                visit(body);
            }
            Kind::OptMap { target, body, .. } => {
                visit(target);
                visit(body);
            }
        }
    }
}
