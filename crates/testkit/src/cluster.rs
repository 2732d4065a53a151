//! One cluster in this process.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use kube::Client;
use shoal_apiserver::access::UserInfo;
use shoal_apiserver::access::pki::FrontProxy;
use shoal_apiserver::access::tokens;
use shoal_apiserver::audit::AuditOptions;
use shoal_apiserver::{Abilities, Options, Server};
use shoal_objects::{Clock, Entropy, Timestamp};
use shoal_store::Store;
use tokio::time::Instant;
use tower::{Service, ServiceExt as _};

use crate::faults::FaultLayer;
use crate::http_client::Http;

/// Where simulated time begins: 2026-01-01T00:00:00Z.
const EPOCH: Timestamp = Timestamp(1_767_225_600_000_000);

/// A running cluster. Several can live side by side; each has its own state.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use k8s_openapi::api::core::v1::Secret;
/// use kube::api::{Api, ListParams};
/// use shoal_testkit::{Abilities, Cluster};
///
/// // Uids, names and times are the same in every run, and the server is one of before WatchList.
/// let abilities = Abilities { watch_list: false, ..Abilities::default() };
/// let cluster = Cluster::builder().seed(7).abilities(abilities).start().await;
/// // Whoever calls has the rights that RBAC gives them.
/// let secrets: Api<Secret> = Api::default_namespaced(cluster.client_as("mallory", &[]));
/// let refused = secrets.list(&ListParams::default()).await.err().ok_or("mallory may not")?;
/// assert!(refused.to_string().contains("forbidden"));
/// // Without a client library:
/// let answer = cluster.http().get("/api/v1/namespaces/default").await;
/// assert_eq!(answer.status, 200);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Cluster {
    server: Server,
    clock: Clock,
}

/// Settings of a cluster.
pub struct Builder {
    seed: Option<u64>,
    abilities: Abilities,
    history_events: Option<usize>,
    audit: Option<AuditOptions>,
    front_proxy: Option<FrontProxy>,
}

impl Cluster {
    /// A cluster with default settings.
    pub async fn start() -> Cluster {
        Cluster::builder().start().await
    }

    /// A cluster with settings.
    pub fn builder() -> Builder {
        Builder {
            seed: None,
            abilities: Abilities::default(),
            history_events: None,
            audit: None,
            front_proxy: None,
        }
    }

    /// A cluster around a server that was started elsewhere, say on a store of one's own.
    pub fn of(server: Server) -> Cluster {
        Cluster { server, clock: Clock::system() }
    }

    /// A kube client with all rights.
    pub fn client(&self) -> Client {
        self.client_as("shoal:test", &["system:masters"])
    }

    /// A kube client of some user.
    pub fn client_as(&self, user: &str, groups: &[&str]) -> Client {
        Client::new(self.service_as(UserInfo::authenticated(user, groups)), "default")
    }

    /// A kube client with all rights whose requests go through faults.
    pub fn client_through(&self, faults: &FaultLayer) -> Client {
        let user = UserInfo::authenticated("shoal:test", &["system:masters"]);
        Client::new(faults.wrap(self.service_as(user)), "default")
    }

    fn service_as(
        &self,
        user: UserInfo,
    ) -> impl Service<
        Request<kube::client::Body>,
        Response = Response<shoal_apiserver::Body>,
        Error = Infallible,
        Future: Send,
    > + Clone
    + Send
    + use<> {
        self.server.clone().map_request(move |mut request: Request<kube::client::Body>| {
            request.extensions_mut().insert(user.clone());
            request
        })
    }

    /// Plain HTTP requests with all rights, without a client library.
    pub fn http(&self) -> Http {
        Http::new(self.server.clone(), UserInfo::authenticated("shoal:test", &["system:masters"]))
    }

    /// Plain HTTP requests of some user.
    pub fn http_as(&self, user: &str, groups: &[&str]) -> Http {
        Http::new(self.server.clone(), UserInfo::authenticated(user, groups))
    }

    /// The time in this cluster, for controllers that shall live in the same one.
    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// Every event of these collections since the cluster was started, as a watcher reads them. With a seed and paused
    /// time, two runs of one program give the same bytes:
    ///
    /// ```
    /// # use shoal_testkit::Cluster;
    /// # use serde_json::json;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # tokio::time::pause();
    /// async fn run(seed: u64) -> Vec<u8> {
    ///     let cluster = Cluster::builder().seed(seed).start().await;
    ///     let map = json!({"metadata": {"generateName": "m-"}});
    ///     cluster.http().post("/api/v1/namespaces/default/configmaps", &map).await;
    ///     cluster.event_log(&["/api/v1/configmaps"]).await
    /// }
    /// assert!(run(1).await == run(1).await && run(1).await != run(2).await);
    /// # }
    /// ```
    pub async fn event_log(&self, paths: &[&str]) -> Vec<u8> {
        let mut log = Vec::new();
        for path in paths {
            let watch = format!("{path}?watch=true&resourceVersion=1&timeoutSeconds=1");
            log.extend_from_slice(&self.http().get(&watch).await.body);
        }
        log
    }

    /// The server itself.
    pub fn server(&self) -> &Server {
        &self.server
    }
}

impl Builder {
    /// The same seed gives the same uids, names and times: time is tokio's and starts at a fixed date, so that with
    /// paused time two runs of one script are equal to the byte.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Builder {
        self.seed = Some(seed);
        self
    }

    /// What the server can do: switch things off to behave like an older one.
    #[must_use]
    pub fn abilities(mut self, abilities: Abilities) -> Builder {
        self.abilities = abilities;
        self
    }

    /// How many events are kept for watches to resume from.
    #[must_use]
    pub fn history_events(mut self, events: usize) -> Builder {
        self.history_events = Some(events);
        self
    }

    /// Logs requests.
    #[must_use]
    pub fn audit(mut self, audit: AuditOptions) -> Builder {
        self.audit = Some(audit);
        self
    }

    /// How extension API servers recognise the server.
    #[must_use]
    pub fn front_proxy(mut self, front_proxy: FrontProxy) -> Builder {
        self.front_proxy = Some(front_proxy);
        self
    }

    /// Starts the cluster.
    ///
    /// # Panics
    /// When the key for tokens cannot be used, which no environment has shown yet.
    pub async fn start(self) -> Cluster {
        let start = Instant::now();
        let elapsed = move || Instant::now().duration_since(start);
        let mut store = shoal_store::Options { now: Arc::new(elapsed), ..shoal_store::Options::default() };
        if let Some(events) = self.history_events {
            store.history_events = events;
        }
        let mut options = Options::new(Store::memory(store), token_key());
        options.abilities = self.abilities;
        options.audit = self.audit;
        options.front_proxy = self.front_proxy;
        let mut clock = Clock::system();
        if let Some(seed) = self.seed {
            options.entropy = Entropy::seeded(seed);
            clock = Clock::from_fn(move || {
                let since: Duration = elapsed();
                Timestamp(EPOCH.0 + i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
            });
            options.clock = clock.clone();
        }
        #[allow(clippy::panic, reason = "a test cannot go on without its cluster")]
        let server = match Server::start(options).await {
            Ok(server) => server,
            Err(error) => panic!("starting the test cluster: {error}"),
        };
        Cluster { server, clock }
    }
}

/// Making a key takes longer than starting a cluster: one serves all clusters of the process.
fn token_key() -> Vec<u8> {
    static KEY: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    KEY.get_or_init(|| tokens::new_signing_key().unwrap_or_default()).clone()
}
