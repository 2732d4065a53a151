//! `shoal demo`: guided stories in the terminal.

pub mod sharding;

use clap::Subcommand;

/// Watch a story: real processes, real faults, a verdict at the end
#[derive(clap::Args)]
#[command(after_help = "Examples:
  shoal demo sharding                      # replicas are killed, stopped and scaled; nothing is left behind
  shoal demo sharding --objects 10000 --lease 10
  shoal demo sharding -o json | jq .verdict")]
pub struct Args {
    #[command(subcommand)]
    story: Option<Story>,
}

#[derive(Subcommand)]
enum Story {
    /// Several replicas share objects: never two on one, never none
    Sharding(sharding::Args),
}

/// Tells the story.
pub async fn run(args: Args) -> anyhow::Result<()> {
    match args.story.unwrap_or_else(|| Story::Sharding(sharding::Args::default())) {
        Story::Sharding(args) => sharding::run(&args).await,
    }
}
