//! What people do with kubectl, with the kubeconfig that `shoal up` writes and no further flags.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::command::{Counts, verdict};
use super::tools::Tools;
use super::transcript;
use crate::server::{Mode, Server};
use crate::workspace::{Profile, Workspace};

/// How long something may take to be seen.
const PATIENCE: Duration = Duration::from_secs(60);

/// One use: a claim, the command line, what it reads, and what it must print.
struct Use {
    claim: &'static str,
    arguments: &'static str,
    input: &'static str,
    prints: &'static str,
}

const fn case(
    claim: &'static str,
    arguments: &'static str,
    input: &'static str,
    prints: &'static str,
) -> Use {
    Use { claim, arguments, input, prints }
}

const CONFIG_MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: blue}
";
const CONFIG_MAP_GREEN: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: applied}
data: {colour: green}
";
const CONFIG_MAP_RED: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: applied}
data: {colour: red}
";

/// In this order: later ones build on earlier ones.
const USES: &[Use] = &[
    case("the server has a version", "version", "", "Server Version: v1.36"),
    case("the usual namespaces exist", "get namespaces", "", "kube-system"),
    case("resources are listed", "api-resources", "", "deployments"),
    case("kinds are explained", "explain pod.spec.containers.image", "", "FIELD: image"),
    case("an object is created from a file", "create -f -", CONFIG_MAP, "configmap/settings created"),
    case("creating it again is refused", "create -f -", CONFIG_MAP, "AlreadyExists"),
    case("an object is shown as YAML", "get configmap settings -o yaml", "", "colour: blue"),
    case("a deployment is created", "create deployment web --image=nginx", "", "deployment.apps/web created"),
    case("a deployment is scaled", "scale deployment web --replicas=3", "", "deployment.apps/web scaled"),
    case("its new size is shown", "get deployment web -o jsonpath={.spec.replicas}", "", "3"),
    case("a manifest is applied", "apply -f -", CONFIG_MAP_GREEN, "configmap/applied created"),
    case("applied again it is unchanged", "apply -f -", CONFIG_MAP_GREEN, "configmap/applied unchanged"),
    case("a changed manifest is applied", "apply -f -", CONFIG_MAP_RED, "configmap/applied configured"),
    case(
        "a typo is told",
        "create -f -",
        r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "dta": {}}"#,
        "unknown field",
    ),
    case("an object is edited", "edit configmap settings", "", "configmap/settings edited"),
    case("the edit is there", "get configmap settings -o jsonpath={.data.colour}", "", "violet"),
    case(
        "an object is patched",
        "patch configmap settings -p {\"data\":{\"size\":\"9\"}}",
        "",
        "configmap/settings patched",
    ),
    case("an object is labelled", "label configmap settings tier=front", "", "configmap/settings labeled"),
    case("labels select", "get configmaps -l tier=front -o name", "", "configmap/settings"),
    case("an object is annotated", "annotate configmap settings note=x", "", "configmap/settings annotated"),
    case("permissions can be asked for", "auth can-i create pods", "", "yes"),
    case("an object is deleted", "delete configmap settings", "", "configmap \"settings\" deleted"),
    case("what is gone is not found", "get configmap settings", "", "configmaps \"settings\" not found"),
    case("all of a kind is deleted", "delete configmaps --all", "", "configmap \"applied\" deleted"),
];

/// With a node that runs pods.
const NODE_USES: &[Use] = &[
    case(
        "a node is there",
        "wait --for=condition=Ready node/shoal --timeout=60s",
        "",
        "node/shoal condition met",
    ),
    case(
        "replicas are made",
        "create deployment web --image=echo --replicas=3",
        "",
        "deployment.apps/web created",
    ),
    case("they run", "rollout status deployment/web --timeout=120s", "", "successfully rolled out"),
    case("their logs are read", "logs deployment/web", "", "listening on"),
    case("the last lines are enough", "logs deployment/web --tail=1 --timestamps", "", "Z listening on"),
    case("a command runs in a pod", "exec deployment/web -- hostname", "", "web-"),
    case("its input is passed on", "exec -i deployment/web -- cat", "through the pod", "through the pod"),
    case("its exit code is told", "exec deployment/web -- false", "", "command terminated with exit code 1"),
    case(
        "a pod runs to its end",
        "run once --image=busybox --restart=Never -- echo done",
        "",
        "pod/once created",
    ),
    case(
        "its end is seen",
        "wait --for=jsonpath={.status.phase}=Succeeded pod/once --timeout=60s",
        "",
        "pod/once condition met",
    ),
    case("its log stays", "logs once", "", "done"),
    case("an unknown image is told", "run odd --image=example.com/odd", "", "pod/odd created"),
    case(
        "with its reason",
        "wait --for=jsonpath={.status.containerStatuses[0].state.waiting.reason}=ImagePullBackOff pod/odd --timeout=60s",
        "",
        "pod/odd condition met",
    ),
    case("what nodes use is told", "top nodes", "", "shoal "),
    case("what pods use is told", "top pods", "", "web-"),
    case("of each container", "top pods -A --containers", "", " echo "),
    case("of some, the busiest first", "top pods -l app=web --sort-by=cpu --no-headers", "", "web-"),
    case("of what is not there nothing is told", "top pod none", "", "podmetrics.metrics.k8s.io"),
    case("figures are objects", "get pods.metrics.k8s.io", "", "WINDOW"),
    case(
        "an autoscaler is made",
        "autoscale deployment web --cpu-percent=50 --min=1 --max=5",
        "",
        "horizontalpodautoscaler.autoscaling/web autoscaled",
    ),
    case(
        "it needs requests",
        "wait --for=condition=ScalingActive=false hpa/web --timeout=60s",
        "",
        "condition met",
    ),
    case("and says so", "describe hpa web", "", "missing request for cpu in container echo"),
    case(
        "requests are set",
        "set resources deployment web --requests=cpu=100m",
        "",
        "resource requirements updated",
    ),
    case(
        "it follows the figures",
        "wait --for=condition=ScalingActive hpa/web --timeout=120s",
        "",
        "condition met",
    ),
    case("they are shown", "get hpa web", "", "%/50%"),
    case("replicas are deleted", "delete deployment web", "", "deployment.apps \"web\" deleted"),
    case("their pods go", "wait --for=delete pod -l app=web --timeout=60s", "", ""),
];

/// Runs every use, then one watch.
pub fn run(workspace: &Workspace, tools: &Tools) -> Result<Counts> {
    let binary = workspace.build("shoal", Profile::Debug)?;
    let folder = workspace.target.join("kubectl");
    let _ = std::fs::remove_dir_all(&folder);
    let server =
        Server::start(&binary, Mode::Ephemeral, &folder.join("kubeconfig"), &folder.join("server.log"))?;
    let kubectl = Kubectl { tools, server: &server, folder: &folder };
    let mut counts = Counts::default();
    for one in USES {
        counts += verdict(one.claim, kubectl.check(one));
    }
    counts += verdict("a watch shows what happens", kubectl.check_watch());
    server.stop()?;
    let folder = folder.join("node");
    let server =
        Server::start(&binary, Mode::WithNode, &folder.join("kubeconfig"), &folder.join("server.log"))?;
    let kubectl = Kubectl { tools, server: &server, folder: &folder };
    for one in NODE_USES {
        counts += verdict(one.claim, kubectl.check(one));
    }
    server.stop()?;
    counts += verdict("the transcript is what kubectl prints", transcript::check(workspace, tools));
    Ok(counts)
}

struct Kubectl<'a> {
    tools: &'a Tools,
    server: &'a Server,
    folder: &'a Path,
}

impl Kubectl<'_> {
    /// Words are split at blanks, nothing else: no argument here has one.
    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new("kubectl");
        command
            .args(arguments.split(' '))
            .env("PATH", &self.tools.path)
            .env("KUBECONFIG", &self.server.kubeconfig)
            .env("HOME", self.folder)
            .env("KUBE_EDITOR", "sed -i s/blue/violet/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn output(&self, arguments: &str, input: &str) -> Result<Output> {
        let mut child = self.command(arguments).spawn().context("starting kubectl")?;
        if let Some(mut stdin) = child.stdin.take() {
            // A command that does not read its input may be gone before we have written it.
            let _ = stdin.write_all(input.as_bytes());
        }
        child.wait_with_output().context("waiting for kubectl")
    }

    /// What is only looked at is looked at again until it is there: figures of pods need some seconds.
    fn check(&self, one: &Use) -> Result<()> {
        let looks = ["get ", "describe ", "top "].iter().any(|verb| one.arguments.starts_with(verb));
        let end = Instant::now() + if looks { PATIENCE } else { Duration::ZERO };
        loop {
            let output = self.output(one.arguments, one.input)?;
            let said = [output.stdout, output.stderr]
                .map(|text| String::from_utf8_lossy(&text).into_owned())
                .concat();
            if said.contains(one.prints) {
                return Ok(());
            }
            if Instant::now() >= end {
                bail!("kubectl {}: expected {:?} in:\n{}", one.arguments, one.prints, said.trim());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn check_watch(&self) -> Result<()> {
        self.output("create configmap seen-first", "")?;
        let mut child = self.command("get configmaps --watch -o name").spawn().context("starting kubectl")?;
        let lines = child.stdout.take().context("no output to read")?;
        let outcome = self.follow(lines, &mut child);
        let _ = child.kill();
        let _ = child.wait();
        outcome
    }

    /// kubectl prints what is there first; only then is the second object created.
    fn follow(&self, lines: ChildStdout, child: &mut Child) -> Result<()> {
        let mut lines = BufReader::new(lines).lines();
        let mut await_line = |wanted: &str| -> Result<()> {
            for line in lines.by_ref() {
                if line? == wanted {
                    return Ok(());
                }
            }
            bail!("the watch ended ({:?}) without showing {wanted}", child.try_wait()?)
        };
        await_line("configmap/seen-first")?;
        self.output("create configmap seen-later", "")?;
        await_line("configmap/seen-later")
    }
}
