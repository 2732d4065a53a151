//! Uses kube-rs on the cluster of KUBECONFIG: one line `ok CLAIM` or `FAILED CLAIM: why` per use.

mod api;
mod operator;
mod watching;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::{LocalBoxFuture, join_all};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};

/// For anything that is waited for; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A claim and what shows it, in a namespace of its own.
type Use = (&'static str, fn(Client, String) -> LocalBoxFuture<'static, Result<()>>);

#[tokio::main]
async fn main() -> ExitCode {
    let uses = api::USES.iter().chain(watching::USES).chain(operator::USES);
    let failed = join_all(uses.map(|one| run(*one))).await.contains(&false);
    ExitCode::from(u8::from(failed))
}

async fn run((claim, show): Use) -> bool {
    let shown = tokio::time::timeout(PATIENCE, async {
        let client = Client::try_default().await.context("reading the kubeconfig")?;
        let namespace = fresh_namespace(&client).await?;
        show(client, namespace).await
    });
    match shown.await {
        Ok(Ok(())) => {
            println!("ok kube-rs: {claim}");
            true
        }
        Ok(Err(error)) => {
            println!("FAILED kube-rs: {claim}: {}", format!("{error:#}").replace('\n', " "));
            false
        }
        Err(_) => {
            println!("FAILED kube-rs: {claim}: not within {PATIENCE:?}");
            false
        }
    }
}

async fn fresh_namespace(client: &Client) -> Result<String> {
    let metadata = ObjectMeta { generate_name: Some("use-".to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    let made = Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    Ok(made.name_any())
}

/// Makes a `Use` of an async function.
macro_rules! shown_by {
    ($function:path) => {
        |client, namespace| futures::FutureExt::boxed_local($function(client, namespace))
    };
}
pub(crate) use shown_by;

/// Asks again until the answer is there.
async fn until<T>(what: &str, ask: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
    let asking = async {
        loop {
            if let Some(answer) = ask().await? {
                return Ok(answer);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE / 2, asking).await.with_context(|| format!("waiting for {what}"))?
}
