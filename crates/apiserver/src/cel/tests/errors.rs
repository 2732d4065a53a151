use super::{World, fails};

#[test]
fn what_is_not_declared_or_does_not_fit_is_refused() {
    fails(&[
        ("self.foo", "ERROR: <input>:1:5: undefined field 'foo'\n | self.foo\n | ....^"),
        ("self.hidden", "undefined field 'hidden'"),
        ("self.namespace", "undefined field 'namespace'"),
        ("foo", "ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo\n | ^"),
        ("foo(1)", "undeclared reference to 'foo' (in container '')"),
        ("self.min < self.name", "found no matching overload for '_<_' applied to '(int, string)'"),
        ("self.min == 'a'", "found no matching overload for '_==_' applied to '(int, string)'"),
        ("self.name.startsWith(1)", "found no matching overload for 'startsWith' applied to 'string.(int)'"),
        ("self.min && true", "found no matching overload for '_&&_' applied to '(int, bool)'"),
        ("!self.min", "found no matching overload for '!_' applied to '(int)'"),
        (
            "1 + 'a'",
            "ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, string)'\n | 1 + 'a'\n | ..^",
        ),
        ("self.min ? 1 : 2", "found no matching overload for '_?_:_' applied to '(int, int, int)'"),
        ("true ? 1 : 'a'", "found no matching overload for '_?_:_' applied to '(bool, int, string)'"),
        ("[1, 'a']", "expected type 'int' but found 'string'"),
        ("{'a': 1, 2: 3}", "expected type 'string' but found 'int'"),
        (
            "self.min.all(x, true)",
            "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
        ),
        ("self.names.all(x, x)", "found no matching overload for '_&&_' applied to '(bool, string)'"),
        ("self.names.filter(x, 1).size()", "found no matching overload for '_?_:_'"),
        ("self.name.foo", "type 'string' does not support field selection"),
        ("self['min']", "found no matching overload for '_[_]' applied to '(object, string)'"),
        ("self.names['a']", "found no matching overload for '_[_]' applied to '(list(string), string)'"),
        ("self.min in self.names", "found no matching overload for '@in' applied to '(int, list(string))'"),
        ("Object{a: 1}", "undeclared reference to 'Object' (in container '')"),
        ("'a'.matches('(')", "error parsing regexp"),
    ]);
}

#[test]
fn bad_syntax_is_refused_with_its_place() {
    fails(&[
        ("object.", "Syntax error: no viable alternative at input '.'"),
        ("", "Syntax error: mismatched input '<EOF>' expecting {'[', '{'"),
        ("1 +", "ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>'"),
        ("(1", "mismatched input '<EOF>' expecting ')'"),
        ("1 2", "extraneous input '2' expecting <EOF>"),
        ("'a", "token recognition error"),
        ("a # b", "token recognition error"),
        ("9223372036854775808", "invalid int literal"),
        ("has(1)", "invalid argument to has() macro"),
        ("[1].all(1, true)", "argument must be a simple name"),
        ("namespace", "reserved identifier: namespace"),
        ("1 == 1 ?", "Syntax error"),
        ("\n\n  foo", "ERROR: <input>:3:3: undeclared reference"),
        ("é", "token recognition error"),
    ]);
}

#[test]
fn several_errors_are_reported_at_once() {
    let error = World::new().eval("foo == 1 || self.bar").expect_err("two errors");
    assert_eq!(error.matches("ERROR").count(), 2, "{error}");
}

#[test]
fn what_cannot_be_computed_is_an_error() {
    fails(&[
        ("9223372036854775807 + self.min", "integer overflow"),
        ("-9223372036854775808 / -1", "integer overflow"),
        ("-(-9223372036854775808 + 0)", "integer overflow"),
        ("0u - 1u", "unsigned integer overflow"),
        ("1 / 0", "division by zero"),
        ("1 % 0", "modulus by zero"),
        ("object.missing", "no such key: missing"),
        ("self.items[1].size", "no such key: size"),
        ("self.labels['x']", "no such key: x"),
        ("self.names[3]", "index out of bounds: 3"),
        ("self.names[-1]", "index out of bounds: -1"),
        ("object.n + 'a'", "no such overload"),
        ("self.port < 3", "no such overload"),
        ("optional.none().value()", "optional.none() dereference"),
        ("int('x')", "type conversion error"),
        ("timestamp('nope')", "type conversion error"),
        ("quantity('x')", "quantit"),
        ("[].min()", "min called on empty list"),
        ("'abc'.substring(2, 1)", "invalid substring range. start: 2, end: 1"),
        ("'abc'.charAt(9)", "index out of range: 9"),
        ("{'a': 1, 'a': 2}", "repeated key"),
        ("object.n || false", "no such overload"),
        ("[dyn(1), dyn('a')].sort()", "no such overload"),
        ("int(1e30)", "integer overflow"),
        ("timestamp(9223372036854775807)", "timestamp overflow"),
        ("'a'.matches(object.data.k + '(')", "error parsing regexp"),
        ("'%d'.format(['a'])", "cannot be used on string"),
        ("'%s'.format([])", "index 0 out of range"),
    ]);
}
