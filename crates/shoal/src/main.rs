//! The `shoal` binary: the composition root, one file per subcommand.

mod beside;
mod cli;
mod crds;
mod data_dir;
mod demo;
mod in_process;
mod kubeconfig;
mod manifests;
mod metrics;
mod nodes;
mod parts;
mod run;
mod shards;
mod simulated;
mod up;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // What containers are made of: this program, started by its own node. Nothing else may happen first.
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments.split_first().map(|(first, rest)| (first.to_str(), rest)) {
        Some((Some(nodes::SANDBOX), rest)) => return shoal_node::sandbox::main(rest),
        Some((Some("image"), rest)) => return shoal_node::demo::main(rest),
        _ => {}
    }
    match cli::run(Instant::now()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}
