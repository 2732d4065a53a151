//! The story of an Application: one object becomes a service that people visit. It grows under load, gets an image that does not
//! exist, heals itself, and leaves nothing behind. Visitors come all the time; none may stand before a closed door.

mod picture;
mod view;
mod visitors;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shoal_application::{Application, Phase};
use shoal_runtime::client::{Options, Places, infer_from};
use tokio::time::{Instant, sleep};

use view::View;
use visitors::Visitors;

use crate::demo::process::Server;
use crate::demo::stage::Stage;
use crate::shards::print;

/// How the story goes.
#[derive(clap::Args)]
pub struct Args {
    /// Fewer pods
    #[arg(long)]
    quick: bool,
    /// Keep logs in this new folder
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// The name of the Application and of its Service.
const NAME: &str = "web";
/// How long any step may take before the story is given up.
const PATIENCE: Duration = Duration::from_secs(180);
/// How often the audience gets a new picture.
const LOOK: Duration = Duration::from_millis(250);
/// A rollout without progress is given up after so many seconds.
const DEADLINE: u32 = 8;
/// Pods at rest.
const LEAST: usize = 2;
/// Visitors who keep pods busy: more than enough for as many pods as there may be.
const BUSY: usize = 8;
/// The cluster measures and scales more often than clusters usually do, because somebody is watching.
const IMPATIENT: &[&str] = &["--metrics-resolution", "2s", "--horizontal-pod-autoscaler-sync-period", "1s"];

/// Tells the story and ends with an error if it does not go as promised.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let temporary;
    let folder = match &args.keep {
        Some(path) => {
            std::fs::create_dir_all(path)
                .with_context(|| format!("cannot make the folder {}", path.display()))?;
            path.as_path()
        }
        None => {
            temporary = tempfile::tempdir().context("cannot make a temporary folder")?;
            temporary.path()
        }
    };
    let stage = Stage::new(false);
    let interrupted = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    let told = tokio::select! {
        told = tell(args, folder, &stage) => told,
        () = interrupted => bail!("interrupted; all processes of the story were ended"),
    };
    stage.end();
    print(&told?);
    Ok(())
}

/// Everything on stage.
struct Play<'a> {
    stage: &'a Stage,
    client: Client,
    applications: Api<Application>,
    visitors: Visitors,
    began: Instant,
    /// What was last said about the Application.
    said: String,
    /// Each step and how long it took.
    steps: Vec<(String, Duration)>,
}

async fn tell(args: &Args, folder: &Path, stage: &Stage) -> anyhow::Result<String> {
    let binary = std::env::current_exe().context("cannot find this program")?;
    let server = Server::start(&binary, folder, IMPATIENT)?;
    let places = Places { kubeconfig: Some(server.kubeconfig.clone().into()), ..Places::default() };
    let client = infer_from(&places, &Options::default()).await?;
    stage.say(&format!(
        "a cluster runs; look at it yourself: export KUBECONFIG={}",
        server.kubeconfig.display()
    ));
    let mut play = Play {
        stage,
        applications: Api::default_namespaced(client.clone()),
        visitors: Visitors::new(client.clone(), NAME),
        client,
        began: Instant::now(),
        said: String::new(),
        steps: Vec::new(),
    };
    play.story(args).await?;
    play.verdict()
}

impl Play<'_> {
    async fn story(&mut self, args: &Args) -> anyhow::Result<()> {
        let most = if args.quick { 3 } else { 6 };
        self.create(most).await?;
        self.visit().await?;
        self.load(most).await?;
        self.break_it().await?;
        self.heal().await?;
        self.delete().await
    }

    async fn create(&mut self, most: usize) -> anyhow::Result<()> {
        let step =
            self.begin(&format!("create an Application: image echo:1, {LEAST} to {most} pods by load"));
        let object = serde_json::from_value(application(most))?;
        // The kind is installed by the operator, which comes up beside the server.
        let end = Instant::now() + PATIENCE;
        while let Err(error) = self.applications.create(&PostParams::default(), &object).await {
            if Instant::now() > end {
                bail!("the Application cannot be created: {error}");
            }
            sleep(LOOK).await;
        }
        let view = self.until("is Running", |view| view.phase == Some(Phase::Running)).await?;
        self.stage.say(&format!("  made for it: {}", view.children.join(", ")));
        self.end(step);
        Ok(())
    }

    async fn visit(&mut self) -> anyhow::Result<()> {
        let step = self.begin("visit it; from now on somebody always does");
        let answer = self.visitors.visit("/").await.context("the Service does not answer")?;
        let words = answer.lines().find(|line| line.starts_with("Hostname")).unwrap_or("it answers");
        self.stage.say(&format!("  $ curl http://{NAME}:8080/\n  {words}"));
        self.visitors.keep_visiting();
        self.end(step);
        Ok(())
    }

    async fn load(&mut self, most: usize) -> anyhow::Result<()> {
        let step = self.begin(&format!("load: {BUSY} visitors keep the processors busy; it grows"));
        let load = self.visitors.load(BUSY);
        self.until("has as many pods as it may", |view| view.ready == most).await?;
        self.end(step);
        let step = self.begin("the load ends; it shrinks");
        drop(load);
        self.until("is at rest again", |view| {
            view.pods.len() == LEAST && view.ready == LEAST && view.phase == Some(Phase::Running)
        })
        .await?;
        self.end(step);
        Ok(())
    }

    async fn break_it(&mut self) -> anyhow::Result<()> {
        let step = self.begin("an image that does not exist: the rollout fails and is taken back");
        self.edit(&json!({"spec": {"image": "no-such-image:2"}})).await?;
        let view = self.until("has been rolled back", |view| view.is_true("RolledBack")).await?;
        self.stage.say(&format!("  it says: {}", view.message("RolledBack")));
        self.until("has no pod of the bad image any more", |view| {
            view.pods.iter().all(|pod| pod.image == "echo:1") && view.ready >= LEAST
        })
        .await?;
        self.end(step);
        Ok(())
    }

    async fn heal(&mut self) -> anyhow::Result<()> {
        let step = self.begin("a good image again: echo:3");
        self.edit(&json!({"spec": {"image": "echo:3"}})).await?;
        self.until("runs echo:3", |view| {
            let new = view.pods.iter().all(|pod| pod.image == "echo:3");
            view.phase == Some(Phase::Running) && new && view.is_true("Ready")
        })
        .await?;
        self.end(step);
        Ok(())
    }

    async fn delete(&mut self) -> anyhow::Result<()> {
        let step = self.begin("delete it: nothing stays");
        self.visitors.stop().await;
        self.applications.delete(NAME, &DeleteParams::default()).await?;
        self.until("is gone with everything", |view| view.is_gone()).await?;
        self.end(step);
        Ok(())
    }

    async fn edit(&self, patch: &Value) -> anyhow::Result<()> {
        self.applications.patch(NAME, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    fn begin(&mut self, title: &str) -> (String, Instant) {
        self.stage.say(&format!("▶ {title}"));
        (title.to_owned(), Instant::now())
    }

    fn end(&mut self, (title, began): (String, Instant)) {
        self.stage.say(&format!("  done in {:.1} s", began.elapsed().as_secs_f64()));
        self.steps.push((title, began.elapsed()));
    }

    /// Looks until something is true. What changes is said, whatever the audience looks at.
    async fn until(&mut self, what: &str, done: impl Fn(&View) -> bool) -> anyhow::Result<View> {
        let end = Instant::now() + PATIENCE;
        let mut last = String::new();
        while Instant::now() < end {
            match View::of(&self.client, NAME).await {
                Err(error) => last = error.to_string(),
                Ok(view) => {
                    let (answered, failed) = self.visitors.counts();
                    self.stage.draw(|colours| picture::picture(&view, answered, failed, colours));
                    last = view.line();
                    if last != self.said {
                        let passed = self.began.elapsed().as_secs_f64();
                        let measured = view.scaling.as_ref().map(|scaling| format!("  ({scaling})"));
                        self.stage.say(&format!("  {passed:>6.1} s  {last}{}", measured.unwrap_or_default()));
                        self.said.clone_from(&last);
                    }
                    if done(&view) {
                        return Ok(view);
                    }
                }
            }
            sleep(LOOK).await;
        }
        bail!("after {} s it still is not true that it {what}: {last}", PATIENCE.as_secs())
    }

    fn verdict(&self) -> anyhow::Result<String> {
        let (answered, failed) = self.visitors.counts();
        let mut text = String::from("\n");
        for (title, took) in &self.steps {
            text += &format!("  ✓ {title}  ({:.1} s)\n", took.as_secs_f64());
        }
        if failed > 0 {
            bail!("{failed} of {} visitors stood before a closed door", answered + failed);
        }
        text += &format!("  ✓ {answered} visitors were answered, none was turned away\n");
        Ok(text)
    }
}

fn application(most: usize) -> Value {
    json!({
        "apiVersion": "apps.example.com/v1alpha1",
        "kind": "Application",
        "metadata": {"name": NAME},
        "spec": {
            "replicas": LEAST,
            "image": "echo:1",
            "port": 8080,
            "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}},
            "healthCheck": {"readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 1}},
            "scaling": {
                "minReplicas": LEAST,
                "maxReplicas": most,
                "targetCPUUtilizationPercentage": 60,
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}},
            },
            "progressDeadlineSeconds": DEADLINE,
        },
    })
}
