//! The guide to testing operators, followed to the letter.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod greeter;

#[test]
fn the_guide_is_this_program() {
    let page = include_str!("../../../../docs/how-to/test-an-operator.md");
    let blocks = page.split("```rust\n").skip(1).filter_map(|rest| rest.split_once("```"));
    let told = blocks.map(|(block, _)| block).collect::<Vec<_>>().join("\n");
    assert_eq!(told, include_str!("greeter.rs"));
}
