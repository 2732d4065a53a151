use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::World;
use crate::cel::{Budget, EvalError, Program};

#[test]
fn deep_expressions_are_refused_not_followed() {
    let world = World::new();
    for (open, close) in
        [("(", ")"), ("[", "]"), ("!", ""), ("-", ""), ("{1:", "}"), ("size(", ")"), ("true ? 1 : ", "")]
    {
        for depth in [100, 1_000, 20_000] {
            let source = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            let _ = world.eval(&source);
        }
    }
    for chain in ["1+", "a.", "a?b:", "1==", "true||", "true&&", "a[0]", "x.all(y,", "1 in "] {
        let source = format!("{}1", chain.repeat(20_000));
        let _ = world.eval(&source);
    }
    let long = vec!["true"; 10_000].join(" && ");
    assert_eq!(world.eval(&long), Ok(Value::Bool(true)));
    let size = format!("'{}'", "a".repeat(100_001));
    assert!(world.eval(&size).expect_err("too long").contains("expression code point size exceeds limit"));
}

#[test]
fn the_deepest_allowed_expression_is_evaluated() {
    let world = World::new();
    let source = format!("{}1{}", "[".repeat(79), "]".repeat(79));
    assert!(world.eval(&source).is_ok());
    let sum = vec!["self.min"; 140].join(" + ");
    assert_eq!(world.eval(&sum), Ok(json!(140)));
    let depth = 40;
    let nested = format!("{}self.min{}", "[1].map(x, ".repeat(depth), ")".repeat(depth));
    assert!(world.eval(&nested).is_ok());
}

#[test]
fn bombs_stop_within_their_budget() {
    let mut world = World::new();
    world.object = json!({"l": (0..2000).collect::<Vec<i32>>(), "s": "a".repeat(50_000)});
    let bombs = [
        "object.l.all(a, object.l.all(b, object.l.all(c, a + b + c >= 0)))",
        "lists.range(1000).map(a, lists.range(1000).map(b, lists.range(1000)))",
        "lists.range(1000000000)",
        "lists.range(100000).all(x, (object.s + object.s).size() > 0)",
        "lists.range(10000).all(x, !object.s.matches('(a*)*b' + string(x)))",
        "lists.range(10000).all(x, object.s.findAll('a').size() > 0)",
        "object.s.replace('', object.s)",
        "object.s.split('').all(x, !object.s.contains(x + 'b'))",
        "lists.range(3000).map(x, object.l).distinct().size() == 1",
        "sets.equivalent(object.l, object.l.reverse()) && object.l.sortBy(x, object.s).size() > 0",
        "lists.range(100000).all(x, '%s'.format([object.l]) != '')",
        "object.l.all(x, object == object)",
        "lists.range(1000).all(x, object.s.matches('\\\\w{' + string(x + 200) + '}'))",
    ];
    for source in bombs {
        let program = Program::compile(source, &world.env).expect(source);
        let mut budget = Budget::new(crate::cel::budget::PER_OBJECT);
        let start = Instant::now();
        let result = world.run(&program, &mut budget, |_| ());
        assert_eq!(result, Err(EvalError::BudgetExceeded), "{source}");
        // Unoptimised code on a busy machine; the figure for optimised code is 50 ms.
        assert!(start.elapsed() < Duration::from_secs(10), "{source}: {:?}", start.elapsed());
        assert_eq!(
            budget.remaining(),
            crate::cel::budget::PER_OBJECT - crate::cel::budget::PER_CALL,
            "{source}"
        );
    }
}

#[test]
fn a_spent_budget_is_not_absorbed_by_logic() {
    let world = World::new();
    let source = "lists.range(2000).all(a, lists.range(2000).all(b, true)) || true";
    assert!(world.eval(source).expect_err("too much").contains("actual cost limit exceeded"));
}
