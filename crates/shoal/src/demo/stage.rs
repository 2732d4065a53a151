//! What the audience sees: on a terminal a picture that is redrawn in place below the text, else plain lines.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};

use crate::shards::print;

/// Where the story is told.
pub struct Stage {
    live: bool,
    colours: bool,
    quiet: bool,
    shown: Mutex<Shown>,
}

#[derive(Default)]
struct Shown {
    /// Lines of the picture below the text.
    lines: usize,
    picture: String,
}

impl Stage {
    /// The terminal, if there is one; nothing is told if `quiet`.
    pub fn new(quiet: bool) -> Stage {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let live = std::io::stdout().is_terminal() && !dumb && !quiet;
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Stage { live, colours: live && !plain, quiet, shown: Mutex::default() }
    }

    /// One line of the story. It stays above the picture.
    pub fn say(&self, line: &str) {
        if self.quiet {
            return;
        }
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = erase(&mut shown);
        text += line;
        text.push('\n');
        if self.live {
            let picture = shown.picture.clone();
            shown.lines = picture.lines().count();
            text += &picture;
        }
        print(&text);
    }

    /// A new picture in place of the old one; it is asked whether there are colours.
    pub fn draw(&self, picture: impl FnOnce(bool) -> String) {
        if !self.live {
            return;
        }
        let picture = picture(self.colours);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let text = erase(&mut shown) + &picture;
        shown.lines = picture.lines().count();
        shown.picture = picture;
        print(&text);
    }

    /// Leaves the last picture as it is.
    pub fn end(&self) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        *shown = Shown::default();
    }
}

/// Moves up over the picture and clears it.
fn erase(shown: &mut Shown) -> String {
    match std::mem::take(&mut shown.lines) {
        0 => String::new(),
        lines => format!("\u{1b}[{lines}A\r\u{1b}[J"),
    }
}
