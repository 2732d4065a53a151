//! The `shoal` binary: the composition root, one file per subcommand.

mod beside;
mod cli;
mod data_dir;
mod in_process;
mod kubeconfig;
mod parts;
mod run;
mod simulated;
mod up;

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match cli::run(Instant::now()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}
