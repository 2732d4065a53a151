//! The last stage, for commands that want a terminal or another user: it becomes the command.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::{ONE_THREAD, START_FAILED, complain, run};

/// Arguments: `tty` or nothing, `USER GROUP` or nothing, the command.
pub fn enter(arguments: &[OsString]) -> u8 {
    let [tty, user, program, rest @ ..] = arguments else {
        complain("no command");
        return START_FAILED;
    };
    if tty == "tty" {
        // A session of its own, whose terminal is standard input.
        let made = rustix::process::setsid().map(drop);
        let made = made.and_then(|()| rustix::process::ioctl_tiocsctty(rustix::stdio::stdin()));
        if let Err(error) = made {
            complain(&format!("cannot use the terminal: {error}"));
        }
    }
    let ids = user.to_str().and_then(|text| text.split_once(' '));
    if let Some((Ok(user), Ok(group))) = ids.map(|(user, group)| (user.parse(), group.parse()))
        && let Err(error) = run::isolate(0, 0, user, group)
    {
        complain(&format!("cannot become user {user}: {error}"));
        return START_FAILED;
    }
    let error = Command::new(program).args(rest).env_remove(ONE_THREAD.0).exec();
    complain(&format!("exec: {program:?}: {error}"));
    match error.kind() {
        std::io::ErrorKind::NotFound => 127,
        _ => 126,
    }
}
