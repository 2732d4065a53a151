//! The tour of an ordinary user: a program that knows nothing of Kubernetes, three times, behind a Service.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::kubectl::World;
use crate::process::SHOAL;

/// Somebody without any rights, whom no system knows.
const USER: u32 = 54_321;
/// Where programs are that everybody may use.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Starts a program as an ordinary user: ourselves, unless we are root.
fn ordinary(program: &str) -> (Command, u32) {
    let uid = rustix::process::geteuid().as_raw();
    if uid != 0 {
        return (Command::new(program), uid);
    }
    let mut command = Command::new("setpriv");
    let user = USER.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--no-new-privs", program]);
    (command, USER)
}

/// Whether an ordinary user may have namespaces here, and why not.
fn namespaces() -> Result<(), String> {
    let output = ordinary("unshare").0.args(["-Ur", "true"]).stdin(Stdio::null()).output();
    let output = output.map_err(|e| format!("unshare cannot be started: {e}"))?;
    let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(error) }
}

#[test]
fn an_ordinary_user_serves_a_program_three_times_behind_a_name() {
    let home = tempfile::tempdir().unwrap();
    let (binary, tmp) = (home.path().join("shoal"), home.path().join("tmp"));
    std::fs::create_dir(&tmp).unwrap();
    // The build's own folder may be closed to others.
    std::fs::copy(SHOAL, &binary).unwrap();
    std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (mut command, uid) = ordinary(binary.to_str().unwrap());
    for path in [home.path(), &tmp] {
        if std::fs::metadata(path).unwrap().uid() != uid {
            chown(path, Some(uid), Some(uid)).unwrap();
        }
    }
    command.args(["up", "--ephemeral", "--port", "0"]);
    command.env_clear().env("PATH", PATH).env("HOME", home.path()).env("TMPDIR", &tmp);
    let world = World::spawn(command, home);

    let selector = json!({"app": "web"});
    let container = json!({
        "name": "web", "image": "python:3", "command": ["python3", "-m", "http.server", "8080"],
        "workingDir": "/etc/app",
        "ports": [{"containerPort": 8080}],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
        "volumeMounts": [{"name": "app", "mountPath": "/etc/app"}],
    });
    let template = json!({"metadata": {"labels": selector}, "spec": {
        "terminationGracePeriodSeconds": 1, "containers": [container],
        "volumes": [{"name": "app", "configMap": {"name": "app"}}],
    }});
    world.apply(&[
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app"}, "data": {"greeting": "hello from the map"}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
            "replicas": 3, "selector": {"matchLabels": selector}, "template": template,
        }}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {
            "selector": selector, "ports": [{"port": 80, "targetPort": 8080}],
        }}),
    ]);
    if let Err(why) = namespaces() {
        // Without namespaces there are no volumes; the pods must say so, and what to do.
        eprintln!("user namespaces are forbidden here ({why}): the tour ends at what pods say about it");
        let pods = "/api/v1/namespaces/default/events?fieldSelector=reason%3DFailed";
        world.until_get(pods, "told", |list| list.to_string().contains("kernel.unprivileged_userns_clone=1"));
        return;
    }
    world.ok(&["rollout", "status", "deployment/web", "--timeout=120s"]);
    let visit = "import urllib.request\nfor host in ['web', 'web.default.svc.cluster.local'] * 8:\n print(urllib.request.urlopen(f'http://{host}/greeting').read().decode())";
    world.ok(&["run", "visitor", "--image=python:3", "--restart=Never", "--", "python3", "-c", visit]);
    world.until_phase("visitor", "Succeeded");
    let log = world.ok(&["logs", "visitor"]);
    assert_eq!(log.lines().filter(|line| *line == "hello from the map").count(), 16, "{log}");
    // All three had a part in it, and they are whose who started the cluster.
    let logs = world.ok(&["logs", "-l", "app=web", "--prefix", "--tail=-1"]);
    let mut served: Vec<&str> =
        logs.lines().filter(|l| l.contains("GET /greeting")).filter_map(|l| l.split(' ').next()).collect();
    served.sort_unstable();
    served.dedup();
    assert!(served.len() > 1, "{logs}");
    let map = world.ok(&["exec", "deployment/web", "--", "cat", "/proc/self/uid_map"]);
    assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["0", &uid.to_string(), "1"]);
}

#[test]
fn a_data_directory_may_be_named_from_where_one_is() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(SHOAL);
    command.args(["up", "--port", "0", "--data-dir", "./cluster"]).current_dir(home.path());
    let world = World::spawn(command, home);
    let web = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tour/web.yaml");
    world.ok(&["apply", "-f", web.to_str().unwrap()]);
    world.ok(&["rollout", "status", "deployment/web", "--timeout=60s"]);
}
