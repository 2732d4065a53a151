//! How the kind gets into a cluster.

use std::time::Duration;

use kube::Client;
use kube::api::{Api, ListParams};
use shoal_runtime::Writer;

use super::{Application, OPERATOR, crd};

/// How often is looked whether the kind is served by now.
const ASK: Duration = Duration::from_millis(20);
/// And how many times.
const ASKED: u32 = 500;

/// Why the kind is not there.
#[derive(Debug)]
pub enum InstallError {
    /// The definition is not accepted.
    Refused(shoal_runtime::Error),
    /// It is accepted, but the kind is not served.
    NotServed,
}

impl std::fmt::Display for InstallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            InstallError::Refused(error) => write!(
                f,
                "the kind Application cannot be installed: {error}; install it with `shoal crds application | kubectl apply --server-side -f -`"
            ),
            InstallError::NotServed => f.write_str(
                "the definition of the kind Application is there, but the kind is not served; see the definition's conditions",
            ),
        }
    }
}

impl std::error::Error for InstallError {}

/// Applies the definition and waits until the kind is served. A kind that is served already is left as it is if this client may not
/// change definitions.
pub async fn install(client: &Client) -> Result<(), InstallError> {
    let applied = Writer::new(client.clone(), OPERATOR).apply(&crd(), None).await;
    if let Err(error) = applied {
        return if is_served(client).await { Ok(()) } else { Err(InstallError::Refused(error)) };
    }
    for _ in 0..ASKED {
        if is_served(client).await {
            return Ok(());
        }
        tokio::time::sleep(ASK).await;
    }
    Err(InstallError::NotServed)
}

async fn is_served(client: &Client) -> bool {
    let all: Api<Application> = Api::all(client.clone());
    match all.list_metadata(&ListParams::default().limit(1)).await {
        Ok(_) => true,
        // Whether it may be read is another question: the informer will be told.
        Err(kube::Error::Api(status)) => status.code == 403,
        Err(_) => false,
    }
}
