//! What every stage does first: tie its life to its parent's, and pass on signals.

use std::process::{Child, ExitStatus};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use tokio::signal::unix::{SignalKind, signal};

/// Dies with the parent. `parent` is who it must be, if that is known: it may have gone already.
pub fn die_with_parent(parent: Option<i32>) -> Result<(), String> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| e.to_string())?;
    match parent {
        Some(parent) if rustix::process::getppid().map(Pid::as_raw_pid) != Some(parent) => {
            Err("the agent is gone".to_owned())
        }
        _ => Ok(()),
    }
}

/// Waits for `child`, buries every other orphan, and passes signals on to the child. Gives the code to exit with.
pub fn tend(child: &Child) -> u8 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return super::START_FAILED };
    runtime.block_on(async {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let listen = |kind| signal(kind);
        let (
            Ok(mut dead),
            Ok(mut terminate),
            Ok(mut interrupt),
            Ok(mut hangup),
            Ok(mut user1),
            Ok(mut user2),
        ) = (
            listen(SignalKind::child()),
            listen(SignalKind::terminate()),
            listen(SignalKind::interrupt()),
            listen(SignalKind::hangup()),
            listen(SignalKind::user_defined1()),
            listen(SignalKind::user_defined2()),
        )
        else {
            return super::START_FAILED;
        };
        loop {
            while let Ok(Some((who, status))) = wait(WaitOptions::NOHANG) {
                if Some(who) == pid {
                    return code(status.exit_status(), status.terminating_signal());
                }
            }
            let passed = tokio::select! {
                _ = dead.recv() => continue,
                _ = terminate.recv() => Signal::TERM,
                _ = interrupt.recv() => Signal::INT,
                _ = hangup.recv() => Signal::HUP,
                _ = user1.recv() => Signal::USR1,
                _ = user2.recv() => Signal::USR2,
            };
            if let Some(pid) = pid {
                let _ = kill_process(pid, passed);
            }
        }
    })
}

/// The exit code as shells count it.
fn code(exit: Option<i32>, signal: Option<i32>) -> u8 {
    let number = exit.or(signal.map(|signal| 128 + signal)).unwrap_or(255);
    u8::try_from(number).unwrap_or(255)
}

/// The exit code of a child that was waited for.
pub fn exit_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(255)
}
