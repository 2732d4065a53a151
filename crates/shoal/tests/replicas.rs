//! Controllers beside the server and in processes of their own.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

#[cfg(test)]
mod process;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use process::{ALONE, Cluster, SHOAL, Signal, get, post};
use rustix::process::{Pid, kill_process};
use serde_json::json;
use shoal_runtime::client::Places;
use shoal_runtime::config::Config;
use shoal_runtime::shard::ShardingOptions;
use shoal_runtime::{Action, Context, Controller, Manager};

const PATIENCE: Duration = Duration::from_secs(60);

fn until(what: &str, mut check: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !check() {
        assert!(Instant::now() < end, "still not: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Makes a namespace and waits for the account that a controller puts into it.
fn a_new_namespace_is_looked_after(kubeconfig: &Path, name: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let answer = post(kubeconfig, "/api/v1/namespaces", &namespace).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
    until("the account is there", || get(kubeconfig, &account).unwrap().starts_with("HTTP/1.1 200"));
}

#[test]
fn a_cluster_has_its_controllers_and_does_without_on_request() {
    let mut with = Cluster::start(&["up", "--ephemeral", "--port", "0"]);
    a_new_namespace_is_looked_after(Path::new(&with.kubeconfig()), "a");
    assert_eq!(with.stop(), Some(0));
    let without = Cluster::start(&["up", "--ephemeral", "--port", "0", "--without", "controllers"]);
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    // More requests than the other cluster needed.
    for _ in 0..50 {
        assert!(get(Path::new(&without.kubeconfig()), account).unwrap().starts_with("HTTP/1.1 404"));
    }
}

/// A `shoal run controllers` process; killed when dropped.
struct Replica {
    child: Child,
    port: u16,
}

impl Replica {
    fn start(kubeconfig: &Path, folder: &Path, number: usize) -> Replica {
        // Free a moment ago, and nobody else asks for one so often.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config: PathBuf = folder.join(format!("{number}.yaml"));
        let text = format!(
            "metrics: {{port: {port}}}\nlogging: {{level: warn, format: text}}\nstate: {{leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 300ms}}\n"
        );
        std::fs::write(&config, text).unwrap();
        let child = Command::new(SHOAL)
            .args(["run", "controllers", "--config"])
            .arg(&config)
            .env("KUBECONFIG", kubeconfig)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Replica { child, port }
    }

    fn ask(&self, path: &str) -> String {
        let mut answer = String::new();
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
            let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
            let _ = stream.write_all(request.as_bytes());
            let _ = stream.read_to_string(&mut answer);
        }
        answer
    }

    fn leads(&self) -> bool {
        let metrics = self.ask("/metrics");
        metrics.lines().any(|line| line.starts_with("leader_election_master_status") && line.ends_with(" 1"))
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn three_replicas_of_the_controllers_survive_the_death_of_any() {
    let cluster = Cluster::start(&[
        "up",
        "--ephemeral",
        "--port",
        "0",
        "--without",
        "controllers,scheduler,node,metrics,application",
    ]);
    let kubeconfig = PathBuf::from(cluster.kubeconfig());
    let folder = tempfile::tempdir().unwrap();
    let mut replicas: Vec<Replica> = (0..3).map(|n| Replica::start(&kubeconfig, folder.path(), n)).collect();
    for round in 0..3 {
        until("one leads", || replicas.iter().filter(|replica| replica.leads()).count() == 1);
        a_new_namespace_is_looked_after(&kubeconfig, &format!("before-{round}"));
        let leader = replicas.iter().position(Replica::leads);
        // The leader goes without a word, and once one that only waits.
        let victim = leader.map_or(0, |leader| if round == 1 { (leader + 1) % 3 } else { leader });
        drop(replicas.swap_remove(victim));
        a_new_namespace_is_looked_after(&kubeconfig, &format!("after-{round}"));
        replicas.push(Replica::start(&kubeconfig, folder.path(), 3 + round));
    }
    // One that is paused for longer than its lease lasts finds another in its place, and does nothing more.
    until("one leads", || replicas.iter().filter(|replica| replica.leads()).count() == 1);
    let leader = replicas.iter().position(Replica::leads).unwrap_or_default();
    let paused = replicas.swap_remove(leader);
    kill_process(Pid::from_child(&paused.child), Signal::STOP).unwrap();
    until("another leads", || replicas.iter().filter(|replica| replica.leads()).count() == 1);
    a_new_namespace_is_looked_after(&kubeconfig, "paused");
    kill_process(Pid::from_child(&paused.child), Signal::CONT).unwrap();
    until("the paused one knows", || !paused.leads());
    a_new_namespace_is_looked_after(&kubeconfig, "resumed");
    assert_eq!(replicas.iter().filter(|replica| replica.leads()).count(), 1);
    drop(paused);
    // A polite end gives the lease back and leaves with success.
    for mut replica in replicas {
        until("the replica has started", || replica.ask("/healthz").contains("200"));
        kill_process(Pid::from_child(&replica.child), Signal::TERM).unwrap();
        assert_eq!(replica.child.wait().unwrap().code(), Some(0));
    }
}

/// One thread for everything but coordination: who blocks it blocks the process.
#[tokio::test]
async fn a_process_that_is_busy_keeps_its_lease_and_one_that_hangs_loses_it() {
    let server = Cluster::start(&["up", "--ephemeral", "--port", "0", ALONE[0], ALONE[1]]);
    let places = Places { kubeconfig: Some(server.kubeconfig().into()), ..Places::default() };
    let config = "state: {leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 300ms, syncInterval: 3s}\n\
                  node: {healthCheckInterval: 1s, healthCheckTimeout: 300ms, nodeTimeout: 6s}";
    let manager = Manager::builder("busy").places(places).config(Config::parse(config, &|_| None).unwrap());
    let options = ShardingOptions::new().namespace("default").name("busy");
    let mut manager = manager.signals(false).listen(false).sharded(options).build().await.unwrap();
    manager.add(
        Controller::of::<ConfigMap>("maps").reconcile(|_: Context<ConfigMap>| async { Ok(Action::done()) }),
    );
    let (sharding, stopper) = (manager.sharding().unwrap().clone(), manager.stopper());
    let running = tokio::spawn(manager.run());
    while sharding.active().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let left = || sharding.inspect()["secondsToDeadline"].as_f64().unwrap();
    // Longer than a replica may work on without a renewal.
    std::thread::sleep(Duration::from_millis(2_600));
    assert!(left() > 0.0, "its Lease was renewed meanwhile");
    std::thread::sleep(Duration::from_millis(3_000));
    assert_eq!(left(), 0.0, "but not for ever");
    stopper.stop();
    running.await.unwrap().unwrap();
}
