//! `shoal crds`: the definitions of the kinds that the framework and the operators bring along.

use std::fmt::Write as _;
use std::io::Write as _;

use clap::ValueEnum;
use shoal_runtime::shard;

/// Print the definitions of custom kinds
#[derive(clap::Args)]
#[command(after_help = "Example:\n  shoal crds sharding | kubectl apply -f -")]
pub struct Args {
    /// Whose kinds; all unless told otherwise
    names: Vec<Owner>,
}

/// Who brings kinds along.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Owner {
    /// ShardMap: which replica works on what
    Sharding,
    /// Application: a program with everything around it
    Application,
}

/// Prints what is asked for as YAML documents.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let text = documents(&args.names)?;
    match std::io::stdout().write_all(text.as_bytes()) {
        // Who reads has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

fn documents(names: &[Owner]) -> anyhow::Result<String> {
    let mut text = String::new();
    for owner in Owner::value_variants() {
        if names.is_empty() || names.contains(owner) {
            let definition = match owner {
                Owner::Sharding => shard::crd(),
                Owner::Application => shoal_application::crd(),
            };
            write!(text, "---\n{}\n", serde_saphyr::to_string(&definition)?)?;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use shoal_testkit::Cluster;

    use super::*;

    #[tokio::test]
    async fn the_definitions_are_accepted_by_a_server() {
        let cluster = Cluster::start().await;
        let text = documents(&[]).unwrap();
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let yaml = [("content-type", "application/yaml")];
        for document in text.split("---\n").filter(|document| !document.is_empty()) {
            let answer = cluster.http().send("POST", path, &yaml, document.to_owned()).await;
            assert_eq!(answer.status, 201, "{:?}", answer.body);
        }
        let served = cluster.http().get("/apis/sharding.shoal.dev/v1alpha1/shardmaps").await;
        assert_eq!(served.status, 200, "{:?}", served.body);
        let served = cluster.http().get("/apis/apps.example.com/v1alpha1/applications").await;
        assert_eq!(served.status, 200, "{:?}", served.body);
    }
}
