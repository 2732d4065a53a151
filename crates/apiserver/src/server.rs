//! The server: a cheap handle that answers HTTP requests, with or without a socket in front.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::{Method, Request, Response, StatusCode, request::Parts};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use shoal_objects::{Clock, Entropy, meta};
use shoal_store::{Object, Range, Store};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::access::files::FileError;
use crate::access::pki::FrontProxy;
use crate::access::tokens::{Account, BoundObject, ObjectRef, SigningError, Tokens};
use crate::access::{
    AccountExists, Authenticator, Impersonation, PeerCertificate, StaticTokens, UserInfo, impersonation,
};
use crate::admission::quota::QuotaLocks;
use crate::aggregate::{self, Aggregator, Delegate, GroupHandler, MountError};
use crate::audit::{self, AuditLog, AuditOptions, Trail};
use crate::authorize::{Attributes, Authorizer, refusal};
use crate::backend::Reach;
use crate::body::Body;
use crate::handlers::node_proxy::KubeletClient;
use crate::handlers::{self, Call};
use crate::index::Index;
use crate::kinds::service_alloc::{Allocator, Reserved};
use crate::metrics::{Label, Metrics};
use crate::negotiate;
use crate::registry::{Registry, Resource};
use crate::request::{Query, Route, Target, route, verb};
use crate::response::Reply;
use crate::status::{Failure, Outcome};
use crate::{admission, bootstrap, definitions, discovery, health, openapi, outbound, own_service, protobuf};

/// Bodies above this are refused.
const BODY_LIMIT: usize = 3 * 1024 * 1024;
/// A client that takes longer to send its body is let go.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// What a server is made of.
pub struct Options {
    /// Where objects are kept.
    pub store: Store,
    /// Tells the time.
    pub clock: Clock,
    /// Draws uids and names.
    pub entropy: Entropy,
    /// The P-256 key (PKCS #8) that signs ServiceAccount tokens.
    pub token_key: Vec<u8>,
    /// Bearer tokens known from the start.
    pub static_tokens: StaticTokens,
    /// What the server can do; switched off to behave like an older one.
    pub abilities: Abilities,
    /// Requests, watches aside, that may be under way before more are turned away with 429.
    pub max_in_flight: usize,
    /// Where requests are logged, if at all.
    pub audit: Option<AuditOptions>,
    /// How extension API servers recognise this server; without it they are called without a client certificate.
    pub front_proxy: Option<FrontProxy>,
    /// How agents of nodes are called; without, logs and the like cannot be had.
    pub kubelet_client: Option<KubeletClient>,
    /// Where webhooks, extension API servers and proxied programs that have a cluster's address are reached.
    pub reach: Reach,
}

/// What newer servers can do. All on by default; tests switch them off one by one.
#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    /// `shardSelector` on lists and watches (KEP-5866).
    pub shard_selector: bool,
    /// `sendInitialEvents` on watches.
    pub watch_list: bool,
    /// Bookmarks in watches.
    pub bookmarks: bool,
    /// How many revisions reads with `resourceVersion=0` lag behind, as caches of real servers may.
    pub stale_reads: u64,
}

impl Default for Abilities {
    fn default() -> Abilities {
        Abilities { shard_selector: true, watch_list: true, bookmarks: true, stale_reads: 0 }
    }
}

/// A Kubernetes API server. Clones share it.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

/// What all requests share.
pub struct Inner {
    /// The objects.
    pub store: Store,
    /// Tells the time.
    pub clock: Clock,
    /// Draws uids and names.
    pub entropy: Entropy,
    /// Finds out who is calling.
    pub authenticator: Authenticator,
    /// Decides who may do what.
    pub authorizer: Authorizer,
    /// Signs ServiceAccount tokens.
    pub tokens: Arc<Tokens>,
    /// What the server can do.
    pub abilities: Abilities,
    /// Figures about requests.
    pub metrics: Metrics,
    /// The audit log, if one is kept.
    pub audit: Option<Arc<AuditLog>>,
    /// Admission policies, ready to be evaluated.
    pub policies: admission::policies::Compiled,
    /// Connections to webhooks.
    pub outbound: outbound::Pool,
    /// Applies that changed nothing.
    pub repeated: handlers::repeated::Memory,
    /// Revisions whose objects are known to be valid.
    pub proven: handlers::edited::Proven,
    /// One writer at a time in namespaces with quotas.
    pub quota_locks: QuotaLocks,
    /// The CustomResourceDefinitions in force.
    pub definitions: definitions::Definitions,
    /// Told when other custom kinds are served than before.
    pub kinds_changed: Arc<Notify>,
    /// Watch events in protobuf.
    pub frames: protobuf::frames::Frames,
    /// Who else serves group versions.
    pub aggregator: Aggregator,
    /// How agents of nodes are called.
    pub kubelet_client: Option<KubeletClient>,
    /// Where addresses of the cluster are reached.
    pub reach: Reach,
    registry: RwLock<Arc<Registry>>,
    documents: openapi::Documents,
    addresses: Mutex<Allocator>,
    in_flight: AtomicUsize,
    max_in_flight: usize,
}

/// Addresses and ports a write has taken; given back when it is dropped without `keep`.
pub struct Reservation<'a> {
    addresses: &'a Mutex<Allocator>,
    reserved: Option<Reserved>,
}

impl Reservation<'_> {
    /// The write succeeded.
    pub fn keep(mut self) {
        if let Some(reserved) = self.reserved.take() {
            self.addresses.lock().commit(reserved);
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if let Some(reserved) = self.reserved.take() {
            self.addresses.lock().undo(reserved);
        }
    }
}

impl Options {
    /// Defaults around a store and a key for tokens.
    pub fn new(store: Store, token_key: Vec<u8>) -> Options {
        Options {
            store,
            clock: Clock::system(),
            entropy: Entropy::system(),
            token_key,
            static_tokens: StaticTokens::default(),
            abilities: Abilities::default(),
            max_in_flight: 2_000,
            audit: None,
            front_proxy: None,
            kubelet_client: None,
            reach: Arc::new(|ip| ip),
        }
    }
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The key for tokens is none.
    #[error(transparent)]
    Signing(#[from] SigningError),
    /// The audit log cannot be written.
    #[error(transparent)]
    Audit(#[from] FileError),
}

impl Server {
    /// Starts a server on its store: objects that every cluster has are made if missing.
    pub async fn start(options: Options) -> Result<Server, StartError> {
        let tokens = Arc::new(Tokens::new(&options.token_key)?);
        let account_exists = account_exists(options.store.clone());
        let audit = match &options.audit {
            Some(wanted) => {
                let opened = AuditLog::open(wanted, options.clock.clone());
                let failed = |e| FileError::new("open the audit log", &wanted.path, e);
                Some(Arc::new(opened.map_err(failed)?))
            }
            None => None,
        };
        let inner = Inner {
            authenticator: Authenticator::new(tokens.clone(), options.static_tokens, account_exists),
            authorizer: Authorizer::new(options.store.clone()),
            store: options.store,
            clock: options.clock,
            entropy: options.entropy,
            tokens,
            abilities: options.abilities,
            metrics: Metrics::new(),
            audit,
            policies: admission::policies::Compiled::default(),
            outbound: outbound::Pool::default(),
            repeated: handlers::repeated::Memory::default(),
            proven: handlers::edited::Proven::default(),
            quota_locks: QuotaLocks::default(),
            definitions: definitions::Definitions::default(),
            kinds_changed: Arc::default(),
            frames: protobuf::frames::Frames::default(),
            aggregator: Aggregator::new(options.front_proxy),
            kubelet_client: options.kubelet_client,
            reach: options.reach,
            registry: RwLock::new(Arc::new(Registry::builtin())),
            documents: openapi::Documents::default(),
            addresses: Mutex::new(Allocator::default()),
            in_flight: AtomicUsize::new(0),
            max_in_flight: options.max_in_flight,
        };
        inner.occupy_addresses().await;
        let server = Server { inner: Arc::new(inner) };
        definitions::load(&server.inner).await;
        bootstrap::run(&server).await;
        aggregate::at_start(&server.inner).await;
        Ok(server)
    }

    /// Serves a group version by code of this process, from the next request on. It shows up in discovery and as an
    /// APIService, its requests are authenticated and authorized like all others. An APIService that names a Service
    /// for the same group version takes precedence.
    pub async fn mount_group(
        &self,
        group: &str,
        version: &str,
        handler: GroupHandler,
    ) -> Result<(), MountError> {
        aggregate::mount(&self.inner, group, version, handler).await
    }

    /// Tells the cluster where this server is reached: the Endpoints and the EndpointSlice of the Service `kubernetes`
    /// say so from now on, and are put right as long as the server is there.
    pub async fn advertise(&self, address: SocketAddr) {
        own_service::put_right(self, address, true).await;
        let server = Arc::downgrade(&self.inner);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(own_service::INTERVAL).await;
                let Some(inner) = server.upgrade() else { return };
                own_service::put_right(&Server { inner }, address, false).await;
            }
        });
    }

    /// How extension API servers recognise this server.
    pub(crate) fn front_proxy(&self) -> Option<&FrontProxy> {
        self.inner.aggregator.front_proxy()
    }

    /// The store behind the server.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Answers one request.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let started = Instant::now();
        let (parts, body) = request.into_parts();
        let warnings = Mutex::new(Vec::new());
        let (trail, received) = (Mutex::new(Trail::default()), self.inner.clock.now());
        let label = Mutex::new(Label::default());
        let reply = self.answer(&parts, body, &warnings, &trail, &label).await;
        let id = self.inner.entropy.uid();
        let outcome = reply.as_ref().map(Reply::status).map_err(Clone::clone);
        let mut reply = reply.unwrap_or_else(Reply::from);
        let mut pending = None;
        if let Some(log) = &self.inner.audit {
            let is_watch = reply.is_watch();
            let end = audit::End { outcome: &outcome, is_watch, answer: &mut || reply.document() };
            pending = audit::finish(log, &parts, &id, received, trail.into_inner(), end);
        }
        let mut response = reply.finish(&parts.headers, &warnings.into_inner());
        if let Body::Watch(watch) = response.body_mut() {
            watch.log_end(pending);
        }
        if let Ok(id) = http::HeaderValue::from_str(&id) {
            response.headers_mut().insert("audit-id", id);
        }
        self.inner.metrics.request_done(label.into_inner(), response.status(), started.elapsed());
        response
    }

    async fn answer<B>(
        &self,
        parts: &Parts,
        body: B,
        warnings: &Mutex<Vec<String>>,
        trail: &Mutex<Trail>,
        label: &Mutex<Label>,
    ) -> Outcome<Reply>
    where
        B: http_body::Body + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let inner = &self.inner;
        let query = Query::parse(parts.uri.query());
        let (user, target, verb) = match inner.authorize(parts, &query, trail, label)? {
            Authorized::Resource(user, target, verb) => (user, target, verb),
            Authorized::Other(route) => return inner.other(route, parts, &query),
            Authorized::Delegated(user, delegate, is_long) => {
                let body = read_body(parts, body).await?;
                let _slot = self.admit(if is_long { "watch" } else { "" })?;
                return aggregate::forward(inner, &delegate, &user, parts, body, is_long).await;
            }
        };
        let protobuf = protobuf::has_form(&target.resource.api_version, &target.resource.kind);
        let accepted = negotiate::accept(&parts.headers, protobuf)?;
        // Nobody who may not do this has anything read from them.
        let body = read_body(parts, body).await?;
        // A client that takes its time to send takes no place from others meanwhile.
        let _slot = self.admit(verb)?;
        if inner.audit.is_some() {
            trail.lock().carries(&parts.headers, &body);
        }
        let headers = &parts.headers;
        handlers::handle(&Call {
            server: inner,
            target,
            verb,
            query,
            headers,
            parts: Some(parts),
            body,
            accepted,
            user,
            warnings,
            trail,
        })
        .await
    }

    fn admit(&self, verb: &str) -> Outcome<Slot> {
        let inner = &self.inner;
        let slot = Slot(inner.clone());
        if inner.in_flight.fetch_add(1, Ordering::Relaxed) >= inner.max_in_flight && verb != "watch" {
            let text = "Too many requests, please try again later.";
            let mut failure = Failure::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", text);
            failure.retry_after = Some(1);
            return Err(failure);
        }
        Ok(slot)
    }
}

/// A request that may go on.
enum Authorized {
    Resource(UserInfo, Target, &'static str),
    /// Others answer it; true if it may stay open.
    Delegated(UserInfo, Arc<Delegate>, bool),
    Other(Route),
}

/// A request under way.
struct Slot(Arc<Inner>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn read_body<B>(parts: &Parts, body: B) -> Outcome<Bytes>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(Bytes::new());
    }
    if body.size_hint().lower() > BODY_LIMIT as u64 {
        return Err(Failure::too_large(BODY_LIMIT));
    }
    let collected = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, BODY_LIMIT).collect()).await;
    match collected {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Failure::too_large(BODY_LIMIT)),
        Ok(Err(error)) => Err(Failure::bad_request(format!("reading the body: {error}"))),
        Err(_) => {
            Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "Timeout", "the body took too long to arrive"))
        }
    }
}

impl Inner {
    /// The resources served now.
    pub fn registry(&self) -> Arc<Registry> {
        self.registry.read().clone()
    }

    /// Serves these custom kinds beside the built-in ones, from the next request on.
    pub fn serve_custom<'a>(&self, resources: impl Iterator<Item = &'a Arc<Resource>>) {
        let registry = self.registry().with_custom(resources);
        *self.registry.write() = Arc::new(registry);
    }

    /// An object was created or changed: some kinds change what the server does.
    pub async fn written(self: &Arc<Inner>, resource: &Resource, object: &Object) {
        match &*resource.table {
            definitions::TABLE => definitions::changed(self, &object.key).await,
            aggregate::TABLE => aggregate::changed(self, &object.key).await,
            _ => {}
        }
    }

    /// An object was deleted.
    pub async fn removed(self: &Arc<Inner>, resource: &Resource, object: &Object) {
        self.written(resource, object).await;
        if resource.custom.is_some() {
            definitions::object_removed(self, resource).await;
        }
    }

    /// The older revision that reads with `resourceVersion=0` show, if they lag.
    pub fn stale_revision(&self) -> Option<u64> {
        let lag = self.abilities.stale_reads;
        (lag > 0).then(|| self.store.revision().saturating_sub(lag).max(self.store.compacted()))
    }

    /// Finds out who wants what, and whether they may.
    fn authorize(
        &self,
        parts: &Parts,
        query: &Query,
        trail: &Mutex<Trail>,
        label: &Mutex<Label>,
    ) -> Outcome<Authorized> {
        let user = self.authenticate(parts, trail)?;
        let path = parts.uri.path();
        let delegates = self.aggregator.delegates();
        if !delegates.is_empty()
            && let Some((delegate, info)) = aggregate::route(&delegates, &parts.method, path, query)
        {
            if self.audit.is_some() {
                trail.lock().delegates(&delegate, &info);
            }
            let attributes = info.attributes(&delegate.group, &parts.method, path);
            self.allow(&user, &attributes, trail)?;
            return Ok(Authorized::Delegated(user, delegate, info.is_long));
        }
        let target = match route(&self.registry(), path) {
            Route::Resource(target) => target,
            other => {
                let verb = parts.method.as_str().to_ascii_lowercase();
                let attributes = Attributes { verb, path: path.to_owned(), ..Attributes::default() };
                if !self.authorizer.allows(&user, &attributes) {
                    return Err(refusal(&user, &attributes));
                }
                return Ok(Authorized::Other(other));
            }
        };
        let verb = verb(&parts.method, &target, query)?;
        if self.audit.is_some() {
            trail.lock().about(&target, verb);
        }
        *label.lock() = Label::new(&target, verb);
        let attributes = Attributes {
            verb: verb.to_owned(),
            group: target.resource.group.to_string(),
            resource: target.resource.plural.to_string(),
            subresource: target.subresource.clone(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            path: String::new(),
        };
        self.allow(&user, &attributes, trail)?;
        Ok(Authorized::Resource(user, target, verb))
    }

    fn allow(&self, user: &UserInfo, attributes: &Attributes, trail: &Mutex<Trail>) -> Outcome<()> {
        let allowed = self.authorizer.allows(user, attributes);
        if self.audit.is_some() {
            trail.lock().note("authorization.k8s.io/decision", if allowed { "allow" } else { "forbid" });
        }
        if allowed { Ok(()) } else { Err(refusal(user, attributes)) }
    }

    fn authenticate(&self, parts: &Parts, trail: &Mutex<Trail>) -> Outcome<UserInfo> {
        // Set by callers in this process only: requests from sockets carry no extensions of this type.
        let caller = match parts.extensions.get::<UserInfo>() {
            Some(user) => user.clone(),
            None => {
                let peer = parts.extensions.get::<PeerCertificate>();
                let found = self.authenticator.authenticate(&parts.headers, peer, self.clock.now());
                found.map_err(|_| Failure::unauthorized())?
            }
        };
        let impersonation =
            impersonation(&parts.headers).map_err(|error| Failure::internal(error.to_string()))?;
        let acting = impersonation.as_ref().map_or(&caller, |i| &i.user);
        if self.audit.is_some() {
            trail.lock().calls(&caller, acting);
        }
        let Some(Impersonation { user, needs }) = impersonation else { return Ok(caller) };
        for need in needs {
            let attributes = Attributes {
                verb: "impersonate".to_owned(),
                group: need.group.to_owned(),
                resource: need.resource.to_owned(),
                subresource: need.subresource,
                namespace: need.namespace,
                name: need.name,
                path: String::new(),
            };
            if !self.authorizer.allows(&caller, &attributes) {
                return Err(refusal(&caller, &attributes));
            }
        }
        Ok(user)
    }

    fn other(&self, route: Route, parts: &Parts, query: &Query) -> Outcome<Reply> {
        let (registry, delegates) = (&self.registry(), &self.aggregator.delegates());
        if !matches!(parts.method, Method::GET | Method::HEAD) && !matches!(route, Route::Nothing) {
            return Err(Failure::method_not_allowed());
        }
        match route {
            Route::Discovery(document) => discovery::answer(registry, delegates, &document, &parts.headers),
            Route::OpenApi(path) => {
                let (hash, now) = (query.get("hash"), self.clock.now());
                openapi::answer(&self.documents, registry, delegates, &path, &parts.headers, hash, now)
            }
            Route::Health(path) => Ok(health::answer(self, &path, query.get("verbose").is_some())),
            Route::Version => Ok(Reply::json(200, &health::version())),
            Route::Metrics => {
                let audit = self.audit.as_ref().map(|log| log.figures());
                Ok(self.metrics.answer(&self.store.stats(), audit))
            }
            Route::OpenIdConfiguration => {
                // HTTP/2 has the host in the request line.
                let header = parts.headers.get("host").and_then(|h| h.to_str().ok());
                let host = parts.uri.authority().map(http::uri::Authority::as_str).or(header);
                let host = host.unwrap_or("kubernetes.default.svc");
                let document = crate::access::tokens::openid_configuration(&format!("https://{host}"));
                Ok(Reply::json(200, &document))
            }
            Route::Jwks => Ok(Reply::json(200, &self.tokens.jwks())),
            Route::NoSuchResource => Err(Failure::no_such_resource()),
            Route::Resource(_) | Route::Nothing => Ok(Reply::text(404, "404 page not found\n")),
        }
    }

    /// Gives a Service its addresses and ports; other kinds need none.
    pub fn allocate(
        &self,
        resource: &Resource,
        object: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Outcome<Reservation<'_>> {
        let mut reserved = None;
        if &*resource.table == "services" {
            let mut addresses = self.addresses.lock();
            let taken = addresses.allocate(object, old, &self.entropy).map_err(|errors| {
                Failure::invalid(&resource.group, &resource.kind, meta::name(object), &errors)
            })?;
            if dry_run {
                addresses.undo(taken);
            } else {
                reserved = Some(taken);
            }
        }
        Ok(Reservation { addresses: &self.addresses, reserved })
    }

    /// Gives back what a deleted Service had.
    pub fn release(&self, resource: &Resource, object: &Value) {
        if &*resource.table == "services" {
            self.addresses.lock().release(object);
        }
    }

    async fn occupy_addresses(&self) {
        for object in self.store.list("services", Range::All, None, 0).await.objects {
            let registry = self.registry();
            if let Some(services) = registry.find("", "v1", "services")
                && let Ok(service) = handlers::served(services, &object)
            {
                self.addresses.lock().occupy(&service);
            }
        }
    }
}

/// Whether the account of a token, and the object the token is bound to, still exist under the same uid.
fn account_exists(store: Store) -> AccountExists {
    let uid_of = move |table: &str, key: &str| -> Option<String> {
        // Reads of committed state never wait.
        let object = store.get(table, key).now_or_never().flatten()?;
        Some(Index::new(&object.meta).uid().to_owned())
    };
    Arc::new(move |account: &Account| {
        let Account { namespace, name, uid, bound } = account;
        let same = |table: &str, key: &str, ObjectRef { uid, .. }: &ObjectRef| {
            uid_of(table, key).as_deref() == Some(uid.as_str())
        };
        let bound_exists = match bound {
            None => true,
            Some(BoundObject::Pod(pod, _)) => same("pods", &format!("{namespace}/{}", pod.name), pod),
            Some(BoundObject::Secret(secret)) => {
                same("secrets", &format!("{namespace}/{}", secret.name), secret)
            }
            Some(BoundObject::Node(node)) => same("nodes", &node.name, node),
        };
        bound_exists && uid_of("serviceaccounts", &format!("{namespace}/{name}")).as_ref() == Some(uid)
    })
}

impl<B> tower_service::Service<Request<B>> for Server
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { Ok(server.handle(request).await) })
    }
}
