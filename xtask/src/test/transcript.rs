//! `docs/kubectl-transcript.md`: what kubectl prints on a new `shoal up`, written by running it, and checked for drift.

mod mask;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::tools::{self, Tools};
use crate::server::{Mode, Server};
use crate::workspace::{Profile, Workspace};

const FILE: &str = "docs/kubectl-transcript.md";

/// A heading and what is done below it.
struct Section {
    title: &'static str,
    steps: &'static [Step],
}

enum Step {
    /// Shows a file and leaves it for later commands.
    File(&'static str, &'static str),
    /// Runs a line in a shell and shows what it prints.
    Run(&'static str),
    /// Watches until something is shown, then runs another line and shows what the watch prints about it.
    Watch { watch: &'static str, meanwhile: &'static str },
}
use Step::{File, Run, Watch};

const POND: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: pond
  labels: {tier: front}
data:
  colour: blue
";
const POND_LATER: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: pond
  labels: {tier: front}
data:
  colour: green
  depth: \"3\"
";
const LAKE: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: lake
data:
  colour: grey
";

/// In this order on one server: later ones build on earlier ones.
const SECTIONS: &[Section] = &[
    Section { title: "What is served", steps: &[Run("kubectl api-resources")] },
    Section {
        title: "Who one is, and what one may do",
        steps: &[
            Run("kubectl auth whoami"),
            Run("kubectl auth can-i create deployments"),
            Run("kubectl auth can-i create deployments --as=jane"),
            Run("kubectl create rolebinding jane --clusterrole=edit --user=jane"),
            Run("kubectl auth can-i create deployments --as=jane"),
            Run("kubectl auth can-i delete nodes --as=jane"),
        ],
    },
    Section {
        title: "Creating",
        steps: &[
            Run("kubectl create namespace harbour"),
            Run("kubectl create configmap settings --from-literal=colour=blue"),
            Run("kubectl create secret generic login --from-literal=user=jane"),
            Run("kubectl create serviceaccount robot"),
            Run("kubectl create token robot --duration=1h"),
            Run("kubectl create deployment web --image=nginx:1.29 --replicas=2"),
            Run("kubectl autoscale deployment web --min=2 --max=5 --cpu-percent=80"),
            Run("kubectl get horizontalpodautoscaler web -o jsonpath='{.spec.metrics[0].resource}{\"\\n\"}'"),
            Run("kubectl get secret login -o jsonpath='{.data.user}{\"\\n\"}'"),
            Run("kubectl create deployment web --image=nginx:1.29"),
        ],
    },
    Section {
        title: "Applying, with kubectl's own merge",
        steps: &[
            File("pond.yaml", POND),
            Run("kubectl apply -f pond.yaml"),
            Run("kubectl apply -f pond.yaml"),
            File("pond-later.yaml", POND_LATER),
            Run("kubectl diff -f pond-later.yaml"),
            Run("kubectl apply -f pond-later.yaml"),
            Run("kubectl get configmap pond -o jsonpath='{.data}{\"\\n\"}'"),
        ],
    },
    Section {
        title: "Applying on the server",
        steps: &[
            File("lake.yaml", LAKE),
            Run("kubectl apply --server-side -f lake.yaml"),
            Run("sed s/grey/teal/ lake.yaml | kubectl apply --server-side --field-manager=painter -f -"),
            Run(
                "sed s/grey/teal/ lake.yaml | kubectl apply --server-side --field-manager=painter --force-conflicts -f -",
            ),
            Run("kubectl get configmap lake -o yaml --show-managed-fields"),
        ],
    },
    Section {
        title: "Editing",
        steps: &[
            Run("KUBE_EDITOR='sed -i s/green/violet/' kubectl edit configmap pond"),
            Run("KUBE_EDITOR='sed -i s/nothing/nowhere/' kubectl edit configmap pond"),
            Run("kubectl get configmap pond -o jsonpath='{.data.colour}{\"\\n\"}'"),
        ],
    },
    Section {
        title: "Explaining",
        steps: &[Run("kubectl explain deployment.spec.strategy"), Run("kubectl explain configmap.immutable")],
    },
    Section {
        title: "Watching and waiting",
        steps: &[
            Watch {
                watch: "kubectl get configmaps --watch --field-selector metadata.name=pond",
                meanwhile: "kubectl patch configmap pond --patch '{\"data\": {\"fish\": \"many\"}}'",
            },
            Run("kubectl wait --for=jsonpath='{.data.fish}'=many configmap/pond --timeout=10s"),
            Run("kubectl delete configmap pond"),
            Run("kubectl wait --for=delete configmap/pond --timeout=10s"),
            Run("kubectl get configmap pond"),
        ],
    },
];

/// Writes the file anew.
pub fn write() -> Result<()> {
    let workspace = Workspace::load()?;
    let tools = tools::get(&workspace)?;
    let text = make(&workspace, &tools)?;
    let file = workspace.root.join(FILE);
    std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))
}

/// Fails if kubectl prints something else today. Another kubectl has other words, so only the same one is compared.
pub fn check(workspace: &Workspace, tools: &Tools) -> Result<()> {
    let file = workspace.root.join(FILE);
    let kept = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let made = make(workspace, tools)?;
    let heading =
        |text: &str| text.lines().take_while(|line| !line.starts_with("## ")).map(str::to_owned).collect();
    let (kept_with, made_with): (Vec<String>, Vec<String>) = (heading(&kept), heading(&made));
    if kept_with != made_with {
        println!("    {FILE} was made with another kubectl; every command still ran");
        return Ok(());
    }
    for (number, (kept, made)) in kept.lines().zip(made.lines()).enumerate() {
        if kept != made {
            bail!(
                "{FILE}:{}: has {kept:?}, kubectl prints {made:?}; `cargo xtask transcript` writes it anew",
                number + 1
            );
        }
    }
    if kept.lines().count() != made.lines().count() {
        bail!(
            "{FILE} is longer or shorter than what kubectl prints; `cargo xtask transcript` writes it anew"
        );
    }
    Ok(())
}

fn make(workspace: &Workspace, tools: &Tools) -> Result<String> {
    let binary = workspace.build("shoal", Profile::Debug)?;
    let folder = workspace.target.join("transcript");
    let _ = std::fs::remove_dir_all(&folder);
    let server =
        Server::start(&binary, Mode::Ephemeral, &folder.join("kubeconfig"), &folder.join("server.log"))?;
    let shell = Shell { tools, server: &server, folder: &folder };
    let minor = tools::kubectl_version(tools).context("kubectl does not tell its version")?;
    let mut text = format!(
        "# kubectl on Shoal\n\n\
         Real output of kubectl 1.{minor} on a new `shoal up`, in order, written by `cargo xtask transcript`.\n\
         Ages, times, uids, versions and tokens are masked: they differ from run to run.\n\
         `cargo xtask test --only kubectl` runs all of it again and fails if something else is printed.\n"
    );
    for section in SECTIONS {
        write!(text, "\n## {}\n", section.title)?;
        for step in section.steps {
            match step {
                File(name, content) => {
                    std::fs::write(folder.join(name), content)?;
                    write!(text, "\n`{name}`:\n\n```yaml\n{content}```\n")?;
                }
                Run(line) => {
                    let printed = shell.run(line)?;
                    write!(text, "\n```console\n$ {line}\n{}```\n", mask::mask(&printed))?;
                }
                Watch { watch, meanwhile } => {
                    let (before, after) = shell.watch(watch, meanwhile)?;
                    let (before, after) = (mask::mask(&before), mask::mask(&after));
                    write!(text, "\n```console\n$ {watch}\n{before}")?;
                    write!(text, "# in another terminal: {meanwhile}\n{after}```\n")?;
                }
            }
        }
    }
    server.stop()?;
    Ok(text)
}

/// Runs lines where kubectl finds the server.
struct Shell<'a> {
    tools: &'a Tools,
    server: &'a Server,
    folder: &'a Path,
}

impl Shell<'_> {
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", line])
            .current_dir(self.folder)
            .env("PATH", &self.tools.path)
            .env("KUBECONFIG", &self.server.kubeconfig)
            .env("HOME", self.folder)
            .env_remove("TMPDIR")
            .stdin(Stdio::null());
        command
    }

    /// What it prints, errors last.
    fn run(&self, line: &str) -> Result<String> {
        let output = self.command(line).output().with_context(|| format!("running {line}"))?;
        Ok(format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
    }

    /// The heading and the first object, then one more line after the other command.
    fn watch(&self, watch: &str, meanwhile: &str) -> Result<(String, String)> {
        // Without `exec` the shell would stay in between, and the end would not reach kubectl.
        let mut child = self.command(&format!("exec {watch}")).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("no output to read")?;
        let mut lines = BufReader::new(stdout).lines();
        let mut take = |count: usize| -> Result<String> {
            let mut text = String::new();
            for _ in 0..count {
                writeln!(text, "{}", lines.next().context("the watch ended")??)?;
            }
            Ok(text)
        };
        let seen = take(2).and_then(|before| {
            self.run(meanwhile)?;
            Ok((before, take(1)?))
        });
        let _ = child.kill();
        let _ = child.wait();
        seen
    }
}
