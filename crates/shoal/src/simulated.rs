//! The settings of simulated nodes on the command line.

use std::time::Duration;

use shoal_node::simulated::Options;
use shoal_objects::Quantity;
use shoal_runtime::config::duration;

/// Nodes that only play that they run pods.
#[derive(clap::Args)]
#[group(id = "simulated")]
pub struct Args {
    /// Play this many nodes, on which pods run in name only
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    simulated_nodes: Option<u32>,

    /// How long pods take to start on them
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration::parse, requires = "simulated_nodes")]
    simulated_start_delay: Duration,

    /// How long pods of Jobs run on them
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::parse, requires = "simulated_nodes")]
    simulated_job_duration: Duration,

    /// Which part of all starts fails on them, from 0 to 1
    #[arg(long, value_name = "RATE", default_value_t = 0.0, value_parser = rate, requires = "simulated_nodes")]
    simulated_failure_rate: f64,

    /// Which part of their requests pods use on them, unless their annotations say it
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = share, requires = "simulated_nodes")]
    simulated_usage: f64,

    /// What each of them has, beside or instead of cpu=32,memory=256Gi,ephemeral-storage=1Ti,pods=110
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = amount, requires = "simulated_nodes")]
    simulated_capacity: Vec<(String, Quantity)>,
}

impl Args {
    /// The nodes that were asked for.
    pub fn options(&self) -> Option<Options> {
        let mut options = Options {
            nodes: self.simulated_nodes?,
            start_delay: self.simulated_start_delay,
            job_duration: self.simulated_job_duration,
            failure_rate: self.simulated_failure_rate,
            usage: self.simulated_usage,
            ..Options::default()
        };
        options.capacity.extend(self.simulated_capacity.iter().cloned());
        Some(options)
    }
}

fn rate(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|rate| (0.0..=1.0).contains(rate)).ok_or("not a number from 0 to 1".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1000.0).contains(share));
    share.ok_or("not a number from 0 to 1000".to_owned())
}

fn amount(text: &str) -> Result<(String, Quantity), String> {
    let (name, amount) = text.split_once('=').ok_or("not NAME=AMOUNT, as in cpu=8")?;
    let amount = Quantity::parse(amount).map_err(|error| format!("{name}: {error}"))?;
    Ok((name.to_owned(), amount))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn nodes_are_as_large_as_asked_for() {
        let given = ["x", "--simulated-nodes", "3", "--simulated-capacity", "cpu=8,example.com/gpu=2"];
        let options = Cli::try_parse_from(given).unwrap().args.options().unwrap();
        assert_eq!(options.nodes, 3);
        assert_eq!(options.capacity["cpu"].value(), 8);
        assert_eq!(options.capacity["example.com/gpu"].value(), 2);
        assert_eq!(options.capacity["pods"].value(), 110);
        assert!(Cli::try_parse_from(["x"]).unwrap().args.options().is_none());
        for wrong in [
            "--simulated-failure-rate=2",
            "--simulated-usage=-1",
            "--simulated-capacity=cpu",
            "--simulated-start-delay=soon",
        ] {
            assert!(Cli::try_parse_from(["x", "--simulated-nodes=1", wrong]).is_err(), "{wrong}");
        }
    }
}
