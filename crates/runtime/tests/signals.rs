//! A manager as a process of its own: a socket, signals. One test, because signals belong to the whole process.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use shoal_runtime::config::Config;
use shoal_runtime::manager::{Component, Error, Manager, Phase};
use shoal_testkit::{Cluster, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

async fn get(port: u16, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// A running manager whose component takes `drain` to stop.
async fn running(drain: Duration) -> ([u16; 2], tokio::task::JoinHandle<Result<(), Error>>) {
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ports = [free(), free()].map(|listener| listener.local_addr().unwrap().port());
    let mut config = Config::default();
    [config.metrics.port, config.metrics.probe_port] = ports;
    let cluster = Cluster::start().await;
    let mut manager = Manager::builder("test")
        .client(cluster.client())
        .config(config)
        .leader_election()
        .build()
        .await
        .unwrap();
    let work = Component::new("work", move |stop| async move {
        stop.requested().await;
        tokio::time::sleep(drain).await;
        Ok(())
    });
    manager.add(work.elected());
    manager.informers().of::<k8s_openapi::api::core::v1::Namespace>();
    let mut phases = manager.phase();
    let run = tokio::spawn(manager.run());
    phases.wait_for(|phase| *phase == Phase::Running).await.unwrap();
    (ports, run)
}

#[tokio::test]
async fn a_process_serves_probes_stops_on_a_signal_and_aborts_on_the_second() {
    let ([port, probes], run) = running(Duration::ZERO).await;
    assert!(get(probes, "/readyz").await.ends_with("\r\n\r\nok"));
    assert!(get(port, "/healthz").await.starts_with("HTTP/1.1 200"));
    assert!(get(port, "/readyz").await.ends_with("\r\n\r\nok"));
    assert!(get(port, "/readyz?verbose").await.contains("[+]informers ok\n"));
    let metrics = get(port, "/metrics").await;
    assert!(metrics.contains("config_generation 1"), "{metrics}");
    assert!(metrics.contains("leader_election_master_status{name=\"test\"} 1"), "{metrics}");
    let cache =
        "controller_informer_synced{path=\"/api/v1/namespaces\",selector=\"\",metadata_only=\"false\"} 1";
    assert!(metrics.contains(cache), "{metrics}");
    let inspection = get(port, "/debug/inspect").await;
    for part in ["\"manager\"", "\"config\"", "\"caches\"", "\"leases\"", "\"phase\": \"Running\""] {
        assert!(inspection.contains(part), "{part} in {inspection}");
    }
    kill_process(getpid(), Signal::TERM).unwrap();
    run.await.unwrap().unwrap();

    let ([port, _], run) = running(Duration::from_secs(3600)).await;
    kill_process(getpid(), Signal::INT).unwrap();
    eventually("stopping", || async {
        get(port, "/healthz").await.starts_with("HTTP/1.1 503").then_some(())
    })
    .await;
    assert!(!run.is_finished());
    kill_process(getpid(), Signal::TERM).unwrap();
    assert!(matches!(run.await.unwrap(), Err(Error::Aborted)));

    // A port in use is told before anything starts.
    let taken = std::net::TcpListener::bind("[::]:0").unwrap();
    let mut config = Config::default();
    config.metrics.port = taken.local_addr().unwrap().port();
    let cluster = Cluster::start().await;
    let error = Manager::builder("test")
        .client(cluster.client())
        .config(config)
        .build()
        .await
        .map(|_| ())
        .unwrap_err();
    assert!(error.to_string().contains("set metrics.port to a free one"), "{error}");
}
