//! The Application operator as its users meet it: the usage guide of its founding document, line by line, with the operator as pods; then
//! the story of `shoal demo application`.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use super::command::{Counts, story, verdict};
use super::tools::Tools;
use crate::server::{Mode, Server};
use crate::workspace::{Profile, Workspace};

/// How long anything may take to become true.
const PATIENCE: Duration = Duration::from_secs(180);

/// A line of the guide and what it must print in the end.
struct Use {
    line: &'static str,
    prints: &'static str,
    /// Whether it goes on by itself until somebody ends it.
    follows: bool,
}

const fn run(line: &'static str, prints: &'static str) -> Use {
    Use { line, prints, follows: false }
}

const fn follow(line: &'static str, prints: &'static str) -> Use {
    Use { line, prints, follows: true }
}

/// The guide's lines as they are printed there, in its order; those between them are what a reader would wait for.
const GUIDE: &[Use] = &[
    // The cluster's own operator has brought the kind; it stands aside as soon as there is another.
    run("kubectl get crd applications.apps.example.com", "applications.apps.example.com"),
    run("kubectl apply -f config/crd/bases/", "applications.apps.example.com configured"),
    run("kubectl apply -f config/samples/", "deployment.apps/operator-controller-manager created"),
    run(
        "kubectl rollout status deployment/operator-controller-manager -n operator-system",
        "successfully rolled out",
    ),
    run("kubectl get pods -n operator-system", "1/1     Running"),
    run("kubectl apply -f examples/application.yaml", "application.apps.example.com/my-app created"),
    run("kubectl wait --for=condition=Ready application/my-app --timeout=120s", "condition met"),
    run("kubectl get applications", "Running"),
    run("kubectl describe application my-app", "Running"),
    run("kubectl get events --field-selector involvedObject.name=my-app", "application/my-app"),
    // Services are found in the namespace one works in.
    run("kubectl config set-context --current --namespace=operator-system", "modified"),
    follow("kubectl port-forward svc/operator-metrics 9090:9090", "Forwarding from 127.0.0.1:9090"),
    run(
        "kubectl port-forward svc/operator-metrics 9090:9090 & sleep 2; curl -s http://localhost:9090/metrics; kill $!",
        "controller_workqueue_depth",
    ),
    run(
        "kubectl port-forward svc/operator-metrics 9090:9090 & sleep 2; curl http://localhost:9090/metrics | grep application; kill $!",
        "application",
    ),
    run("kubectl config set-context --current --namespace=default", "modified"),
    run("kubectl get applications -o wide", "echo:1.0"),
    run("kubectl get all -l app=my-app", "horizontalpodautoscaler.autoscaling/my-app"),
    follow("kubectl logs -f deployment/operator-controller-manager -n operator-system", "application"),
    follow("kubectl logs -f deployment/my-app", "listening on"),
];

/// What the guide leaves to the reader.
const BEYOND: &[Use] = &[
    run(
        "shoal manifests application | kubectl apply -f -",
        "deployment.apps/operator-controller-manager unchanged",
    ),
    run("kubectl get events -n operator-system", "BuiltInStandsAside"),
    run("kubectl get leases -n operator-system -o name -l sharding.shoal.dev/group | wc -l", "3"),
    run("shoal shards status -n operator-system", "342"),
    run("kubectl explain application.spec.scaling", "maxReplicas"),
    run("kubectl create -f tests/application/plain.yaml", "application.apps.example.com/plain created"),
    run("kubectl wait --for=condition=Ready application/plain --timeout=120s", "condition met"),
    run("kubectl scale application/plain --replicas=2", "application.apps.example.com/plain scaled"),
    run("kubectl get application plain", "2/2"),
    // Whoever looked after it: another one takes over.
    run("kubectl delete pod -n operator-system -l app=application-operator --wait=false", "deleted"),
    run("kubectl scale application/plain --replicas=1", "application.apps.example.com/plain scaled"),
    run("kubectl get application plain", "1/1"),
    run("kubectl delete application plain", "application.apps.example.com \"plain\" deleted"),
    run("kubectl delete -f examples/application.yaml", "application.apps.example.com \"my-app\" deleted"),
    run("kubectl get all -l app=my-app", "No resources found"),
];

/// Runs the guide, then the story.
pub fn run_all(workspace: &Workspace, tools: &Tools) -> Result<Counts> {
    let binary = workspace.build("shoal", Profile::Debug)?;
    let mut counts = the_usage_guide_works_as_printed(workspace, tools, &binary)?;
    counts += story(&binary, &["demo", "application", "--quick"]);
    Ok(counts)
}

fn the_usage_guide_works_as_printed(workspace: &Workspace, tools: &Tools, binary: &Path) -> Result<Counts> {
    let folder = workspace.target.join("application");
    let _ = std::fs::remove_dir_all(&folder);
    let (kubeconfig, log) = (folder.join("kubeconfig"), folder.join("server.log"));
    let server = Server::start(binary, Mode::WithNode, &kubeconfig, &log)?;
    let mut folders: Vec<_> = binary.parent().map(Path::to_owned).into_iter().collect();
    folders.extend(std::env::split_paths(&tools.path));
    let path = std::env::join_paths(folders)?;
    let mut counts = Counts::default();
    for one in GUIDE.iter().chain(BEYOND) {
        let mut command = Command::new("sh");
        command.current_dir(&workspace.root);
        command.args(["-c", &format!("({}) 2>&1", one.line)]);
        command.env("PATH", &path).env("KUBECONFIG", &server.kubeconfig).env("HOME", &folder);
        counts += verdict(one.line, until_it_prints(&mut command, one));
    }
    server.stop()?;
    Ok(counts)
}

/// Runs a line again and again, as people do who wait for something.
fn until_it_prints(command: &mut Command, one: &Use) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let said = output(command, one, end)?;
        if said.contains(one.prints) {
            return Ok(());
        }
        if Instant::now() > end {
            bail!("expected {:?} in:\n{}", one.prints, said.trim());
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// What the line prints until it ends, or until that which is waited for has come if it never ends.
fn output(command: &mut Command, one: &Use, end: Instant) -> Result<String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let mut child = command.spawn().context("starting a shell")?;
    let pieces = pieces(child.stdout.take().context("no output to read")?);
    let mut said = String::new();
    while let Ok(piece) = pieces.recv_timeout(end.saturating_duration_since(Instant::now())) {
        said.push_str(&piece);
        if one.follows && said.contains(one.prints) {
            break;
        }
    }
    // Also those that the shell has started.
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let _ = group.map(|group| kill_process_group(group, Signal::TERM));
    child.wait()?;
    Ok(said)
}

fn pieces(mut from: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count) = from.read(&mut buffer) {
            let piece = String::from_utf8_lossy(&buffer[..count]).into_owned();
            if count == 0 || send.send(piece).is_err() {
                return;
            }
        }
    });
    receive
}
