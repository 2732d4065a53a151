//! A network and a server that misbehave as told.
//!
//! A [`FaultLayer`] stands between a client and the cluster. Rules say which requests are hit, how often and by what; the same
//! seed hits the same requests.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use k8s_openapi::api::core::v1::Namespace;
//! use kube::api::{Api, ListParams};
//! use shoal_testkit::{Cluster, Effect, FaultLayer, Rule};
//!
//! let cluster = Cluster::start().await;
//! let faults = FaultLayer::new(7);
//! let namespaces: Api<Namespace> = Api::all(cluster.client_through(&faults));
//! faults.add(Rule::lists(Effect::answer(500)).times(1));
//! assert!(namespaces.list(&ListParams::default()).await.is_err());
//! assert!(namespaces.list(&ListParams::default()).await.is_ok());
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::json;
use shoal_objects::Entropy;
use tokio::sync::oneshot;
use tower::{Service, ServiceExt as _};

use crate::fault_body::{Breakable, Damaged};

/// Errors of the transport.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// A body that may be damaged.
pub type FaultBody = UnsyncBoxBody<Bytes, BoxError>;

/// What happens to a request.
#[derive(Clone, Debug)]
pub enum Effect {
    /// It takes longer.
    Delay(Duration),
    /// It reaches the server only after the next request through this layer was answered, or after a second without one.
    Overtaken,
    /// A read is answered as the same request was answered the last time that it was answered truly, as by a cache that is
    /// behind. The first time it is answered truly; watches and writes always are.
    Stale,
    /// The connection fails before the server sees the request.
    DropBefore,
    /// The server does what was asked, and the connection fails before the answer.
    DropAfter,
    /// The server answers with an error and does nothing.
    Answer {
        /// HTTP status.
        code: u16,
        /// `reason` of the Status.
        reason: &'static str,
        /// `Retry-After` in seconds.
        retry_after: Option<u64>,
    },
    /// The answer breaks off with an error after so many bytes.
    CutAfter(usize),
    /// The answer breaks off with an error after some bytes, at most so many; how many is drawn for each answer.
    CutWithin(usize),
    /// After so many bytes nothing comes any more, and nobody says so.
    StallAfter(usize),
    /// The answer ends, as if it were complete, after so many bytes.
    EndAfter(usize),
    /// The answer comes in pieces of so many bytes.
    Pieces(usize),
    /// The answer comes in pieces of so many bytes, each a while after the one before.
    Drip {
        /// Size of a piece.
        bytes: usize,
        /// Time before each.
        pause: Duration,
    },
    /// Every line comes twice.
    DoubleLines,
    /// Of the lines that come together, the last comes first.
    ReverseLines,
    /// After so many lines comes an error event with this code, and the watch ends.
    ErrorEvent {
        /// Lines before it.
        after: usize,
        /// Code of the Status.
        code: u16,
    },
}

impl Effect {
    /// An error answer.
    pub fn answer(code: u16) -> Effect {
        let reason = match code {
            404 => "NotFound",
            409 => "Conflict",
            410 => "Expired",
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            _ => "InternalError",
        };
        Effect::Answer { code, reason, retry_after: None }
    }

    /// An error answer that asks for a pause.
    pub fn answer_later(code: u16, seconds: u64) -> Effect {
        match Effect::answer(code) {
            Effect::Answer { code, reason, .. } => {
                Effect::Answer { code, reason, retry_after: Some(seconds) }
            }
            other => other,
        }
    }
}

/// How long a request waits for another one that overtakes it.
const OVERTAKEN: Duration = Duration::from_secs(1);

/// Which requests are hit, how often, and by what.
#[derive(Clone)]
pub struct Rule {
    hits: Arc<dyn Fn(&Parts) -> bool + Send + Sync>,
    effect: Effect,
    left: Option<usize>,
    percent: u64,
}

impl Rule {
    /// Requests that a function chooses.
    pub fn on(hits: impl Fn(&Parts) -> bool + Send + Sync + 'static, effect: Effect) -> Rule {
        Rule { hits: Arc::new(hits), effect, left: None, percent: 100 }
    }

    /// All requests.
    pub fn all(effect: Effect) -> Rule {
        Rule::on(|_| true, effect)
    }

    /// Watches.
    pub fn watches(effect: Effect) -> Rule {
        Rule::on(is_watch, effect)
    }

    /// Reads that are no watches.
    pub fn lists(effect: Effect) -> Rule {
        Rule::on(is_read, effect)
    }

    /// Everything that changes something.
    pub fn writes(effect: Effect) -> Rule {
        Rule::on(|parts| parts.method != Method::GET, effect)
    }

    /// Only the next so many requests.
    #[must_use]
    pub fn times(self, times: usize) -> Rule {
        Rule { left: Some(times), ..self }
    }

    /// Only so many of a hundred requests, drawn by chance.
    #[must_use]
    pub fn percent(self, percent: u64) -> Rule {
        Rule { percent, ..self }
    }
}

fn is_read(parts: &Parts) -> bool {
    parts.method == Method::GET && !is_watch(parts)
}

fn is_watch(parts: &Parts) -> bool {
    parts
        .uri
        .query()
        .is_some_and(|query| query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1")))
}

/// Hits requests by rules. Clones share the rules.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::api::{Api, PostParams};
/// use shoal_testkit::{Cluster, Effect, FaultLayer, Rule};
///
/// let cluster = Cluster::start().await;
/// let faults = FaultLayer::new(7);
/// let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client_through(&faults));
/// let map: ConfigMap = serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}}))?;
///
/// // The answer to a write is lost: the client sees an error, and yet the object is there.
/// faults.add(Rule::all(Effect::DropAfter).times(1));
/// assert!(maps.create(&PostParams::default(), &map).await.is_err());
/// assert!(maps.get("a").await.is_ok());
/// // The server is away until further notice.
/// faults.add(Rule::all(Effect::DropBefore));
/// assert!(maps.get("a").await.is_err());
/// faults.clear();
/// assert!(maps.get("a").await.is_ok());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct FaultLayer {
    inner: Arc<Mutex<State>>,
}

struct State {
    rules: Vec<Rule>,
    entropy: Entropy,
    requests: Vec<String>,
    /// Answers that can be cut, in the order of their requests: who is told first must not be left to chance.
    open: Vec<oneshot::Sender<()>>,
    /// Requests that wait until another one was answered.
    overtaken: Vec<oneshot::Sender<()>>,
    /// The last true answers of reads by their URI, once a rule makes reads stale.
    past: BTreeMap<String, Response<Bytes>>,
}

/// What was decided about one request.
struct Hit {
    effects: Vec<Effect>,
    disconnected: oneshot::Receiver<()>,
    overtaken: oneshot::Receiver<()>,
    /// The answer that it gets instead of a true one.
    past: Option<Response<Bytes>>,
    /// The URI under which its true answer is remembered.
    remembered: Option<String>,
}

impl FaultLayer {
    /// No rules yet.
    pub fn new(seed: u64) -> FaultLayer {
        let entropy = Entropy::seeded(seed);
        let state = State {
            rules: Vec::new(),
            entropy,
            requests: Vec::new(),
            open: Vec::new(),
            overtaken: Vec::new(),
            past: BTreeMap::new(),
        };
        FaultLayer { inner: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a rule. Every rule that hits a request has its effect, in the order in which they were added.
    pub fn add(&self, rule: Rule) {
        self.state().rules.push(rule);
    }

    /// Forgets all rules. Watches that are open keep their damage.
    pub fn clear(&self) {
        self.state().rules.clear();
    }

    /// Breaks all answers that are not complete, above all open watches.
    pub fn disconnect(&self) {
        let open = std::mem::take(&mut self.state().open);
        for answer in open {
            // One that is complete hears nothing.
            let _ = answer.send(());
        }
    }

    /// Method and URI of all requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    fn look(&self, parts: &Parts) -> Hit {
        let mut state = self.state();
        state.requests.push(format!("{} {}", parts.method, parts.uri));
        let entropy = state.entropy.clone();
        let mut effects = Vec::new();
        for rule in &mut state.rules {
            if rule.left == Some(0) || !(rule.hits)(parts) || entropy.below(100) >= rule.percent {
                continue;
            }
            rule.left = rule.left.map(|left| left - 1);
            effects.push(match rule.effect {
                Effect::CutWithin(most) => Effect::CutAfter(entropy.below(most as u64) as usize),
                ref effect => effect.clone(),
            });
        }
        let (cut, disconnected) = oneshot::channel();
        state.open.retain(|answer| !answer.is_closed());
        state.open.push(cut);
        let (pass, overtaken) = oneshot::channel();
        if effects.iter().any(|effect| matches!(effect, Effect::Overtaken)) {
            state.overtaken.push(pass);
        }
        let may_be_stale =
            is_read(parts) && state.rules.iter().any(|rule| matches!(rule.effect, Effect::Stale));
        let remembered = may_be_stale.then(|| parts.uri.to_string());
        let stale = effects.iter().any(|effect| matches!(effect, Effect::Stale));
        let past = remembered.as_ref().filter(|_| stale).and_then(|uri| state.past.get(uri).cloned());
        Hit { effects, disconnected, overtaken, past, remembered }
    }

    /// A request was answered: those that it has overtaken go on.
    fn answered(&self) {
        let overtaken = std::mem::take(&mut self.state().overtaken);
        for request in overtaken {
            // One that has waited for long enough hears nothing.
            let _ = request.send(());
        }
    }

    /// The true answer of a read, which may be given again later.
    async fn remember(
        &self,
        uri: String,
        answer: Response<FaultBody>,
    ) -> Result<Response<FaultBody>, BoxError> {
        let (parts, body) = answer.into_parts();
        let answer = Response::from_parts(parts, body.collect().await?.to_bytes());
        self.state().past.insert(uri, answer.clone());
        Ok(whole(answer))
    }

    /// `service` with faults.
    pub fn wrap<S, B, A>(
        &self,
        service: S,
    ) -> impl Service<Request<B>, Response = Response<FaultBody>, Error = BoxError, Future: Send>
    + Clone
    + Send
    + use<S, B, A>
    where
        S: Service<Request<B>, Response = Response<A>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        A: http_body::Body<Data = Bytes> + Send + 'static,
        A::Error: Into<BoxError>,
        B: Send + 'static,
    {
        let faults = self.clone();
        tower::service_fn(move |request: Request<B>| {
            let (faults, service) = (faults.clone(), service.clone());
            async move {
                let (parts, body) = request.into_parts();
                let Hit { effects, disconnected, overtaken, past, remembered } = faults.look(&parts);
                let serve = async {
                    if let Some(past) = past {
                        return Ok(whole(past));
                    }
                    let answer =
                        service.oneshot(Request::from_parts(parts, body)).await.map_err(Into::into)?;
                    let answer = answer.map(|body| body.map_err(Into::into).boxed_unsync());
                    match remembered {
                        Some(uri) => faults.remember(uri, answer).await,
                        None => Ok(answer),
                    }
                };
                let response = hit(effects, overtaken, serve).await;
                faults.answered();
                Ok(response?.map(|body| Breakable::new(body, disconnected).boxed_unsync()))
            }
        })
    }
}

async fn hit(
    effects: Vec<Effect>,
    mut overtaken: oneshot::Receiver<()>,
    serve: impl Future<Output = Result<Response<FaultBody>, BoxError>>,
) -> Result<Response<FaultBody>, BoxError> {
    for effect in &effects {
        match effect {
            Effect::Delay(time) => tokio::time::sleep(*time).await,
            Effect::Overtaken => {
                let _ = tokio::time::timeout(OVERTAKEN, &mut overtaken).await;
            }
            Effect::DropBefore => return Err("the connection was reset".into()),
            Effect::Answer { code, reason, retry_after } => return status(*code, reason, *retry_after),
            _ => {}
        }
    }
    let mut response = serve.await?;
    for effect in effects {
        if matches!(effect, Effect::DropAfter) {
            return Err("the connection was reset".into());
        }
        response = response.map(|body| Damaged::new(body, effect).boxed_unsync());
    }
    Ok(response)
}

/// A Status as the answer.
fn status(code: u16, reason: &str, retry_after: Option<u64>) -> Result<Response<FaultBody>, BoxError> {
    let status = status_object(code, reason, retry_after);
    let mut response = Response::builder().status(code).header("content-type", "application/json");
    if let Some(seconds) = retry_after {
        response = response.header("retry-after", seconds);
    }
    Ok(whole(response.body(Bytes::from(status.to_string()))?))
}

fn whole(answer: Response<Bytes>) -> Response<FaultBody> {
    answer.map(|body| Full::new(body).map_err(|never| match never {}).boxed_unsync())
}

pub(crate) fn status_object(code: u16, reason: &str, retry_after: Option<u64>) -> serde_json::Value {
    let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "a fault was injected", "reason": reason, "code": code});
    if let Some(seconds) = retry_after {
        status["details"] = json!({"retryAfterSeconds": seconds});
    }
    status
}
