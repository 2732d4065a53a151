//! The Application as a picture that is drawn again and again.

use shoal_application::Phase;

use super::view::View;

/// No line is longer.
const WIDTH: usize = 96;

/// What is there, who is well, what was told, and how the visitors fare.
pub fn picture(view: &View, answered: u64, failed: u64, colours: bool) -> String {
    let paint = |text: &str, colour: &str| match colours {
        true => format!("\u{1b}[{colour}m{text}\u{1b}[0m"),
        false => text.to_owned(),
    };
    let colour = match view.phase {
        Some(Phase::Running) => "32",
        Some(Phase::Failed) => "31",
        _ => "33",
    };
    let phase = view.phase.map_or("–", Phase::as_str);
    let mut text = format!("\n  Application web  {}\n", paint(phase, colour));
    if let Some(scaling) = &view.scaling {
        text += &format!("  autoscaler: {scaling}\n");
    }
    for pod in &view.pods {
        let (mark, colour) = if pod.ready { ("●", "32") } else { ("○", "33") };
        let line = format!("{:<28} {:<18} {}", pod.name, pod.image, pod.state);
        text += &format!("    {} {}\n", paint(mark, colour), cut(&line));
    }
    for (reason, message) in &view.events {
        text += &format!("    {}\n", cut(&format!("{reason}: {message}")));
    }
    let visits = format!("visitors: {answered} answered, {failed} turned away");
    text + "  " + &paint(&visits, if failed == 0 { "32" } else { "31" }) + "\n"
}

fn cut(line: &str) -> String {
    let line = line.lines().next().unwrap_or_default();
    if line.chars().count() <= WIDTH {
        line.to_owned()
    } else {
        line.chars().take(WIDTH - 1).chain(['…']).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colours_there_are_no_escapes_and_lines_are_cut() {
        let events = vec![("Odd".to_owned(), "x".repeat(500))];
        let view = View { phase: Some(Phase::Running), events, ..View::default() };
        let text = picture(&view, 3, 0, false);
        assert!(
            !text.contains('\u{1b}') && text.contains("Running") && text.contains("3 answered"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH + 6), "{text}");
        assert!(picture(&view, 3, 1, true).contains("\u{1b}[31m"), "a closed door is red");
    }
}
