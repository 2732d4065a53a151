//! The second stage: the container's first process.

use std::path::Path;
use std::process::{Child, Command};

use super::{ONE_THREAD, Report, SELF_PATH, START_FAILED, Spec, mounts, send_report, settle, take};
use crate::images::SELF;

/// Makes the container's view of the file system, starts the command, tells the agent, and waits.
pub fn init(path: &str) -> u8 {
    let namespaces = std::env::var_os("SHOAL_NAMESPACES").is_some_and(|value| !value.is_empty());
    let spec: Spec = match take(path) {
        Ok(spec) => spec,
        Err(error) => {
            super::complain(&error);
            return START_FAILED;
        }
    };
    let token = spec.token.clone();
    match start(&spec, namespaces) {
        Ok(child) => {
            if send_report(&spec.control, &Report::Started { token, namespaces }).is_err() {
                return START_FAILED;
            }
            let code = settle::tend(&child);
            if !namespaces || spec.beside.is_some() {
                kill_orphans();
            }
            code
        }
        Err(message) => {
            let _ = send_report(&spec.control, &Report::Failed { token, message });
            START_FAILED
        }
    }
}

fn start(spec: &Spec, namespaces: bool) -> Result<Child, String> {
    settle::die_with_parent(None)?;
    let myself = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut program = myself.clone();
    if namespaces {
        // A name that cannot be set changes nothing else.
        let _ = rustix::system::sethostname(spec.hostname.as_bytes());
        mounts::build(spec, &myself)?;
        program = SELF_PATH.into();
    }
    if !namespaces || spec.beside.is_some() {
        rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1)).map_err(|e| e.to_string())?;
    }
    let prefix: Vec<String> = std::env::args().skip(1).take_while(|argument| argument != "init").collect();
    let enter = Entering { program: &program, prefix: &prefix, namespaces };
    command(&enter, &spec.command, &spec.env, &spec.working_dir, spec.tty, (spec.user, spec.group))
}

/// How the program starts itself.
pub struct Entering<'a> {
    pub program: &'a Path,
    pub prefix: &'a [String],
    pub namespaces: bool,
}

/// Starts a container's command, through the stage `enter` if it is to have a terminal or another user.
pub fn command(
    enter: &Entering<'_>,
    line: &[String],
    env: &[(String, String)],
    working_dir: &str,
    tty: bool,
    (user, group): (Option<u32>, Option<u32>),
) -> Result<Child, String> {
    let (first, rest) =
        line.split_first().ok_or("there is no command: neither the container nor its image has one")?;
    let own = |program: &str| match program == SELF {
        true => enter.program.to_string_lossy().into_owned(),
        false => program.to_owned(),
    };
    let other_user = enter.namespaces && (user.is_some_and(|u| u != 0) || group.is_some_and(|g| g != 0));
    let mut command = if tty || other_user {
        let mut command = Command::new(enter.program);
        command.args(enter.prefix).arg("enter");
        command.arg(if tty { "tty" } else { "" });
        command.arg(if other_user {
            format!("{} {}", user.unwrap_or(0), group.unwrap_or(0))
        } else {
            String::new()
        });
        command.arg(own(first));
        command
    } else {
        Command::new(own(first))
    };
    command.args(rest).env_clear().envs(env.iter().map(|(name, value)| (name, value)));
    if tty || other_user {
        command.env(ONE_THREAD.0, ONE_THREAD.1);
    }
    if !working_dir.is_empty() {
        command.current_dir(working_dir);
    }
    command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound if !working_dir.is_empty() && !Path::new(working_dir).is_dir() => {
            format!("the working directory {working_dir:?} does not exist")
        }
        std::io::ErrorKind::NotFound => format!("exec: {first:?}: executable file not found in $PATH"),
        _ => format!("exec: {first:?}: {error}"),
    })
}

/// Without a pid namespace of its own, what the command left behind has become ours.
fn kill_orphans() {
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    let me = std::process::id();
    loop {
        let text = std::fs::read_to_string(format!("/proc/self/task/{me}/children")).unwrap_or_default();
        let children: Vec<Pid> =
            text.split_whitespace().filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw)).collect();
        if children.is_empty() {
            return;
        }
        for child in children {
            let _ = kill_process(child, Signal::KILL);
            let _ = waitpid(Some(child), WaitOptions::empty());
        }
    }
}
