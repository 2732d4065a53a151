use proptest::prelude::*;
use serde_json::Value;

use super::World;
use crate::cel::compare::{compare, equal};
use crate::cel::{Budget, CelValue, Type};

/// Any JSON of moderate depth.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3_i64..3).prop_map(Value::from),
        (-2.0..2.0_f64).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[abc]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Expressions that mostly parse: words of the language in any order, or nested by the grammar.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "1",
        "0",
        "-1",
        "2.5",
        "7u",
        "'a'",
        "''",
        "b'x'",
        "null",
        "true",
        "[]",
        "{}",
        "self",
        "object",
        "self.names",
        "self.labels",
        "self.min",
        "object.data",
        "x",
        "optional.none()",
        "self.when",
        "self.wait",
        "object.?q",
        "quantity('1k')",
        "ip('::1')",
        "-9223372036854775808",
        "9223372036854775807",
        "'%s%d%.999999f'",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(5, 40, 3, |inner| {
        let binary = prop::sample::select(vec![
            "+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "in", "&&", "||",
        ]);
        let method = prop::sample::select(vec![
            "size()",
            "all(x, x == 1)",
            "exists(x, x)",
            "map(x, [x, x])",
            "filter(x, true)",
            "sum()",
            "sort()",
            "min()",
            "distinct()",
            "flatten()",
            "isSorted()",
            "split('')",
            "substring(1)",
            "charAt(0)",
            "reverse()",
            "join()",
            "format([1, 'a'])",
            "getHours()",
            "orValue(1)",
            "value()",
            "sortBy(x, x)",
            "indexOf('a')",
            "trim()",
            "transformMap(x, y, y)",
            "sign()",
            "matches('a')",
            "family()",
            "slice(0, 1)",
            "a",
            "?a",
            "findAll('')",
        ]);
        let function = prop::sample::select(vec![
            "size",
            "int",
            "uint",
            "double",
            "string",
            "bytes",
            "timestamp",
            "duration",
            "type",
            "dyn",
            "has",
            "math.abs",
            "math.greatest",
            "lists.range",
            "sets.contains",
            "quantity",
            "cidr",
            "url",
            "semver",
            "!",
            "-",
        ]);
        prop_oneof![
            (inner.clone(), binary, inner.clone()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            (inner.clone(), method).prop_map(|(a, call)| format!("{a}.{call}")),
            (function, inner.clone()).prop_map(|(name, a)| format!("{name}({a})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}[{b}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("dyn({a}) + dyn({b})")),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_text_is_read_or_refused(source in "\\PC{0,60}") {
        let _ = World::new().eval(&source);
    }

    #[test]
    fn any_sequence_of_tokens_is_read_or_refused(source in "[a-c0-9 .,?:()\\[\\]{}'\"+*/%!&|<>=-]{0,60}") {
        let _ = World::new().eval(&source);
    }

    #[test]
    fn any_expression_is_evaluated_or_refused(source in expression()) {
        let _ = World::new().eval(&source);
    }

    #[test]
    fn equality_is_reflexive_and_symmetric(a in json_value(), b in json_value()) {
        let mut budget = Budget::new(1_000_000);
        budget.begin_call();
        let (x, y) = (CelValue::from_json(&a, &Type::Dyn), CelValue::from_json(&b, &Type::Dyn));
        prop_assert_eq!(equal(&mut budget, &x, &x), Ok(true));
        prop_assert_eq!(equal(&mut budget, &x, &y), equal(&mut budget, &y, &x));
        prop_assert_eq!(x.to_json(), a);
    }

    #[test]
    fn order_agrees_with_equality(a in json_value(), b in json_value()) {
        let mut budget = Budget::new(1_000_000);
        budget.begin_call();
        let (x, y) = (CelValue::from_json(&a, &Type::Dyn), CelValue::from_json(&b, &Type::Dyn));
        if let Ok(Some(order)) = compare(&mut budget, &x, &y) {
            prop_assert_eq!(compare(&mut budget, &y, &x), Ok(Some(order.reverse())));
            prop_assert_eq!(equal(&mut budget, &x, &y), Ok(order.is_eq()));
        }
    }
}
