//! Whether extension API servers answer: the condition `Available` of their APIServices.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use shoal_store::{Event, Store, Watcher};

use super::remote::Remote;
use super::{Back, Delegate, discovered, registration};
use crate::backend::{Backend, Unresolved, resolve};
use crate::server::Inner;

/// What is well is looked at this often, and what fails not more seldom.
const INTERVAL: Duration = Duration::from_secs(30);
/// The first of the growing delays after a failure.
const SHORTEST: Duration = Duration::from_millis(50);
/// Changes of these may change the answer.
const TABLES: [&str; 3] = ["services", "discovery.k8s.io/endpointslices", "endpoints"];

/// Status, reason and message of the condition.
type Verdict = (&'static str, &'static str, String);

/// Checks a delegate now and from now on, for as long as it is one and the server is there.
pub fn watch(server: &Arc<Inner>, delegate: Arc<Delegate>) {
    tokio::spawn(run(Arc::downgrade(server), server.store.clone(), delegate));
}

async fn run(server: Weak<Inner>, store: Store, delegate: Arc<Delegate>) {
    let Back::Remote(remote) = &delegate.back else { return };
    let mut delay = SHORTEST;
    loop {
        // Watch first, look then: a change in between leads to a second look.
        let revision = store.revision();
        let mut watchers: Vec<Watcher> =
            TABLES.iter().filter_map(|table| store.watch(table, revision).ok()).collect();
        {
            let Some(server) = server.upgrade().filter(|server| server.aggregator.holds(&delegate)) else {
                return;
            };
            let (verdict, backend) = check(&server, &delegate, remote).await;
            let passed = verdict.0 == "True";
            match backend.filter(|_| passed) {
                Some(backend) => discovered::refresh(&delegate, remote, &backend).await,
                None => delegate.mark_stale(),
            }
            if !server.aggregator.holds(&delegate) {
                return;
            }
            remote.set_available(passed);
            registration::set_available(&server, &remote.name, |service| {
                (service["spec"] == remote.spec).then(|| verdict.clone())
            })
            .await;
            delay = if passed { INTERVAL } else { delay.saturating_mul(2).min(INTERVAL) };
        }
        let wait = async {
            tokio::select! {
                () = changed(&mut watchers, remote) => true,
                () = remote.recheck.notified() => true,
                () = tokio::time::sleep(delay) => false,
            }
        };
        if wait.await {
            delay = SHORTEST;
        }
    }
}

/// Resolves when something about the Service or its endpoints has changed.
async fn changed(watchers: &mut [Watcher], remote: &Remote) {
    let key = format!("{}/{}", remote.namespace, remote.service);
    // Slices have names of their own: all of the namespace count.
    let near = format!("{}/", remote.namespace);
    let is_about = |at: usize, event: &Event| match TABLES[at] {
        "services" | "endpoints" => *event.object.key == *key,
        _ => event.object.key.starts_with(&near),
    };
    poll_fn(|cx| {
        for (at, watcher) in watchers.iter_mut().enumerate() {
            while let Poll::Ready(next) = watcher.poll_next(cx) {
                // A watcher that was left behind has missed something.
                if next.map_or(true, |batch| batch.events.iter().any(|event| is_about(at, event))) {
                    return Poll::Ready(());
                }
            }
        }
        Poll::Pending
    })
    .await;
}

async fn check(server: &Inner, delegate: &Delegate, remote: &Remote) -> (Verdict, Option<Backend>) {
    let Remote { namespace, service, port, .. } = remote;
    let backend = match resolve(server, namespace, service, *port).await {
        Ok(backend) => backend,
        Err(why) => return (unresolved(remote, &why), None),
    };
    let path = delegate.root();
    let url = format!("https://{}{path}", shown(&backend));
    let answer = remote.get(&backend, &path, "application/json", false).await;
    let failed = match answer {
        Ok(document) if document.status.is_success() => None,
        Ok(document) => Some(format!("bad status from {url}: {}", document.status.as_u16())),
        Err(why) => Some(format!("Get \"{url}\": {why}")),
    };
    match failed {
        None => (("True", "Passed", "all checks passed".to_owned()), Some(backend)),
        Some(why) => {
            let message = format!("failing or missing response from {url}: {why}");
            (("False", "FailedDiscoveryCheck", message), None)
        }
    }
}

fn shown(backend: &Backend) -> String {
    match backend {
        Backend::Addresses(addresses) => addresses.first().map(SocketAddr::to_string).unwrap_or_default(),
        Backend::Host(host, port) => format!("{host}:{port}"),
    }
}

/// In the words of the real server.
fn unresolved(remote: &Remote, why: &Unresolved) -> Verdict {
    let Remote { namespace, service, port, .. } = remote;
    let subject = format!("service/{service} in {namespace:?}");
    match why {
        Unresolved::NoService => ("False", "ServiceNotFound", format!("{subject} is not present")),
        Unresolved::NoPort => {
            ("False", "ServicePortError", format!("{subject} is not listening on port {port}"))
        }
        Unresolved::NoEndpoints => {
            ("False", "EndpointsNotFound", format!("cannot find endpointslices for {subject}"))
        }
        Unresolved::NotReady(name) => {
            let message = format!("endpointslices for {subject} have no addresses with port name {name:?}");
            ("False", "MissingEndpoints", message)
        }
        Unresolved::Unreadable(why) => {
            ("Unknown", "ServiceAccessError", format!("{subject} cannot be checked due to: {why}"))
        }
    }
}
