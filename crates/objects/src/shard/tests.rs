use proptest::prelude::*;

use super::*;

#[test]
fn errors_are_those_of_the_real_server() {
    let range = "shardRange(object.metadata.uid, '0x0000000000000000', '0x1000000000000000')";
    for (text, error) in [
        ("x", "unexpected expression kind 3; expected shardRange() call or || operator"),
        ("shardRange(object.metadata.uid)", "shardRange() requires exactly 3 arguments, got 1"),
        (
            "shardRange(object.metadata.name, '0x0', '0x1')",
            "unsupported field path \"object.metadata.name\"; supported: object.metadata.uid, object.metadata.namespace",
        ),
        ("shardRange(object.metadata.uid, '0', '0x1')", "hexStart must have '0x' prefix, got \"0\""),
        (
            "shardRange(object.metadata.uid, '0x5000000000000000', '0x1000000000000000')",
            "shard range start 0x5000000000000000 must be less than end 0x1000000000000000",
        ),
        (
            "shardRange(object.metadata.uid, '0x0', '0x8000000000000000')",
            "hexStart must be a 0x-prefixed 16-digit hex value, got \"0x0\" (did you mean \"0x0000000000000000\"?)",
        ),
        (
            &format!("{range} && {range}"),
            "unsupported function \"_&&_\"; only shardRange() and || are allowed",
        ),
        (
            &format!("{range} || {}", range.replace("uid", "namespace")),
            "all shard ranges must use the same field, got \"object.metadata.uid\" and \"object.metadata.namespace\"",
        ),
        (
            "shardRange(metadata.uid, '0x0', '0x1')",
            "unsupported field path \"metadata.uid\"; supported: object.metadata.uid, object.metadata.namespace",
        ),
        (
            "shardRange(object.metadata.uid, '0xZZ', '0x1')",
            "hexStart: invalid hex character \"Z\" in \"0xZZ\"",
        ),
        (
            "other(object.metadata.uid)",
            "unsupported function \"other\"; only shardRange() and || are allowed",
        ),
        (
            "shardRange(",
            "CEL parse error: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', ')', '.', '-', '!', \
             'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}",
        ),
        ("  ", "empty shard selector is not allowed; omit the parameter for unfiltered lists"),
        ("'a'", "unexpected expression kind 5; expected shardRange() call or || operator"),
        ("shardRange(object.metadata.uid, 0, '0x1')", "hexStart must be a string literal, got int64"),
        (
            "shardRange(object.metadata.uid, '0x20000000000000000', '')",
            "hexStart: 17-digit hex value must be '0x10000000000000000' (2^64), got \"0x20000000000000000\"",
        ),
        (
            "shardRange(object.metadata.uid, '0x10000000000000000', '0x10000000000000000')",
            "shard range start 0x10000000000000000 must be less than end 0x10000000000000000",
        ),
    ] {
        let found = ShardSelector::parse(text).unwrap_err().to_string();
        assert_eq!(found, format!("invalid shard selector: {error}"), "{text}");
    }
}

#[test]
fn halves_are_disjoint_and_together_everything() {
    let (low, high) =
        ("'0x0000000000000000', '0x8000000000000000'", "'0x8000000000000000', '0x10000000000000000'");
    let shard =
        |range: &str| ShardSelector::parse(&format!("shardRange(object.metadata.uid, {range})")).unwrap();
    let both = ShardSelector::parse(&format!("({}||{})", shard(low), shard(high))).unwrap();
    for n in 0..1000 {
        let uid = format!("c0ffee00-0000-4000-8000-{n:012x}");
        assert_ne!(shard(low).contains(&uid, "n"), shard(high).contains(&uid, "n"));
        assert!(both.contains(&uid, "n"));
    }
    assert_eq!(
        shard(high).shard_info(),
        json!({"selector": format!("shardRange(object.metadata.uid, {high})")})
    );
    assert_eq!(both.ranges().len(), 2);
}

#[test]
fn namespaces_are_hashed_alone() {
    let text = "shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000')";
    let shard = ShardSelector::parse(text).unwrap();
    assert_eq!(shard.to_string(), text);
    assert_eq!(shard.contains("any", "team-a"), fnv1a64("team-a") < 1 << 63);
    assert_eq!(shard.field(), ShardField::Namespace);
}

#[test]
fn the_hash_is_fnv_1a() {
    assert_eq!(fnv1a64(""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(fnv1a64("a"), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(fnv1a64("foobar"), 0x8594_4171_f739_67e8);
}

#[test]
fn hostile_texts_are_refused() {
    for piece in ["(", "a(", "a.", "||", "'", "\\", "é", "a||", "1.", "shardRange(a,"] {
        assert!(ShardSelector::parse(&piece.repeat(100_000)).is_err(), "{piece}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(bounds in prop::collection::vec(any::<(u64, u64)>(), 1..5)) {
        let ranges = bounds.iter().map(|(a, b)| {
            format!("shardRange(object.metadata.uid, '{:#018x}', '{:#018x}')", a.min(b), u128::from(*a.max(b)) + 1)
        });
        let text = ranges.collect::<Vec<String>>().join(" || ");
        prop_assert_eq!(ShardSelector::parse(&text).unwrap().to_string(), text);
    }

    #[test]
    fn nothing_panics(text in "[ a-c.,()|&'\"0x-]{0,40}|\\PC{0,20}") {
        let _ = ShardSelector::parse(&text);
    }
}
