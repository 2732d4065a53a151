//! The first stage: namespaces.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Command;

use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, getgid, getuid, pidfd_open};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces};

use super::network::Supervisor;
use super::{Keep, Report, START_FAILED, Spec, complain, life, send_report, settle};

/// Makes the namespaces and starts `init` in them; without them, if the system forbids them and the pod can do without.
pub fn run(path: &str) -> u8 {
    let text = std::fs::read(path).map_err(|e| e.to_string());
    let spec: Spec = match text.and_then(|text| serde_json::from_slice(&text).map_err(|e| e.to_string())) {
        Ok(spec) => spec,
        Err(error) => {
            complain(&format!("cannot read the container's settings: {error}"));
            return START_FAILED;
        }
    };
    match start(&spec, path) {
        Ok(code) => code,
        Err(message) => {
            let report = Report::Failed { token: spec.token.clone(), message };
            let _ = send_report(&spec.control, &report);
            let _ = std::fs::remove_file(path);
            START_FAILED
        }
    }
}

/// What the stage of a container holds that outlives its agent.
struct Held {
    life: File,
    _pipes: Vec<File>,
}

impl Held {
    fn open(keep: &Keep) -> std::io::Result<Held> {
        // Away from the terminal and the signals of who started the agent.
        let _ = rustix::process::setsid();
        // Without waiting for somebody who writes.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        let open = |path| std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
        let pipes = keep.pipes.iter().map(open).collect::<std::io::Result<_>>()?;
        Ok(Held { life: life::begin(&keep.life)?, _pipes: pipes })
    }
}

fn start(spec: &Spec, path: &str) -> Result<u8, String> {
    // First: later, paths lead elsewhere.
    let held = spec.keep.as_ref().map(Held::open).transpose().map_err(|e| format!("cannot be kept: {e}"))?;
    super::enter_cgroup(spec.cgroup.as_ref())?;
    let isolated = match spec.beside {
        Some(other) => enter(other, ThreadNameSpaceType::USER),
        None => isolate(getuid().as_raw(), getgid().as_raw(), 0, 0),
    };
    // Between the two: new users need a single thread, and after new pids no thread can be made.
    let supervisor = spec.network.clone().and_then(|network| Supervisor::new(network).ok());
    let isolated = isolated.and_then(|()| match spec.beside {
        Some(other) => enter(other, ThreadNameSpaceType::PROCESS_ID)
            .and_then(|()| unshare(UnshareFlags::NEWNS | UnshareFlags::NEWUTS)),
        None => unshare(UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWUTS),
    });
    // After the change of credentials, which may reset it.
    if held.is_none() {
        settle::die_with_parent(Some(spec.agent))?;
    }
    let mode = match isolated {
        Ok(()) => "init",
        Err(why) if spec.needs_mounts => {
            return Err(format!(
                "volumes need user namespaces, which this system forbids ({why}); allow them (sysctl kernel.unprivileged_userns_clone=1, or the AppArmor setting kernel.apparmor_restrict_unprivileged_userns=0)"
            ));
        }
        Err(_) => {
            rustix::process::set_child_subreaper(Pid::from_raw(1)).map_err(|e| e.to_string())?;
            "init"
        }
    };
    if isolated.is_err() {
        // Else a filter may only be set by root.
        rustix::thread::set_no_new_privs(true).map_err(|e| e.to_string())?;
    }
    if let Some(Err(error)) = supervisor.map(Supervisor::begin) {
        complain(&format!("the pod has no address of its own, use $POD_IP: {error}"));
    }
    let namespaces = if isolated.is_ok() { "1" } else { "" };
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let prefix: Vec<String> = std::env::args().skip(1).take_while(|argument| argument != "run").collect();
    let child = Command::new(program)
        .args(prefix)
        .args([mode, path])
        .env("SHOAL_NAMESPACES", namespaces)
        .spawn()
        .map_err(|e| format!("cannot start the container's first process: {e}"))?;
    let code = settle::tend(&child);
    if let Some(held) = held {
        // Nobody is there to be told that this cannot be written.
        let _ = life::end(&held.life, code);
    }
    Ok(code)
}

/// Joins a namespace of another container's first process.
fn enter(other: i32, kind: ThreadNameSpaceType) -> Result<(), String> {
    let gone = |e: rustix::io::Errno| format!("the target container is not running: {e}");
    let pid = Pid::from_raw(other).ok_or("the target container is not running")?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(gone)?;
    move_into_thread_name_spaces(pidfd.as_fd(), kind).map_err(gone)
}

/// Leaves what is shared with others.
pub fn unshare(flags: UnshareFlags) -> Result<(), String> {
    // Only tables of open files make it unsafe; those are not asked for.
    #[allow(deprecated, reason = "the safe form is deprecated for a flag that is not used here")]
    rustix::thread::unshare(flags).map_err(|e| e.to_string())
}

/// A new namespace of users in which the user `uid` is `inside_uid`.
pub fn isolate(uid: u32, gid: u32, inside_uid: u32, inside_gid: u32) -> Result<(), String> {
    unshare(UnshareFlags::NEWUSER)?;
    let write = |file: &str, text: String| {
        std::fs::write(format!("/proc/self/{file}"), text).map_err(|e| format!("{file}: {e}"))
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{inside_uid} {uid} 1"))?;
    write("gid_map", format!("{inside_gid} {gid} 1"))
}
