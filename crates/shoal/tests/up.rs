//! `shoal up` as users meet it: a process.

#[cfg(test)]
mod process;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use process::{Cluster, SHOAL, Signal, connect, fails, fails_in_shell, get, post};
use serde_json::json;

#[cfg(test)]
fn arguments<'a>(data: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["up", "--port", "0", "--data-dir", data.to_str().unwrap()];
    arguments.extend(more);
    arguments
}

#[test]
fn a_cluster_tells_when_it_is_ready_and_stops_cleanly() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut cluster = Cluster::start(&arguments(&data, &[]));
    let words: Vec<&str> = cluster.ready.split(' ').collect();
    let [ready, url, kubeconfig, file, took, ms] = words[..] else { panic!("{}", cluster.ready) };
    assert_eq!((ready, kubeconfig, ms), ("ready", "kubeconfig", "ms)"));
    assert!(url.starts_with("https://127.0.0.1:"));
    assert_eq!(Path::new(file), data.join("kubeconfig"));
    assert!(took.strip_prefix('(').unwrap().parse::<u32>().is_ok());
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let answer = get(Path::new(file), "/readyz").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("\r\n\r\nok"), "{answer}");
    assert_eq!(cluster.stop(), Some(0));
}

#[test]
fn the_next_start_keeps_the_keys() {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    let mut first = Cluster::start(&arguments(dir.path(), &[]));
    let old = dir.path().join("old");
    fs::copy(&kubeconfig, &old).unwrap();
    first.stop();
    let port = first.port().to_string();
    let _second = Cluster::start(&["up", "--port", &port, "--data-dir", dir.path().to_str().unwrap()]);
    assert_eq!(fs::read(&old).unwrap(), fs::read(&kubeconfig).unwrap());
    assert!(get(&old, "/readyz").unwrap().contains("200 OK"));
}

#[test]
fn what_was_acknowledged_survives_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = Cluster::start(&arguments(dir.path(), &[]));
    let kubeconfig = dir.path().join("kubeconfig");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}});
    let answer = post(&kubeconfig, "/api/v1/namespaces/default/configmaps", &object).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    first.signal(Signal::KILL);
    first.wait();
    let _second = Cluster::start(&arguments(dir.path(), &[]));
    let answer = get(&kubeconfig, "/api/v1/namespaces/default/configmaps/kept").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn an_open_watch_does_not_hold_up_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(&arguments(dir.path(), &[]));
    let mut watch = connect(Path::new(&cluster.kubeconfig())).unwrap();
    write!(watch, "GET /api/v1/namespaces?watch=true HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut seen = vec![0; 4096];
    assert!(watch.read(&mut seen).unwrap() > 0, "the watch has begun");
    assert_eq!(cluster.stop(), Some(0));
    let mut rest = Vec::new();
    watch.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(b"0\r\n\r\n"), "ended in good order");
}

#[test]
fn the_second_signal_ends_it_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(&arguments(dir.path(), &[]));
    let mut stuck = connect(Path::new(&cluster.kubeconfig())).unwrap();
    let path = "/api/v1/namespaces/default/configmaps";
    let about = "host: localhost\r\ncontent-length: 9\r\nexpect: 100-continue";
    write!(stuck, "POST {path} HTTP/1.1\r\n{about}\r\n\r\n").unwrap();
    assert!(stuck.read(&mut [0; 64]).unwrap() > 0, "the body is waited for");
    cluster.signal(Signal::INT);
    while TcpStream::connect(("127.0.0.1", cluster.port())).is_ok() {
        std::thread::yield_now();
    }
    cluster.signal(Signal::INT);
    assert_eq!(cluster.wait(), Some(1));
}

#[test]
fn an_ephemeral_cluster_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(SHOAL);
    command.args(["up", "--ephemeral", "--port", "0"]).env("TMPDIR", dir.path());
    let mut cluster = Cluster::spawn(command);
    assert!(Path::new(&cluster.kubeconfig()).starts_with(dir.path()));
    assert!(get(Path::new(&cluster.kubeconfig()), "/readyz").unwrap().contains("200 OK"));
    assert_eq!(cluster.stop(), Some(0));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn the_data_directory_comes_from_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    for (variable, place) in [("SHOAL_HOME", ""), ("XDG_DATA_HOME", "shoal"), ("HOME", ".local/share/shoal")]
    {
        let mut command = Command::new(SHOAL);
        command.args(["up", "--port", "0"]).env_clear().env(variable, dir.path());
        let cluster = Cluster::spawn(command);
        assert_eq!(Path::new(&cluster.kubeconfig()), dir.path().join(place).join("kubeconfig"));
    }
    let mut command = Command::new(SHOAL);
    command.arg("up").env_clear();
    assert!(process::failure(command).contains("choose a place with --data-dir DIR"));
}

#[test]
fn a_port_in_use_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let error = fails(&["up", "--port", &port, "--data-dir", dir.path().to_str().unwrap()]);
    assert!(
        error.contains(&format!("127.0.0.1:{port} is in use by another process; choose another")),
        "{error}"
    );
    let error = fails(&arguments(dir.path(), &["--address", "192.0.2.1"]));
    assert!(error.contains("192.0.2.1 is not an address of this machine; choose one"), "{error}");
}

#[test]
fn a_directory_in_use_is_told_with_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(&arguments(dir.path(), &[]));
    let error = fails(&arguments(dir.path(), &[]));
    assert!(error.contains(&format!("is in use by process {}; stop it", cluster.id())), "{error}");
    assert!(get(Path::new(&cluster.kubeconfig()), "/readyz").is_ok(), "the first one is not disturbed");
}

#[test]
fn a_place_that_cannot_be_written_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    for data in [file.clone(), file.join("below")] {
        let error = fails(&arguments(&data, &[]));
        assert!(error.contains("a file stands where a directory is needed"), "{error}");
    }
    let error = fails(&arguments(Path::new("/sys/shoal"), &[]));
    assert!(error.contains("cannot create /sys/shoal: ") && error.contains("; "), "{error}");
    let error = fails(&arguments(dir.path(), &["--kubeconfig", dir.path().to_str().unwrap()]));
    assert!(error.contains("a directory stands where a file is needed"), "{error}");
}

#[test]
fn a_full_disk_is_told() {
    let dir = tempfile::tempdir().unwrap();
    // No file may grow, as on a full disk; the signal that goes with it is ignored.
    let error =
        fails_in_shell("trap '' XFSZ; ulimit -f 0; export SHOAL_LOG=error", &arguments(dir.path(), &[]));
    assert!(error.contains("File too large"), "{error}");
}

#[test]
fn a_spoilt_key_is_told_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    Cluster::start(&arguments(dir.path(), &[])).stop();
    fs::write(dir.path().join("pki/apiserver.key"), "rubbish").unwrap();
    let error = fails(&arguments(dir.path(), &[]));
    assert!(
        error.contains("pki/apiserver.key is not a private key") && error.contains("; delete"),
        "{error}"
    );
}

#[test]
fn a_foreign_kubeconfig_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config");
    fs::write(&file, "kind: Config\ncontexts: [{name: prod}]\n").unwrap();
    let error = fails(&arguments(dir.path(), &["--kubeconfig", file.to_str().unwrap()]));
    assert!(error.contains("has entries of other clusters (prod); choose another file"), "{error}");
    assert!(fs::read_to_string(&file).unwrap().contains("prod"));
}

#[test]
fn parts_are_chosen_by_name_and_misspelt_ones_refused() {
    let dir = tempfile::tempdir().unwrap();
    let all = "controllers,scheduler,node,metrics,application,etcd,kubeocean,console";
    let mut cluster = Cluster::start(&arguments(dir.path(), &["--only", all, "--without", all]));
    assert_eq!(cluster.stop(), Some(0));
    for flag in ["--only", "--without"] {
        let output =
            Command::new(SHOAL).args(arguments(dir.path(), &[flag, "node,schedular"])).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains("a similar value exists: 'scheduler'"), "{text}");
    }
}

#[test]
fn running_out_of_file_descriptors_is_survived() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::spawn(process::in_shell("ulimit -n 40", &arguments(dir.path(), &[])));
    let hoard: Vec<TcpStream> =
        (0..60).map(|_| TcpStream::connect(("127.0.0.1", cluster.port())).unwrap()).collect();
    drop(hoard);
    assert!(get(Path::new(&cluster.kubeconfig()), "/readyz").unwrap().contains("200 OK"));
}
