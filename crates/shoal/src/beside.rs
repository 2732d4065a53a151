//! What runs beside the API server in `shoal up`.

use std::path::Path;
use std::time::Duration;

use shoal_apiserver::Server;
use shoal_controllers::all::{self, Settings};
use shoal_controllers::{autoscaler, scheduler};
use shoal_node::{metrics, simulated};
use shoal_objects::{Clock, Entropy};
use shoal_runtime::Manager;
use shoal_runtime::config::{Config, Informer};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::in_process;
use crate::parts::Part;

/// Work that is not done by then is dropped: all of it can be taken up again.
const STOP_WITHIN: Duration = Duration::from_secs(2);
/// Between a failure and the next try.
const PAUSE: Duration = Duration::from_secs(1);

/// Objects of a kind that are kept decoded: as many as are on their way through all parts at one time. Where all pods of
/// a workload are looked at, they are read in brief.
const DECODED: usize = 20_000;

/// The parts that run, each on a task of its own.
pub struct Beside {
    stop: watch::Sender<bool>,
    running: Vec<JoinHandle<()>>,
}

impl Beside {
    /// Starts the parts that are wanted. Nothing waits for them: they come up while the server serves.
    pub fn start(
        server: &Server,
        wanted: &dyn Fn(Part) -> bool,
        clock: Clock,
        root_ca: String,
        folder: &Path,
        nodes: Option<simulated::Options>,
        (metrics, autoscaler): (Option<(metrics::Handle, metrics::Options)>, autoscaler::Options),
    ) -> Beside {
        let (stop, stopped) = watch::channel(false);
        let mut running = Vec::new();
        let (controllers, scheduler) = (wanted(Part::Controllers), wanted(Part::Scheduler));
        let application = wanted(Part::Application);
        if controllers || scheduler || application || nodes.is_some() || metrics.is_some() {
            let client = in_process::client(server, "kube-controller-manager");
            // Only nodes of this machine can use a folder of it.
            let volumes = wanted(Part::Node).then(|| folder.join("volumes"));
            let entropy = Entropy::system();
            let settings = Settings { clock, entropy, root_ca: Some(root_ca), volumes, autoscaler };
            // One manager for all: they share their caches.
            let register = move |manager: &mut Manager| {
                if controllers {
                    all::register(manager, &settings, |_| true);
                }
                if scheduler {
                    manager.add(scheduler::Scheduler::default());
                }
                if application {
                    // Who runs an operator on this cluster means that one.
                    let settings = shoal_application::Settings { stands_aside: true, ..Default::default() };
                    shoal_application::register(manager, settings);
                }
                if let Some(nodes) = &nodes {
                    simulated::add(manager, nodes.clone());
                }
                if let Some((handle, options)) = &metrics {
                    metrics::add(manager, handle, options.clone());
                }
            };
            running.push(tokio::spawn(keep_running("controllers", client, application, register, stopped)));
        }
        Beside { stop, running }
    }

    /// Asks all to end and waits until they have.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        for part in self.running {
            let _ = part.await;
        }
    }
}

/// Everything shares one process and its caches: what one has decoded, the others need, too.
fn config() -> Config {
    let informer = Informer { cache_size: Some(DECODED), ..Informer::default() };
    Config { informer, ..Config::default() }
}

/// Runs a manager until it is asked to stop. One that fails is made anew. `kinds`: its custom kinds are installed first.
async fn keep_running(
    name: &'static str,
    client: kube::Client,
    kinds: bool,
    register: impl Fn(&mut Manager) + Send + 'static,
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        if kinds && let Err(error) = shoal_application::api::install(&client).await {
            tracing::error!(part = name, %error, "this part cannot be started yet");
            if tokio::time::timeout(PAUSE, asked(&mut stopped)).await.is_ok() {
                return;
            }
            continue;
        }
        let builder = Manager::builder(name).client(client.clone()).config(config());
        let error = match builder.embedded().stop_deadline(STOP_WITHIN).build().await {
            Err(error) => error,
            Ok(mut manager) => {
                register(&mut manager);
                let stopper = manager.stopper();
                let mut run = Box::pin(manager.run());
                let ended = tokio::select! {
                    ended = &mut run => ended,
                    () = asked(&mut stopped) => {
                        stopper.stop();
                        run.await
                    }
                };
                match ended {
                    Ok(()) => return,
                    Err(error) => error,
                }
            }
        };
        if *stopped.borrow() {
            tracing::info!(part = name, %error, "stopped");
            return;
        }
        tracing::error!(part = name, %error, "this part failed and is started again");
        if tokio::time::timeout(PAUSE, asked(&mut stopped)).await.is_ok() {
            return;
        }
    }
}

/// Waits until the process is to end.
async fn asked(stopped: &mut watch::Receiver<bool>) {
    // An error means that nobody is left who could ask: that is an end, too.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
