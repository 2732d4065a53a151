//! The engine behind `cargo xtask`.
fn main() {}
