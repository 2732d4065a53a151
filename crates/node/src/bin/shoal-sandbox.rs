//! The hidden subcommands of `shoal` as a program of their own, so that the agent's tests need not build all of it.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments.first().and_then(|first| first.to_str()) {
        Some("image") => shoal_node::demo::main(&arguments[1..]),
        _ => shoal_node::sandbox::main(&arguments),
    }
}
