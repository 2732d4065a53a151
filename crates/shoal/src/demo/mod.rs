//! `shoal demo`: guided stories in the terminal.

pub mod application;
pub mod process;
pub mod sharding;
mod stage;

use clap::Subcommand;

/// Watch a story: real processes, real faults, a verdict at the end
#[derive(clap::Args)]
#[command(after_help = "Examples:
  shoal demo sharding                      # replicas are killed, stopped and scaled; nothing is left behind
  shoal demo sharding --objects 10000 --lease 10
  shoal demo sharding -o json | jq .verdict
  shoal demo application                   # one object becomes a service: it grows under load and survives a bad image")]
pub struct Args {
    #[command(subcommand)]
    story: Option<Story>,
}

#[derive(Subcommand)]
enum Story {
    /// Several replicas share objects: never two on one, never none
    Sharding(sharding::Args),
    /// An Application is created, visited, loaded, broken, healed and deleted
    Application(application::Args),
}

/// Tells the story.
pub async fn run(args: Args) -> anyhow::Result<()> {
    match args.story.unwrap_or_else(|| Story::Sharding(sharding::Args::default())) {
        Story::Sharding(args) => sharding::run(&args).await,
        Story::Application(args) => application::run(&args).await,
    }
}
