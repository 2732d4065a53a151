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
    let mut refused = Writer::new(client.clone(), OPERATOR).apply(&crd(), None).await.err();
    for _ in 0..ASKED {
        match is_served(client).await {
            Some(true) => return Ok(()),
            Some(false) => {
                if let Some(error) = refused.take() {
                    return Err(InstallError::Refused(error));
                }
            }
            // Not known now.
            None => {}
        }
        tokio::time::sleep(ASK).await;
    }
    Err(refused.map_or(InstallError::NotServed, InstallError::Refused))
}

/// Whether the kind is served, if the server can be asked.
async fn is_served(client: &Client) -> Option<bool> {
    let all: Api<Application> = Api::all(client.clone());
    match all.list_metadata(&ListParams::default().limit(1)).await {
        Ok(_) => Some(true),
        // Whether it may be read is another question: the informer will be told.
        Err(kube::Error::Api(status)) => Some(status.code == 403),
        Err(_) => None,
    }
}
