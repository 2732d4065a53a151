//! Commands that join a running container: `kubectl exec`, exec probes and hooks.

use std::path::Path;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces};

use super::init::{Entering, command};
use super::network::Supervisor;
use super::{Join, SELF_PATH, complain, run, settle, take};

/// Runs the command and exits as it does; 126 and 127 as shells have them.
pub fn join(path: &str) -> u8 {
    match take(path).and_then(|join: Join| start(&join)) {
        Ok(code) => code,
        Err(error) => {
            complain(&error);
            if error.contains("not found") { 127 } else { 126 }
        }
    }
}

fn start(join: &Join) -> Result<u8, String> {
    super::enter_cgroup(join.cgroup.as_ref())?;
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut program = own.as_path();
    let mut supervisor = None;
    if join.namespaces {
        let pid = Pid::from_raw(join.pid).ok_or("the container is not running")?;
        let gone = |e: rustix::io::Errno| format!("the container is not running: {e}");
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(gone)?;
        use ThreadNameSpaceType as Kind;
        let pidfd = std::os::fd::AsFd::as_fd(&pidfd);
        move_into_thread_name_spaces(pidfd, Kind::USER).map_err(gone)?;
        // Between the two, as in the stage `run`; the directories of its thread stay the host's.
        supervisor = join.network.clone().and_then(|network| Supervisor::new(network).ok());
        run::unshare(UnshareFlags::FS)?;
        let kinds = Kind::MOUNT | Kind::PROCESS_ID | Kind::HOST_NAME_AND_NIS_DOMAIN_NAME;
        move_into_thread_name_spaces(pidfd, kinds).map_err(gone)?;
        program = Path::new(SELF_PATH);
    }
    if let Some(supervisor) = supervisor {
        // Without, the command sees the machine's addresses.
        let _ = supervisor.begin();
    }
    settle::die_with_parent(None)?;
    let prefix: Vec<String> = std::env::args().skip(1).take_while(|argument| argument != "join").collect();
    let enter = Entering { program, prefix: &prefix, namespaces: join.namespaces };
    let child =
        command(&enter, &join.command, &join.env, &join.working_dir, join.tty, (join.user, join.group))?;
    Ok(settle::tend(&child))
}
